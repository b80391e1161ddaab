"""The queue as its callers see it: `queue-api.md` in Python, plus the worker's stream."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from queue_operator.backends.protocol import (
    Backend,
    CheckpointAnswer,
    CheckpointReport,
    LogReport,
    ProgressReport,
    SpawnRequest,
)
from queue_operator.domain.job import (
    DEFAULT_NAMESPACE,
    Assignment,
    Cancelled,
    CancelRequest,
    Job,
    JobStats,
    Submitted,
    TypeDefaults,
)
from queue_operator.domain.lease import Held, LeaseAnswer
from queue_operator.domain.outcome import Outcome, Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerType:
    """A job type a worker handles. `concurrency` None: no limit below the capacity."""

    type: str
    concurrency: int | None = None
    defaults: TypeDefaults = field(default_factory=TypeDefaults)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """What one worker's stream asks for. No `types`: any type. `process` is new with every start of
    the worker; without it each stream is taken for another process's.
    """

    assignee_id: str
    capacity: int
    namespace: str = DEFAULT_NAMESPACE
    tags: frozenset[str] = frozenset()
    types: tuple[HandlerType, ...] = ()
    worker_name: str = ""
    host: str = ""
    pod_uid: str = ""
    version: str = ""
    process: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """What the queue has for a worker: jobs to run, running jobs to stop."""

    assignments: tuple[Assignment, ...] = ()
    cancels: tuple[CancelRequest, ...] = ()


class EndReason(StrEnum):
    """Why a stream ended, for whoever has to tell the worker."""

    CLOSED = "closed by its owner"
    REPLACED = "replaced by a newer connection of the same session"
    QUEUE_CLOSED = "the queue is shutting down"
    FAILED = "the store refuses what the stream asks for"
    DISCONNECTED = "its QueueWorker was deleted"
    BROKEN = "the connection broke without a goodbye"


class Stream(Protocol):
    """One worker's open stream. Capacity is taken when a job is assigned and given back on
    each freeing transition, wherever it happened.
    """

    @property
    def spec(self) -> StreamSpec: ...

    @property
    def adopted(self) -> tuple[LeaseAnswer, ...]:
        """What became of the jobs the worker brought along when the stream was opened."""
        ...

    @property
    def end_reason(self) -> EndReason | None:
        """None while the stream is open."""
        ...

    async def next(self) -> Push | None:
        """Waits for something to push; None when the stream or the queue is closed.

        Raises the error that ended the stream. A step that is cancelled loses nothing.
        """
        ...

    def delivered(self, push: Push) -> None:
        """The push was written to the transport: its jobs are the worker's from now on."""
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Settles outcomes in the same statement as those of other streams, after commit.

        Waits while the store is away; raises Unavailable when the queue stops before.
        """
        ...

    async def heartbeat(self, held: Sequence[Held]) -> list[LeaseAnswer]:
        """Renews the leases of the jobs the worker says it holds.

        Of a draining worker these are all it will ever finish: others assigned to it are
        RELEASEd.
        """
        ...

    def confirm_cancels(self, received: Sequence[Held]) -> None:
        """The worker has seen the cancel requests for these jobs."""
        ...

    def report_progress(self, reports: Sequence[ProgressReport]) -> None:
        """Stores progress, soon and in batches; ignored where the store keeps none."""
        ...

    async def checkpoint(self, reports: Sequence[CheckpointReport]) -> list[CheckpointAnswer]:
        """Stores checkpoints, in the same statement as those of other streams, after commit.

        Waits while the store is away; raises Unavailable when the queue stops before.
        """
        ...

    def retype(self, types: Sequence[HandlerType]) -> None:
        """The worker handles these types from now on; jobs it has already are not touched."""
        ...

    async def spawn(self, requests: Sequence[SpawnRequest]) -> list[Submitted]:
        """Stores children of running jobs, likewise."""
        ...

    def ship_logs(self, reports: Sequence[LogReport]) -> None:
        """Stores what handlers logged, soon and in batches; ignored where the store keeps none,
        and while it does not keep up.
        """
        ...

    def drain(self) -> None:
        """No more jobs for this stream; those not handed out yet go back to the queue."""
        ...

    async def close(self, reason: EndReason = EndReason.CLOSED) -> None:
        """Ends the stream; jobs never written to the transport are RELEASEd."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUsage:
    """Slots of one open stream, for metrics and QueueWorker status."""

    spec: StreamSpec
    busy: int
    draining: bool
    defaults: Mapping[str, TypeDefaults] = field(default_factory=dict)


class JobBatches(Protocol):
    """What StreamJobs gives: batches of jobs as they are assigned. Ends when the queue closes.

    It asks for jobs from its first step on, or from `async with`. A step that is cancelled or
    runs into a timeout neither ends it nor loses a batch. Each job carries its lease's `token`.
    """

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> list[Job]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    async def aclose(self) -> None:
        """Ends it; jobs that no step has given out go back to the queue at once."""
        ...


class Queue(Protocol):
    """Every method of `queue-api.md`, in this process or through a client. Errors are those of
    the Backend of the same name; after `close` every method raises Unavailable.
    """

    async def enqueue_job(self, job: Job) -> str: ...

    async def enqueue_jobs(self, jobs: Sequence[Job]) -> list[str]: ...

    def stream_jobs(
        self,
        assignee_id: str,
        tags: Collection[str],
        max_assigned_jobs: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> JobBatches:
        """Batches of jobs as they are assigned (StreamJobs). Raises InvalidArgument at once."""
        ...

    async def complete_job(
        self,
        job_id: str,
        result: bytes,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None: ...

    async def fail_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None: ...

    async def stop_job(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None: ...

    async def stop_job_with_retry(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None: ...

    async def mark_job_unknown_stopped(
        self,
        job_id: str,
        error_msg: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None: ...

    async def cancel_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
        force: bool = False,
        reason: str = "",
    ) -> Cancelled: ...

    async def suspend_jobs(
        self, job_ids: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> list[str]:
        """None of them is assigned any more until it is resumed; one that runs goes on, and waits
        if it is to be tried again. Gives the ids that are left alone: there is no such job, or it
        has ended.

        Raises InvalidArgument where one is the job of a custom resource, whose spec says whether
        it is suspended; nothing is changed then.
        """
        ...

    async def resume_jobs(
        self, job_ids: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> list[str]:
        """Ends that, likewise. Each has the place that it had."""
        ...

    async def acknowledge_cancellation(
        self,
        job_id: str,
        was_executing: bool,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        token: str | None = None,
    ) -> None: ...

    async def mark_worker_unresponsive(self, assignee_id: str) -> None: ...

    async def get_job(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Job: ...

    async def get_job_stats(
        self, tags: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> JobStats: ...

    async def cleanup_expired_jobs(self, ttl_s: float, *, namespace: str | None = None) -> int: ...

    async def reset_running_jobs(self, *, namespace: str | None = None) -> None: ...

    async def delete_jobs(
        self,
        tags: Collection[str],
        job_ids: Collection[str],
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> int: ...

    async def close(self) -> None:
        """Ends all streams, then the backend (Close)."""
        ...


class StreamHost(Protocol):
    """Where workers' streams end: the process that has the store."""

    async def open_stream(self, spec: StreamSpec, held: Sequence[Held] = ()) -> Stream:
        """The worker plane's stream. One that the same worker has open, here or on another
        replica, ends: the newer wins.

        `held` is what the worker still runs or has an unacknowledged outcome of, after a
        reconnect: those keep their slots and their leases are renewed. Other jobs that the store
        counts as its are RELEASEd, wherever the earlier connection was, if the process is the same
        as that one's: they never reached it. If not, they are lost, and their attempts count: a
        handler may have begun them. Raises InvalidArgument for a bad spec, Forbidden when the
        assignee id belongs to another worker or was ended.
        """
        ...

    async def give_back(self, held: Sequence[Held]) -> None:
        """Jobs that came through a stream and that nobody began are eligible again, and their
        attempt does not count.
        """
        ...

    def usage(self) -> list[StreamUsage]:
        """Slots of every open stream of this process."""
        ...

    async def ping(self) -> None:
        """Raises Unavailable when the store does not answer."""
        ...


class HostedQueue(Queue, StreamHost, Protocol):
    """The queue of this process, with what its doors need beyond `queue-api.md`."""

    @property
    def backend(self) -> Backend:
        """The store, for what it alone can be asked; what changes jobs goes through the queue."""
        ...

    async def submit(
        self, jobs: Sequence[Job], *, atomic: bool = True, patient: bool = True
    ) -> list[Submitted]:
        """As `Backend.submit`."""
        ...

    async def may_run(self, namespace: str) -> bool:
        """Whether its quota of running jobs leaves room for one more."""
        ...

    async def retry_jobs(self, retries: Sequence[Outcome]) -> list[Settled]:
        """Settles outcomes of RETRY_NOW in one transaction; answers in order."""
        ...

    def look(self) -> None:
        """The store was told something by which jobs may be claimed: streams look at once."""
        ...
