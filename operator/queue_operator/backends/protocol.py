"""The storage contract: `backend-api.md` in Python, with what the system adds.

`Backend` is the core every store implements. The other protocols are capabilities that
only some stores have; code that needs one asks for it by type.

Rules that hold for every method: a wrong argument raises InvalidArgument naming the field
and writes nothing; a store that cannot be reached raises Unavailable; every transition is
guarded by id, state and token, and follows the table in `domain.states`. `freed` maps
count slots given back by assignee id.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from queue_operator.backends.lookups import (
    COUNT_BOUND,
    DELETE,
    EVENT_SCHEMA_VERSION,
    Attempt,
    EventBatch,
    EventLog,
    FailurePage,
    Failures,
    FailureSearch,
    History,
    JobHistory,
    JobPage,
    JobSearch,
    Lookup,
    PrunableLog,
    Search,
    SearchOrder,
    TransitionRecord,
)
from queue_operator.backends.news import EVERYTHING, Kind, Kinds, News, Topic
from queue_operator.backends.plane import Checkpoints, JobLogs, Spawner
from queue_operator.backends.statistics import (
    MAX_TIME_RANGE_S,
    Breakdown,
    Counts,
    Latency,
    Statistics,
    StatsWindow,
    WindowStats,
)
from queue_operator.backends.steering import (
    AHEAD_BOUND,
    Pause,
    Pauses,
    Place,
    Places,
    Suspensions,
    Usage,
    Usages,
)
from queue_operator.backends.worker_sessions import (
    SessionNews,
    SessionOrder,
    SessionRoll,
    Sessions,
    WorkerSession,
)
from queue_operator.domain.errors import QueueError, Unavailable
from queue_operator.domain.job import (
    DEFAULT_NAMESPACE,
    Assignment,
    Cancelled,
    Demand,
    Job,
    JobStats,
    Progress,
    ResourceRef,
    Submitted,
    TypeDefaults,
)
from queue_operator.domain.lease import Held, LeaseAnswer, Leased, Lost
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.running import (
    LOG_ATTEMPTS,
    LOG_BYTES,
    LOG_LINES,
    AttemptLog,
    CheckpointAnswer,
    CheckpointReport,
    LogLine,
    LogReport,
    SpawnRequest,
)
from queue_operator.domain.shown import ShownJob
from queue_operator.domain.states import JobState

Freed = Mapping[str, int]


class KeyHeld(Unavailable):
    """Somebody else is storing a job under this key right now; it is not known yet who has it."""

    def __init__(self, key: str) -> None:
        super().__init__(f"a job under the idempotency key {key!r} is being stored; call again")


@runtime_checkable
class Backend(Protocol):
    """The core contract. All methods are safe to call concurrently: on one event loop, and where
    a store does not say otherwise from threads with loops of their own.

    A call that is cancelled has happened as a whole or not at all, and a repeat finds what has;
    only claims are undone, see `dequeue_jobs`.
    """

    # Submission

    async def enqueue_job(self, job: Job) -> str:
        """Stores one job in INITIAL_PENDING and gives its id (EnqueueJob).

        The id given is the first job's where the idempotency key is taken by equal content.
        Raises DuplicateJob when the id exists in the namespace, KeyConflict when the key
        belongs to other content, InvalidArgument for a parent that does not exist.
        """
        ...

    async def enqueue_jobs(self, jobs: Sequence[Job]) -> list[str]:
        """Stores all jobs or none and gives their ids in order (EnqueueJobs).

        Raises as `enqueue_job`; a field is named `jobs[3].type`, a DuplicateJob has all
        indexes. Jobs may depend on others of the batch; a cycle is refused.
        """
        ...

    async def submit(
        self, jobs: Sequence[Job], *, atomic: bool = True, patient: bool = True
    ) -> list[Submitted]:
        """As `enqueue_jobs`, with an answer per job in order. Not `atomic`, what is wrong with
        one job is its answer's `error` and the others are stored. Neither atomic nor `patient`,
        jobs of many callers who do not know of each other are stored: none waits for a key that
        is another's, which a store may answer with KeyHeld.
        """
        ...

    # Assignment

    async def dequeue_jobs(
        self,
        assignee_id: str,
        tags: Collection[str],
        limit: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        lease_ttl_s: float | None = None,
    ) -> list[Job]:
        """Claims up to `limit` eligible jobs, oldest first (DequeueJobs). Each has its `token`.

        Without a TTL the lease never expires. What was claimed for a caller who was cancelled,
        or is told of an error, goes back as RELEASE does it, at the latest before `close` returns.
        Of a process that is killed it does not: `leased` tells what its assignee holds then.
        """
        ...

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        """Claims for many streams at once, fairly among those with equal filters.

        `defaults` by job type resolve what a submitter left out. Where nobody listens, a claim that
        finds nothing makes delayed jobs due, and looks again. For whom nobody can tell of them
        jobs go back as with `dequeue_jobs`; where the answer was lost their leases run out.
        """
        ...

    # Outcomes

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Applies outcomes of mixed kinds, and answers in the same order.

        One bad outcome does not disturb the others. Those of one job apply in their order, and
        so do those of jobs that wait for each other: what comes of one decides about the next.
        """
        ...

    async def complete_job(
        self,
        job_id: str,
        result: bytes,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        """COMPLETE (CompleteJob). Raises JobNotFound, StaleLease or InvalidTransition."""
        ...

    async def fail_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        """FAIL, or EXHAUST when no attempt is left (FailJob). `error_msg` is not empty."""
        ...

    async def stop_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        """STOP (StopJob)."""
        ...

    async def stop_job_with_retry(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        """STOP_WITH_RETRY (StopJobWithRetry)."""
        ...

    async def mark_job_unknown_stopped(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        """MARK_UNKNOWN_STOPPED (MarkJobUnknownStopped); a no-op where it already is so."""
        ...

    async def update_job_status(
        self,
        job_id: str,
        status: JobState,
        result: bytes | None = None,
        error_msg: str = "",
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> Freed:
        """A change to `status` that some row of the state table makes, but never into RUNNING
        (UpdateJobStatus). It counts no retry; None and "" leave result and message alone. A slot
        is freed only where `status` is terminal: else the worker may still be at it.

        FAILED_RETRY is another attempt: where none was left, `max_attempts` grows by one. With
        the token of an attempt that ended in `status` already, the call is a repeat, as after
        a lost answer: it changes nothing and frees nothing.
        """
        ...

    # Cancellation

    async def cancel_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        force: bool = False,
        reason: str = "",
    ) -> Cancelled:
        """CANCEL for the union of both selections (CancelJobs). Both empty is an error."""
        ...

    async def acknowledge_cancellation(
        self,
        job_id: str,
        was_executing: bool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None:
        """ACK_EXECUTING or ACK_UNKNOWN (AcknowledgeCancellation)."""
        ...

    # Workers and leases

    async def mark_worker_unresponsive(self, assignee_id: str) -> Freed:
        """LOSE for every job of the assignee (MarkWorkerUnresponsive)."""
        ...

    async def extend_leases(self, held: Sequence[Held], *, lease_ttl_s: float) -> list[LeaseAnswer]:
        """Renews what is still current and says what became of the rest, in one statement."""
        ...

    async def leased(self, assignee_ids: Collection[str]) -> list[Leased]:
        """What RUNNING and CANCELLING jobs these assignees have, whoever claimed for them. A
        lease that ran out counts until it is swept.
        """
        ...

    async def expire_leases(self, *, lease_ttl_s: float, limit: int = 1000) -> list[Lost]:
        """LOSE for jobs whose lease ran out, execution timeouts, overdue forced cancels and
        lost jobs with no attempt left. Safe on every replica at once. After a gap of more than
        one TTL without sweeps (an outage) leases get one TTL more: a later sweep finds them lost.
        """
        ...

    # Queries

    async def get_job(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Job:
        """The whole record (GetJob). Raises JobNotFound."""
        ...

    async def get_job_stats(
        self, tags: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> JobStats:
        """Counts of the jobs that carry all `tags` (GetJobStats)."""
        ...

    # Maintenance

    async def reset_running_jobs(self, *, namespace: str | None = None) -> Freed:
        """LOSE for every RUNNING and CANCELLING job (ResetRunningJobs). Administrators only."""
        ...

    async def cleanup_expired_jobs(self, ttl_s: float, *, namespace: str | None = None) -> int:
        """Deletes COMPLETED jobs finalized more than `ttl_s` ago, all or none, and says how many
        (CleanupExpiredJobs).
        """
        ...

    async def delete_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> int:
        """Deletes terminal jobs, all or none (DeleteJobs). InvalidTransition if one is live."""
        ...

    async def ping(self) -> None:
        """Raises Unavailable when the store does not answer."""
        ...

    async def close(self) -> None:
        """Gives back what was claimed for nobody, and every connection; the backend is unusable
        afterwards (Close).
        """
        ...


@runtime_checkable
class Signals(Protocol):
    """Wake-ups between processes over the store's own tables (seen within 250 ms), with a
    notification as a faster hint. Announcements are made by the methods that write; `listen`
    never needs polling by the caller.
    """

    def listen(self) -> AsyncIterator[News]:
        """Yields what was announced since the last yield; reconnects by itself, and then yields
        all topics once.
        """
        ...


@runtime_checkable
class PromptSignals(Signals, Protocol):
    """Signals whose listeners hear at once, and once, what calls of this very backend announce:
    whoever listens needs no other way to learn what this process did.
    """

    hears_itself: bool


@runtime_checkable
class Glance(Protocol):
    """A cheap look whether it is worth to claim."""

    async def eligible_for(self, demands: Sequence[Demand]) -> list[bool]:
        """For each demand, whether a job that it selects is eligible. One statement for all."""
        ...


@runtime_checkable
class CancelInbox(Protocol):
    """Cancel requests for assignees, whichever process asked for them."""

    async def pending_cancels(self, assignee_ids: Collection[str]) -> Cancelled:
        """Jobs in CANCELLING of these assignees, as `requests`."""
        ...

    async def confirm_cancels(self, received: Sequence[Held]) -> None:
        """The workers have seen these cancel requests; one that is not forced then waits for
        the handler instead of timing out.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorEntry:
    """A job's newest state, to be written to the status of its resource. `sequence` is for
    `acknowledge_mirrors`.
    """

    sequence: int
    job: ShownJob


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """What became of resources, by uid. Those in none of these are stored already.

    `stands_for` gives the job that has the resource's idempotency key, `ended` how the job ended
    that the resource once had, `refused` why it will never have one.
    """

    new: Collection[str] = ()
    stands_for: Mapping[str, str] = field(default_factory=dict)
    ended: Mapping[str, ShownJob] = field(default_factory=dict)
    refused: Mapping[str, QueueError] = field(default_factory=dict)


@runtime_checkable
class ResourceMirror(Protocol):
    """What the controller needs: intake of resources and a feed of their jobs' changes."""

    async def queue_uid(self) -> str:
        """What tells this store from every other, a copy of it included."""
        ...

    async def take_in(self, jobs: Sequence[Job]) -> TakenIn:
        """Stores jobs whose id is their resource's uid; those already stored, and those that were
        stored and deleted, are left alone. One at fault does not disturb the rest, unless it does
        not even pass validation.
        """
        ...

    async def taken_in(self, uids: Collection[str]) -> Collection[str]:
        """Those of which a job is stored, finished or not."""
        ...

    async def shown_jobs(
        self, names: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], ShownJob]:
        """Jobs by namespace and id, whether or not they have a resource; those not stored are left
        out.
        """
        ...

    async def set_priorities(
        self, wanted: Mapping[tuple[str, str], Priority]
    ) -> Collection[tuple[str, str]]:
        """Moves waiting jobs, by namespace and id, as if they had been submitted so. Gives those
        that run and have another priority: they keep it, and are to be asked for again. What has
        ended, or is not stored, is left alone.
        """
        ...

    async def detach(self, uids: Collection[str]) -> None:
        """The resources are gone: finished jobs stay, unfinished ones are cancelled (forced)."""
        ...

    async def attached(self, cluster_uid: str) -> list[tuple[str, str]]:
        """(namespace, uid) of every attached job of this cluster that has not finished."""
        ...

    async def pending_mirrors(self, limit: int = 500) -> list[MirrorEntry]:
        """The oldest unacknowledged changes, one per job, with the job's newest state."""
        ...

    async def acknowledge_mirrors(self, sequences: Collection[int]) -> None:
        """These changes have reached their resource; later changes of the same job stay."""
        ...


@runtime_checkable
class ProgressSink(Protocol):
    """Progress of running attempts; the newest per job wins."""

    async def record_progress(self, reports: Sequence["ProgressReport"]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """Ignored when `token` is not current. `progress.percent` is 0 to 100. `assignee_id` as in
    Outcome.
    """

    job_id: str
    token: str
    namespace: str = DEFAULT_NAMESPACE
    assignee_id: str | None = None
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """One cached roll-up for metrics: jobs by namespace, type and state, and the age in
    seconds of the oldest eligible job by namespace and type. `waiting_lanes` is how many
    combinations of namespace, type, priority and tags have waiting jobs; None where it costs
    nothing, and nobody counts it.
    """

    jobs: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    oldest_age_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    waiting_lanes: int | None = None


@runtime_checkable
class Depths(Protocol):
    """Counts for gauges, without scanning per job."""

    async def queue_depth(self) -> QueueDepth: ...


__all__ = [
    "AHEAD_BOUND",
    "COUNT_BOUND",
    "DELETE",
    "EVENT_SCHEMA_VERSION",
    "EVERYTHING",
    "LOG_ATTEMPTS",
    "LOG_BYTES",
    "LOG_LINES",
    "MAX_TIME_RANGE_S",
    "Attempt",
    "AttemptLog",
    "Backend",
    "Breakdown",
    "CancelInbox",
    "CheckpointAnswer",
    "CheckpointReport",
    "Checkpoints",
    "Counts",
    "Depths",
    "EventBatch",
    "EventLog",
    "FailurePage",
    "FailureSearch",
    "Failures",
    "Freed",
    "Glance",
    "History",
    "JobHistory",
    "JobLogs",
    "JobPage",
    "JobSearch",
    "Kind",
    "Kinds",
    "Latency",
    "LogLine",
    "LogReport",
    "Lookup",
    "MirrorEntry",
    "News",
    "Pause",
    "Pauses",
    "Place",
    "Places",
    "ProgressReport",
    "ProgressSink",
    "PromptSignals",
    "PrunableLog",
    "QueueDepth",
    "ResourceMirror",
    "ResourceRef",
    "Search",
    "SearchOrder",
    "SessionNews",
    "SessionOrder",
    "SessionRoll",
    "Sessions",
    "ShownJob",
    "Signals",
    "SpawnRequest",
    "Spawner",
    "Statistics",
    "StatsWindow",
    "Suspensions",
    "TakenIn",
    "Topic",
    "TransitionRecord",
    "Usage",
    "Usages",
    "WindowStats",
    "WorkerSession",
]
