"""Why a job does not run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from queue_operator.backends.protocol import Sessions, WorkerSession
from queue_operator.backends.steering import Pause, Place, Places
from queue_operator.domain.job import Job
from queue_operator.domain.states import ELIGIBLE, TERMINAL, JobState
from queue_operator.domain.tags import matches
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
        store = self._queue.backend
        job = await self._queue.get_job(job_id, namespace=namespace)
        place = Place()
        if job.state not in TERMINAL and isinstance(store, Places):
            place = await store.place_of(job_id, namespace=namespace)
        slots = await self._free_slots(job)
        reason, message = _why(job, place, slots, self._now())
        if reason in _HELD_BY_QUOTA and not await self._queue.may_run(namespace):
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

    async def _free_slots(self, job: Job) -> list[int]:
        """Of each worker that would take the job."""
        store = self._queue.backend
        rows = await store.list_sessions(max_age_s=_ALIVE_S) if isinstance(store, Sessions) else []
        # Of streams that end here more is known than their rows tell.
        here = {usage.spec.assignee_id: usage for usage in self._queue.usage()}
        elsewhere = [row for row in rows if row.session_id not in here]
        return [
            *(_free_of_stream(usage) for usage in here.values() if _stream_takes(usage, job)),
            *(_free_of_session(row) for row in elsewhere if _session_takes(row, job)),
        ]


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


def _session_takes(row: WorkerSession, job: Job) -> bool:
    tags = row.tags if row.order.tags is None else row.order.tags
    drains = row.draining or bool(row.order.drain)
    handles = not row.types or job.type in row.types
    return row.namespace == job.namespace and handles and not drains and matches(tags, job.tags)


def _free_of_session(row: WorkerSession) -> int:
    capacity = row.capacity if row.order.capacity is None else row.order.capacity
    return max(capacity - row.busy, 0)


def _free_of_stream(usage: StreamUsage) -> int:
    return max(usage.spec.capacity - usage.busy, 0)


def _stream_takes(usage: StreamUsage, job: Job) -> bool:
    spec = usage.spec
    handles = not spec.types or job.type in {one.type for one in spec.types}
    mine = spec.namespace == job.namespace and not usage.draining
    return mine and handles and matches(spec.tags, job.tags)


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
        return WaitReason.NO_WORKER, "no connected worker handles this type with these tags"
    if not any(slots):
        workers = "the one worker" if len(slots) == 1 else f"{len(slots)} workers"
        return WaitReason.NO_FREE_SLOT, f"all slots of {workers} are taken"
    if place.ahead:
        return WaitReason.IN_LINE, f"{place.ahead} jobs are before it in line"
    return WaitReason.DUE, "nothing is in its way; a worker gets it at any moment"
