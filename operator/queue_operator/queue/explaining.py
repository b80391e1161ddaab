"""Why a job does not run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from queue_operator.backends.protocol import Sessions, WorkerSession
from queue_operator.backends.steering import Pause, Place, Places
from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.states import ELIGIBLE, TERMINAL, JobState
from queue_operator.domain.tags import matches
from queue_operator.queue.lacking import why_nobody_takes
from queue_operator.queue.protocol import HostedQueue, StreamUsage

_ALIVE_S: Final = 15.0
"""A worker that has been silent for longer takes no job now."""


class WaitReason(StrEnum):
    """The first thing that a job waits for. The last three are no waiting."""

    SUSPENDED = "SUSPENDED"
    DEPENDENCIES = "DEPENDENCIES"
    DELAYED = "DELAYED"
    BACKOFF = "BACKOFF"
    PAUSED = "PAUSED"
    QUOTA = "QUOTA"
    NO_WORKER = "NO_WORKER"
    NO_FREE_SLOT = "NO_FREE_SLOT"
    IN_LINE = "IN_LINE"
    DUE = "DUE"
    EXECUTING = "EXECUTING"
    STOPPING = "STOPPING"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`position` counts the jobs ahead, None for a job that does not stand in line. `workers` are
    the connected ones that would take the job, and `free_slots` theirs.
    """

    job: Job
    reason: WaitReason
    message: str
    position: int | None = None
    position_is_exact: bool = True
    parents: Mapping[str, JobState | None] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()
    workers: int = 0
    free_slots: int = 0


def utc_now() -> datetime:
    """By this machine's clock: good enough to say whether a job is due."""
    return datetime.now(UTC)


class Explainer:
    """Asks the store, and looks at the connected workers."""

    def __init__(
        self,
        queue: HostedQueue,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._queue = queue
        self._now = now

    async def explain(self, job_id: str, namespace: str) -> Explanation:
        """Raises JobNotFound."""
        job = await self._queue.get_job(job_id, namespace=namespace)
        return await self._told(job, await connected(self._queue, max_age_s=_ALIVE_S))

    async def explain_each(self, jobs: Sequence[Job]) -> list[Explanation]:
        """Of jobs at hand; those that are gone meanwhile are left out."""
        workers = await connected(self._queue, max_age_s=_ALIVE_S)
        found = []
        for job in jobs:
            with suppress(JobNotFound):
                found.append(await self._told(job, workers))
        return found

    async def _told(self, job: Job, workers: Sequence[WorkerSession]) -> Explanation:
        store = self._queue.backend
        place = Place()
        if job.state not in TERMINAL and isinstance(store, Places):
            place = await store.place_of(job.id, namespace=job.namespace)
        slots = [_free(worker) for worker in workers if _takes(worker, job)]
        reason, message = _why(job, place, slots, self._now())
        if reason is WaitReason.NO_WORKER:
            message = why_nobody_takes(job, workers)
        if reason in _HELD_BY_QUOTA and not await self._queue.may_run(job.namespace):
            reason, message = WaitReason.QUOTA, "the namespace runs as many jobs as it may"
        stands = reason in _IN_LINE
        return Explanation(
            job=job,
            reason=reason,
            message=message,
            position=place.ahead if stands else None,
            position_is_exact=place.ahead_is_exact,
            parents=place.parents,
            pauses=place.pauses,
            workers=len(slots),
            free_slots=sum(slots),
        )


async def connected(queue: HostedQueue, *, max_age_s: float) -> list[WorkerSession]:
    """The sessions of all namespaces, as they are: what an order changed is in it, and of streams
    that end here what their rows do not tell yet.
    """
    store = queue.backend
    rows = await store.list_sessions(max_age_s=max_age_s) if isinstance(store, Sessions) else []
    here = {usage.spec.assignee_id: usage for usage in queue.usage()}
    found = [_ordered(row) for row in rows if row.session_id not in here]
    known = {row.session_id: row for row in rows}
    return found + [_as_session(usage, known.get(name)) for name, usage in here.items()]


def _ordered(row: WorkerSession) -> WorkerSession:
    order = row.order
    return replace(
        row,
        tags=row.tags if order.tags is None else order.tags,
        capacity=row.capacity if order.capacity is None else order.capacity,
        draining=row.draining or bool(order.drain),
    )


def _as_session(usage: StreamUsage, row: WorkerSession | None) -> WorkerSession:
    spec = usage.spec
    return WorkerSession(
        session_id=spec.assignee_id,
        namespace=spec.namespace,
        worker_name=spec.worker_name,
        pod_uid=spec.pod_uid,
        host=spec.host,
        version=spec.version,
        replica=row.replica if row else "",
        tags=spec.tags,
        types=frozenset(one.type for one in spec.types),
        capacity=spec.capacity,
        busy=usage.busy,
        draining=usage.draining,
        connected_at=row.connected_at if row else None,
        heartbeat_at=row.heartbeat_at if row else None,
    )


_IN_LINE: Final = frozenset(
    {
        WaitReason.PAUSED,
        WaitReason.QUOTA,
        WaitReason.NO_WORKER,
        WaitReason.NO_FREE_SLOT,
        WaitReason.IN_LINE,
        WaitReason.DUE,
    }
)


_HELD_BY_QUOTA: Final = frozenset({WaitReason.IN_LINE, WaitReason.DUE})
"""What would be said without the quota, when nothing else is in the way."""


def _takes(row: WorkerSession, job: Job) -> bool:
    handles = not row.types or job.type in row.types
    mine = row.namespace == job.namespace and not row.draining
    return mine and handles and matches(row.tags, job.tags)


def _free(row: WorkerSession) -> int:
    return max(row.capacity - row.busy, 0)


def _why(job: Job, place: Place, slots: list[int], now: datetime) -> tuple[WaitReason, str]:
    if job.state in TERMINAL:
        return WaitReason.ENDED, "the job has ended"
    if job.state not in ELIGIBLE:
        if job.state is JobState.CANCELLING:
            return WaitReason.STOPPING, f"worker {job.worker_name!r} was asked to stop the job"
        return WaitReason.EXECUTING, f"worker {job.worker_name!r} runs the job"
    if job.suspended:
        return WaitReason.SUSPENDED, _why_suspended(job)
    if job.waiting_for_dependencies:
        left = sum(state is None for state in place.parents.values())
        return WaitReason.DEPENDENCIES, f"the job waits for {left} of the jobs it depends on"
    if job.eligible_at is not None and job.eligible_at > now:
        if job.attempt or job.retry_count:
            return WaitReason.BACKOFF, "the job failed, and its next attempt is not due yet"
        return WaitReason.DELAYED, "the job is not due yet"
    return _why_in_line(place, slots)


def _why_suspended(job: Job) -> str:
    if job.resource is not None:
        return f"the job is suspended; set spec.suspend of QueueJob {job.resource.name!r} to false"
    how = f"POST /v1/jobs/{job.id}/resume, or `queue-operator resume --job {job.id}`"
    return f"the job is suspended until somebody resumes it: {how}"


def _why_in_line(place: Place, slots: list[int]) -> tuple[WaitReason, str]:
    if place.pauses:
        what = "the namespace" if not place.pauses[0].type else "the job's type"
        return WaitReason.PAUSED, f"{what} is paused: {place.pauses[0].reason or 'no reason given'}"
    if not slots:
        return WaitReason.NO_WORKER, "no connected worker takes it"
    if not any(slots):
        workers = "the one worker" if len(slots) == 1 else f"{len(slots)} workers"
        return WaitReason.NO_FREE_SLOT, f"all slots of {workers} are taken"
    if place.ahead:
        ahead = "1 job is" if place.ahead == 1 else f"{place.ahead:,} jobs are"
        return WaitReason.IN_LINE, f"{ahead} before it in line"
    return WaitReason.DUE, "nothing is in its way; a worker gets it at any moment"
