"""What the doors for people ask of the queue, beyond `queue-api.md`."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar

from queue_operator.backends.protocol import (
    AttemptLog,
    FailurePage,
    Failures,
    FailureSearch,
    History,
    JobHistory,
    JobLogs,
    JobPage,
    JobSearch,
    Search,
)
from queue_operator.backends.statistics import Statistics, StatsWindow, WindowStats
from queue_operator.backends.steering import Pause, Pauses
from queue_operator.backends.webhooks import Webhooks
from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.job import Cancelled, Job, JobStats, Submitted
from queue_operator.domain.log_cursor import FROM_THE_START, LogCursor
from queue_operator.domain.outcome import Settled
from queue_operator.queue.bulk import (
    BulkAnswer,
    Cancel,
    Delete,
    Gone,
    Retry,
    RetryOptions,
    Selection,
    Store,
    change_jobs,
    retry_of,
)
from queue_operator.queue.explaining import Explainer, Explanation, utc_now
from queue_operator.queue.gathering import Gathering
from queue_operator.queue.protocol import HostedQueue
from queue_operator.queue.suspending import refuse_of_resource

C = TypeVar("C")

SUSPEND: Final = "SUSPEND"
RESUME: Final = "RESUME"
"""What an InvalidTransition says that was asked for: neither is a transition."""
MOST_PAUSES: Final = 1000
"""Of one namespace."""


class JobOperations(Protocol):
    """Jobs as their owners see them. Errors are those of the Backend; InvalidArgument where the
    store lacks what is asked for.
    """

    async def submit_one(self, job: Job) -> Submitted:
        """Stores a job, in one call with those of concurrent callers. Raises its error."""
        ...

    async def submit(self, jobs: Sequence[Job], *, atomic: bool) -> list[Submitted]: ...

    async def get_job(self, job_id: str, namespace: str) -> Job: ...

    async def look_at(self, job_id: str, namespace: str) -> Job:
        """The same without payload and result, which may be large."""
        ...

    async def get_history(self, job_id: str, namespace: str) -> JobHistory: ...

    async def get_log(
        self, job_id: str, namespace: str, after: LogCursor = FROM_THE_START
    ) -> list[AttemptLog]: ...

    async def explain(self, job_id: str, namespace: str) -> Explanation: ...

    async def search_jobs(self, search: JobSearch) -> JobPage: ...

    async def search_failures(self, search: FailureSearch) -> FailurePage: ...

    async def cancel(
        self, job_id: str, namespace: str, *, force: bool, reason: str
    ) -> Cancelled: ...

    async def cancel_many(
        self,
        chosen: Selection[JobSearch],
        *,
        force: bool,
        reason: str,
        dry_run: bool,
        gone: Gone,
        answer: BulkAnswer | None = None,
    ) -> BulkAnswer: ...

    async def suspend(self, job_id: str, namespace: str, *, on: bool) -> Job:
        """Suspends a job, or resumes it; gives it as it is then, as `look_at` does. Raises
        InvalidTransition for one that has ended, InvalidArgument for one of a custom resource,
        whose spec says whether it is suspended.
        """
        ...

    async def retry(self, job_id: str, namespace: str, options: RetryOptions) -> Settled: ...

    async def retry_many(
        self,
        chosen: Selection[FailureSearch],
        options: RetryOptions,
        *,
        dry_run: bool,
        gone: Gone,
        answer: BulkAnswer | None = None,
    ) -> BulkAnswer: ...

    async def delete(self, job_id: str, namespace: str) -> bool:
        """False where there is no such job. Raises InvalidTransition while it has not ended."""
        ...

    async def delete_many(
        self,
        chosen: Selection[JobSearch],
        *,
        dry_run: bool,
        gone: Gone,
        answer: BulkAnswer | None = None,
    ) -> BulkAnswer: ...

    async def count(self, tags: frozenset[str], namespace: str) -> JobStats: ...

    async def window_stats(self, window: StatsWindow) -> WindowStats: ...

    async def pauses(self, namespace: str) -> list[Pause]: ...

    async def pause(self, pause: Pause) -> Pause: ...

    async def resume(self, namespace: str, type: str) -> bool: ...

    @property
    def webhooks(self) -> Webhooks:
        """What is told of the ends of jobs."""
        ...


class Operations:
    """The operations on a queue of this process."""

    def __init__(self, queue: HostedQueue, now: Callable[[], datetime] = utc_now) -> None:
        self._queue = queue
        self._gathering = Gathering(queue.submit)
        self._explainer = Explainer(queue, now)
        # Asked once: to compare a store with a protocol takes longer than many of the calls.
        store = queue.backend
        self._bulk = store if isinstance(store, Store) else None
        self._failures = store if isinstance(store, Failures) else None
        self._history = store if isinstance(store, History) else None
        self._logs = store if isinstance(store, JobLogs) else None
        self._pauses = store if isinstance(store, Pauses) else None
        self._search = store if isinstance(store, Search) else None
        self._statistics = store if isinstance(store, Statistics) else None
        webhooks = getattr(store, "webhooks", None)
        self._webhooks = webhooks if isinstance(webhooks, Webhooks) else None

    # Submission

    async def submit_one(self, job: Job) -> Submitted:
        return await self._gathering.submit(job)

    async def submit(self, jobs: Sequence[Job], *, atomic: bool) -> list[Submitted]:
        return await self._queue.submit(jobs, atomic=atomic)

    # Looks

    async def get_job(self, job_id: str, namespace: str) -> Job:
        return await self._queue.get_job(job_id, namespace=namespace)

    async def look_at(self, job_id: str, namespace: str) -> Job:
        if self._bulk is None:
            return await self.get_job(job_id, namespace)
        found = await self._bulk.look_up([job_id], namespace=namespace)
        if job_id not in found:
            raise JobNotFound(job_id, namespace)
        return found[job_id]

    async def get_history(self, job_id: str, namespace: str) -> JobHistory:
        return await _able(self._history, "history").get_history(job_id, namespace=namespace)

    async def get_log(
        self, job_id: str, namespace: str, after: LogCursor = FROM_THE_START
    ) -> list[AttemptLog]:
        logs = _able(self._logs, "logs")
        return await logs.job_log(job_id, namespace=namespace, after=after)

    async def explain(self, job_id: str, namespace: str) -> Explanation:
        return await self._explainer.explain(job_id, namespace)

    async def search_jobs(self, search: JobSearch) -> JobPage:
        return await _able(self._search, "search").search_jobs(search)

    async def search_failures(self, search: FailureSearch) -> FailurePage:
        return await _able(self._failures, "failures").search_failures(search)

    async def count(self, tags: frozenset[str], namespace: str) -> JobStats:
        return await self._queue.get_job_stats(tags, namespace=namespace)

    async def window_stats(self, window: StatsWindow) -> WindowStats:
        return await _able(self._statistics, "statistics").window_stats(window)

    # Changes

    async def cancel(self, job_id: str, namespace: str, *, force: bool, reason: str) -> Cancelled:
        return await self._queue.cancel_jobs(
            (), (job_id,), namespace=namespace, force=force, reason=reason
        )

    async def cancel_many(
        self,
        chosen: Selection[JobSearch],
        *,
        force: bool,
        reason: str,
        dry_run: bool,
        gone: Gone,
        answer: BulkAnswer | None = None,
    ) -> BulkAnswer:
        change = Cancel(queue=self._queue, force=force, reason=reason)
        return await change_jobs(
            _able(self._bulk, "bulk changes"),
            change,
            chosen,
            dry_run=dry_run,
            gone=gone,
            answer=answer,
        )

    async def suspend(self, job_id: str, namespace: str, *, on: bool) -> Job:
        before = await self.look_at(job_id, namespace)
        refuse_of_resource("job_id", before, on)
        change = self._queue.suspend_jobs if on else self._queue.resume_jobs
        left = await change([job_id], namespace=namespace)
        after = await self.look_at(job_id, namespace)
        if left:
            raise InvalidTransition(job_id, after.state, SUSPEND if on else RESUME)
        return after

    async def retry(self, job_id: str, namespace: str, options: RetryOptions) -> Settled:
        [answer] = await self._queue.retry_jobs([retry_of(job_id, namespace, options)])
        return answer

    async def retry_many(
        self,
        chosen: Selection[FailureSearch],
        options: RetryOptions,
        *,
        dry_run: bool,
        gone: Gone,
        answer: BulkAnswer | None = None,
    ) -> BulkAnswer:
        change = Retry(queue=self._queue, options=options)
        return await change_jobs(
            _able(self._bulk, "bulk changes"),
            change,
            chosen,
            dry_run=dry_run,
            gone=gone,
            answer=answer,
        )

    async def delete(self, job_id: str, namespace: str) -> bool:
        return await self._queue.delete_jobs((), (job_id,), namespace=namespace) > 0

    async def delete_many(
        self,
        chosen: Selection[JobSearch],
        *,
        dry_run: bool,
        gone: Gone,
        answer: BulkAnswer | None = None,
    ) -> BulkAnswer:
        change = Delete(queue=self._queue, store=_able(self._bulk, "bulk changes"))
        return await change_jobs(
            _able(self._bulk, "bulk changes"),
            change,
            chosen,
            dry_run=dry_run,
            gone=gone,
            answer=answer,
        )

    # Pauses

    async def pauses(self, namespace: str) -> list[Pause]:
        return await _able(self._pauses, "pauses").pauses(namespace)

    async def pause(self, pause: Pause) -> Pause:
        store = _able(self._pauses, "pauses")
        known = {one.type for one in await store.pauses(pause.namespace)}
        # Every replica reads all of them, all the time.
        if len(known) >= MOST_PAUSES and pause.type not in known:
            raise InvalidArgument(
                "type",
                f"{len(known)} types are paused in the namespace, and {MOST_PAUSES} may be; "
                "resume others, or pause all by naming none",
            )
        return await store.pause(pause)

    async def resume(self, namespace: str, type: str) -> bool:
        ended = await _able(self._pauses, "pauses").resume(namespace, type)
        if ended:
            self._queue.look()
        return ended

    @property
    def webhooks(self) -> Webhooks:
        return _able(self._webhooks, "webhooks")


def _able(store: C | None, what: str) -> C:
    if store is None:
        raise InvalidArgument("operation", f"this store has no {what}")
    return store
