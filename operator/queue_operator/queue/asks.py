"""What workers ask for beside outcomes and leases, and wait for: that a checkpoint or a child is
stored.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from queue_operator.backends.protocol import (
    Backend,
    CheckpointAnswer,
    CheckpointReport,
    Checkpoints,
    Spawner,
    SpawnRequest,
)
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import InvalidArgument, QueueError
from queue_operator.domain.job import Job, Submitted
from queue_operator.queue.coalescer import Coalescer

_CHECKPOINTS: Final = 16
_CHILDREN: Final = 64
"""So many, of at most a mebibyte each, are stored in one statement."""


class WorkerAsks:
    """Asks of all streams, answered after the commit. They wait while the store is away.

    `spawned` hears of the jobs that were stored, before their parents do.
    """

    def __init__(
        self,
        backend: Backend,
        spawned: Callable[[Sequence[Job]], None],
        clock: Clock,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._backend = backend
        self._spawned = spawned
        self._checkpoints: Coalescer[CheckpointReport, CheckpointAnswer] = Coalescer(
            "storing checkpoints",
            self._store,
            _not_kept,
            max_batch=_CHECKPOINTS,
            clock=clock,
            rng=rng,
        )
        self._children: Coalescer[SpawnRequest, Submitted] = Coalescer(
            "storing children",
            self._spawn,
            _not_spawned,
            max_batch=_CHILDREN,
            clock=clock,
            rng=rng,
        )

    async def start(self) -> None:
        await self._checkpoints.start()
        await self._children.start()

    async def stop(self) -> None:
        await self._checkpoints.stop()
        await self._children.stop()

    async def checkpoint(self, reports: Sequence[CheckpointReport]) -> list[CheckpointAnswer]:
        """Answers in order. Raises Unavailable when the queue stops before they are stored."""
        return await self._checkpoints.submit(reports)

    async def spawn(self, requests: Sequence[SpawnRequest]) -> list[Submitted]:
        """Answers in order. Raises Unavailable when the queue stops before they are stored."""
        return await self._children.submit(requests)

    async def _store(self, reports: Sequence[CheckpointReport]) -> Sequence[CheckpointAnswer]:
        if not isinstance(self._backend, Checkpoints):
            raise InvalidArgument("checkpoint", "this store keeps none")
        return await self._backend.store_checkpoints(reports)

    async def _spawn(self, requests: Sequence[SpawnRequest]) -> Sequence[Submitted]:
        if not isinstance(self._backend, Spawner):
            raise InvalidArgument("job", "this store takes no children")
        answers = await self._backend.spawn(requests)
        new = [
            replace(request.job, namespace=request.namespace)
            for request, answer in zip(requests, answers, strict=True)
            if answer.error is None and not answer.duplicate
        ]
        if new:
            self._spawned(new)
        return answers


def _not_kept(report: CheckpointReport, error: Exception) -> CheckpointAnswer:
    return CheckpointAnswer(job_id=report.job_id, namespace=report.namespace, error=_known(error))


def _not_spawned(request: SpawnRequest, error: Exception) -> Submitted:
    return Submitted(job_id=request.job.id, error=_known(error))


def _known(error: Exception) -> QueueError:
    return error if isinstance(error, QueueError) else QueueError(f"not stored: {error}")
