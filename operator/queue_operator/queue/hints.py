"""What workers tell beside outcomes and heartbeats; nobody waits until it is stored."""

import random
from collections.abc import Callable, Sequence
from typing import Final

from queue_operator.backends.protocol import (
    Backend,
    CancelInbox,
    JobLogs,
    LogReport,
    ProgressReport,
    ProgressSink,
)
from queue_operator.domain.clock import Clock
from queue_operator.domain.lease import Held
from queue_operator.queue.coalescer import Coalescer

_LOGS: Final = 64
"""A report may be as large as a message; more wait for the next statement."""


class WorkerHints:
    """Progress, log lines and receipts of cancels, in batches, where the store keeps them."""

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

        self._logbook = backend if isinstance(backend, JobLogs) else None
        self._logs: Coalescer[LogReport, None] = Coalescer(
            "storing log lines", self._append, _drop, max_batch=_LOGS, clock=clock, rng=rng
        )

    async def start(self) -> None:
        await self._logs.start()
        await self._progress.start()
        await self._receipts.start()

    async def stop(self) -> None:
        await self._progress.stop()
        await self._receipts.stop()
        await self._logs.stop()

    def report_progress(self, reports: Sequence[ProgressReport]) -> None:
        if self._sink is not None and self._progress.has_room:
            self._progress.offer(reports)

    def confirm_cancels(self, received: Sequence[Held]) -> None:
        if self._inbox is not None and self._receipts.has_room:
            self._receipts.offer(received)

    def ship_logs(self, reports: Sequence[LogReport]) -> None:
        if self._logbook is not None and self._logs.has_room:
            self._logs.offer(reports)

    async def _append(self, reports: Sequence[LogReport]) -> list[None]:
        if self._logbook is not None:
            await self._logbook.append_logs(reports)
        return [None] * len(reports)

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
