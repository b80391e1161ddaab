"""The queue as its callers see it: `queue-api.md` in Python, plus the worker's stream."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from queue_operator.backends.protocol import ProgressReport
from queue_operator.domain.job import (
    DEFAULT_NAMESPACE,
    Assignment,
    Cancelled,
    CancelRequest,
    Job,
    JobStats,
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
    """What one worker's stream asks for. No `types`: any type."""

    assignee_id: str
    capacity: int
    namespace: str = DEFAULT_NAMESPACE
    tags: frozenset[str] = frozenset()
    types: tuple[HandlerType, ...] = ()
    worker_name: str = ""
    host: str = ""
    pod_uid: str = ""
    version: str = ""


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
        """Waits for something to push; None when the stream or the queue is closed."""
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

    def drain(self) -> None:
        """No more jobs for this stream; those not handed out yet go back to the queue."""
        ...

    async def close(self) -> None:
        """Ends the stream; jobs never written to the transport are RELEASEd."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUsage:
    """Slots of one open stream, for metrics and QueueWorker status."""

    spec: StreamSpec
    busy: int
    draining: bool
    defaults: Mapping[str, TypeDefaults] = field(default_factory=dict)


class Queue(Protocol):
    """Every method of `queue-api.md`. Errors are those of the Backend of the same name."""

    async def enqueue_job(self, job: Job) -> str: ...

    async def enqueue_jobs(self, jobs: Sequence[Job]) -> list[str]: ...

    def stream_jobs(
        self,
        assignee_id: str,
        tags: Collection[str],
        max_assigned_jobs: int,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> AsyncGenerator[list[Job], None]:
        """Batches of jobs as they are assigned (StreamJobs); ends when the queue closes."""
        ...

    async def open_stream(self, spec: StreamSpec, held: Sequence[Held] = ()) -> Stream:
        """The worker plane's stream. An open one of the same assignee ends: the newer wins.

        `held` is what the worker still runs or has an unacknowledged outcome of, after a
        reconnect: those keep their slots and their leases are renewed; other jobs that the
        earlier connection had delivered are RELEASEd if it was to this process, else they
        come back when their lease ends. Raises InvalidArgument for a bad spec, Forbidden
        when the assignee id belongs to another worker.
        """
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

    def usage(self) -> list[StreamUsage]:
        """Slots of every open stream of this process."""
        ...

    async def ping(self) -> None:
        """Raises Unavailable when the store does not answer."""
        ...

    async def close(self) -> None:
        """Ends all streams, then the backend (Close)."""
        ...
