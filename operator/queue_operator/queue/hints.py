"""What workers tell beside outcomes and heartbeats; nobody waits until it is stored."""

import random
from collections.abc import Callable, Sequence

from queue_operator.backends.protocol import Backend, CancelInbox, ProgressReport, ProgressSink
from queue_operator.domain.clock import Clock
from queue_operator.domain.lease import Held
from queue_operator.queue.coalescer import Coalescer


class WorkerHints:
    """Progress and receipts of cancels, in batches, where the store keeps them."""

    def __init__(
        self,
        backend: Backend,
        max_batch: int,
        clock: Clock,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._sink = backend if isinstance(backend, ProgressSink) else None
        self._inbox = backend if isinstance(backend, CancelInbox) else None
        self._progress: Coalescer[ProgressReport, None] = Coalescer(
            "storing progress", self._record, _drop, max_batch=max_batch, clock=clock, rng=rng
        )
        self._receipts: Coalescer[Held, None] = Coalescer(
            "confirming cancels", self._confirm, _drop, max_batch=max_batch, clock=clock, rng=rng
        )

    async def start(self) -> None:
        await self._progress.start()
        await self._receipts.start()

    async def stop(self) -> None:
        await self._progress.stop()
        await self._receipts.stop()

    def report_progress(self, reports: Sequence[ProgressReport]) -> None:
        if self._sink is not None and self._progress.has_room:
            self._progress.offer(reports)

    def confirm_cancels(self, received: Sequence[Held]) -> None:
        if self._inbox is not None and self._receipts.has_room:
            self._receipts.offer(received)

    async def _record(self, reports: Sequence[ProgressReport]) -> list[None]:
        if self._sink is not None:
            await self._sink.record_progress(reports)
        return [None] * len(reports)

    async def _confirm(self, received: Sequence[Held]) -> list[None]:
        if self._inbox is not None:
            await self._inbox.confirm_cancels(received)
        return [None] * len(received)


def _drop(hint: object, error: Exception) -> None:
    return None
