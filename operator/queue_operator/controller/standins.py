"""QueueJobs that stand for a job of somebody else: the one that has their idempotency key."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from queue_operator.controller.backlog import Version, Write, version_of
from queue_operator.controller.looking import look_while
from queue_operator.controller.ports import ControllerBackend
from queue_operator.controller.projection import StatusWriter
from queue_operator.crd.conditions import job_deleted
from queue_operator.domain.clock import Clock
from queue_operator.domain.job import ResourceRef
from queue_operator.domain.shown import ShownJob
from queue_operator.domain.states import is_terminal

_STEP: Final = 500


@dataclass(slots=True)
class _StandIn:
    """`shown` is what its status was last given: version and generation."""

    namespace: str
    resource: ResourceRef
    job_id: str
    shown: tuple[Version, int] | None = None


class StandIns:
    """Looks at their jobs now and then. Only a cache: after a restart the watch shows all that have
    not ended again.
    """

    def __init__(self, backend: ControllerBackend, writer: StatusWriter, clock: Clock) -> None:
        self._backend = backend
        self._writer = writer
        self._clock = clock
        self._known: dict[str, _StandIn] = {}
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def put(self, namespace: str, resource: ResourceRef, job_id: str) -> None:
        known = self._known.get(resource.uid)
        shown = known.shown if known and known.job_id == job_id else None
        self._known[resource.uid] = _StandIn(namespace, resource, job_id, shown)
        self._some.set()

    def drop(self, uid: str) -> bool:
        """It is gone, or has ended. False when it was none."""
        found = self._known.pop(uid, None) is not None
        if not self._known:
            self._some.clear()
        return found

    async def run(self) -> None:
        await look_while(self._some, self.once, "QueueJobs that stand for others", self._clock)

    async def once(self) -> None:
        """Raises Unavailable while the database is away."""
        for some in _steps(list(self._known.values())):
            names = {(one.namespace, one.job_id) for one in some}
            jobs = await self._backend.shown_jobs(names)
            for one in some:
                self._tell(one, jobs.get((one.namespace, one.job_id)))

    def _tell(self, one: _StandIn, job: ShownJob | None) -> None:
        uid, generation = one.resource.uid, one.resource.generation
        if self._known.get(uid) is not one:
            return
        if job is None:
            status = job_deleted(datetime.now(UTC), generation)
            self._writer.put(Write(one.namespace, one.resource, status=status))
            self.drop(uid)
        elif one.shown != (version_of(job), generation):
            shown = replace(job, resource=one.resource)
            self._writer.put(Write(one.namespace, one.resource, job=shown))
            one.shown = (version_of(job), generation)
            if is_terminal(job.state):
                self.drop(uid)


def _steps(found: Sequence[_StandIn]) -> Sequence[Sequence[_StandIn]]:
    return [found[start : start + _STEP] for start in range(0, len(found), _STEP)]
