"""What workers ask for beside outcomes and leases, and wait for: that a checkpoint or a child is
stored.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from queue_operator.backends.protocol import (
    Backend,
    CheckpointAnswer,
    CheckpointReport,
    Checkpoints,
    Lookup,
    Spawner,
    SpawnRequest,
)
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import InvalidArgument, QueueError
from queue_operator.domain.ids import spawned_id
from queue_operator.domain.job import Job, Submitted
from queue_operator.queue.coalescer import Coalescer
from queue_operator.queue.quotas import Quotas

_CHECKPOINTS: Final = 16
_CHILDREN: Final = 64
"""So many, of at most a mebibyte each, are stored in one statement."""


class WorkerAsks:
    """Asks of all streams, answered after the commit. They wait while the store is away.

    Children count against the quotas as submissions do. `spawned` hears of the jobs that were
    stored, before their parents do.
    """

    def __init__(
        self,
        backend: Backend,
        quotas: Quotas,
        spawned: Callable[[Sequence[Job]], None],
        clock: Clock,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._backend = backend
        self._quotas = quotas
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
        jobs = [_child(request) for request in requests]
        repeats = await self._stored(jobs)
        fresh = [n for n in range(len(jobs)) if n not in repeats]
        # Each is a submission of its own, though they come together.
        async with self._quotas.admitting(
            [jobs[n] for n in fresh], whole=False, on_credit=False
        ) as admission:
            refused = {fresh[n]: error for n, error in admission.refused.items()}
            answers = await self._spawn_but(self._backend, requests, refused)
            admission.answered([answers[n] for n in fresh])
        new = [
            job
            for job, answer in zip(jobs, answers, strict=True)
            if answer.error is None and not answer.duplicate
        ]
        if new:
            self._spawned(new)
        return answers

    async def _spawn_but(
        self,
        spawner: Spawner,
        requests: Sequence[SpawnRequest],
        refused: Mapping[int, QueueError],
    ) -> list[Submitted]:
        kept = {
            n: replace(request, most_depth=self._quotas.spawn_depth(request.namespace))
            for n, request in enumerate(requests)
            if n not in refused
        }
        stored = await spawner.spawn(list(kept.values())) if kept else []
        answers = dict(zip(kept, stored, strict=True))
        for n, error in refused.items():
            answers[n] = Submitted(job_id=requests[n].job.id, error=error)
        return [answers[n] for n in range(len(requests))]

    async def _stored(self, jobs: Sequence[Job]) -> set[int]:
        """The places of those that are stored already, where a quota has a say: a parent that
        runs again gets the children it had, whatever there is room for now.
        """
        places: defaultdict[str, list[int]] = defaultdict(list)
        for n, job in enumerate(jobs):
            if self._quotas.limits(job.namespace) and self._quotas.can_be_stored(job.id):
                places[job.namespace].append(n)
        if not isinstance(self._backend, Lookup):
            return set()
        stored: set[int] = set()
        for namespace, mine in places.items():
            found = await self._backend.look_up([jobs[n].id for n in mine], namespace=namespace)
            stored.update(n for n in mine if jobs[n].id in found)
        return stored


def _child(request: SpawnRequest) -> Job:
    """The job that is to be stored, as far as quotas and streams look at it."""
    made = spawned_id(request.namespace, request.parent_id, request.key)
    return replace(request.job, namespace=request.namespace, id=request.job.id or made)


def _not_kept(report: CheckpointReport, error: Exception) -> CheckpointAnswer:
    return CheckpointAnswer(job_id=report.job_id, namespace=report.namespace, error=_known(error))


def _not_spawned(request: SpawnRequest, error: Exception) -> Submitted:
    return Submitted(job_id=request.job.id, error=_known(error))


def _known(error: Exception) -> QueueError:
    return error if isinstance(error, QueueError) else QueueError(f"not stored: {error}")
