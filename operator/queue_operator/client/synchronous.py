"""The blocking client."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeVar

import httpx

from queue_operator.backends.statistics import Breakdown
from queue_operator.client import flows, operations, telling
from queue_operator.client.credentials import Token
from queue_operator.client.environment import CertificateFiles, File
from queue_operator.client.events import JobEvent
from queue_operator.client.lines import MANY, Line, request_of
from queue_operator.client.listening import Flow, Hear, Leave, Listen, Step, Told
from queue_operator.client.listening import Pause as Rest
from queue_operator.client.messages import (
    WebhookList,
    WebhookMessage,
    WebhookPurgeResult,
    WebhookRedeliveryResult,
)
from queue_operator.client.models import (
    Access,
    BatchCancellationResult,
    BatchDeletionResult,
    BatchResult,
    BatchRetryResult,
    CancellationResult,
    FailingTypes,
    FailureDetails,
    FailureSearchResult,
    JobExplanation,
    JobLog,
    JobSearchResult,
    JobStatus,
    Pause,
    QueueStats,
    RetryResult,
    StatsSeries,
    SubmissionResult,
    SuspensionResult,
    Verdict,
    WaitingJob,
    Worker,
    WorkerList,
)
from queue_operator.client.operations import Again, Which
from queue_operator.client.per_process import PerProcess
from queue_operator.client.protocol import Operation, Reply, connection
from queue_operator.client.requests import (
    FailureFilter,
    FailureSearch,
    JobFilter,
    JobSearch,
    Submission,
)
from queue_operator.client.retrying import RetryPolicy
from queue_operator.client.waiting import Patience, Watched, wait, watch
from queue_operator.domain.ordering import Priority
from queue_operator.domain.views import Phase

T = TypeVar("T")


class QueueClient:
    """Submits, watches and steers jobs over REST.

    Every method takes the `namespace` it is for, by default the caller's own, and raises
    the error of `queue_operator.domain.errors` that the server's answer stands for.
    A server that does not answer, or says that it cannot now, is asked again as `retry`
    says, then Unavailable or QuotaExceeded is raised; a submission is stored once however often
    it is sent. What must not happen twice, the retry of a job, is sent again only if the server
    cannot have done it. After a fork the child has connections of its own.

    `ca_file`, `certificate_file` and `key_file` are PEM files for a server of https: the
    authorities to believe in place of those of the system, and what to show to a server that asks
    for a certificate. They are read once, here. Raises InvalidArgument for what cannot be used.
    """

    def __init__(
        self,
        url: str,
        token: Token = None,
        *,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        ca_file: File = None,
        certificate_file: File = None,
        key_file: File = None,
    ) -> None:
        files = CertificateFiles(
            ca_file=ca_file, certificate_file=certificate_file, key_file=key_file
        )
        reached = connection(url, files, with_token=token is not None)
        self._http = PerProcess(lambda: httpx.Client(**reached, timeout=timeout_s))
        bounded = httpx.Timeout(timeout_s)
        self._streams = PerProcess(lambda: httpx.Client(**reached, timeout=bounded, limits=MANY))
        self._token = token
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._clock = clock

    def submit(self, submission: Submission, *, namespace: str | None = None) -> SubmissionResult:
        """ACCEPTED, or DUPLICATE: a job of the same content was stored under the key before.

        Raises DuplicateJob when the submission's own id is taken, KeyConflict when its key
        belongs to a job of other content, QuotaExceeded when the namespace is full.
        """
        return self._ask(operations.submit(submission, namespace))

    def submit_batch(
        self,
        submissions: Iterable[Submission],
        *,
        atomic: bool = True,
        namespace: str | None = None,
    ) -> BatchResult:
        """All or none; unless `atomic`, those that can be, the rest REJECTED with an error."""
        return self._ask(operations.submit_batch(submissions, atomic, namespace))

    def submit_all(
        self,
        submissions: Iterable[Submission],
        *,
        batch_jobs: int = flows.BATCH_JOBS,
        on_wait: Callable[[flows.QuotaWait], None] | None = None,
        namespace: str | None = None,
    ) -> Iterator[BatchResult]:
        """Any number of jobs, in batches; what became of each batch, as it is known. A batch is
        sent when its result is asked for. Jobs for which a quota has no room are sent again, as
        `retry` says, and then REJECTED; `on_wait` is told before each pause.
        """
        for batch in flows.batches(submissions, batch_jobs):
            yield self._run(flows.submit_some(batch, namespace, self._retry, on_wait))

    def get(
        self,
        job_id: str,
        *,
        include_result: bool = False,
        include_history: bool = False,
        include_payload: bool = False,
        namespace: str | None = None,
    ) -> JobStatus:
        """Raises JobNotFound."""
        return self._ask(
            operations.get(
                job_id,
                namespace,
                include_result=include_result,
                include_history=include_history,
                include_payload=include_payload,
            )
        )

    def wait(
        self,
        job_id: str,
        *,
        timeout_s: float | None = None,
        poll_s: float = 2.0,
        outage_s: float = 60.0,
        on_status: Callable[[JobStatus], None] | None = None,
        namespace: str | None = None,
    ) -> JobStatus:
        """The job, with its result, once it has ended. It listens to the job's events, and looks
        when its state changes; `on_status` is told each look. Events do not tell of progress: while
        the job runs and there is an `on_status`, and where the server has no events, it looks every
        `poll_s` seconds, at first more often.

        Raises JobNotFound; TimeoutError after `timeout_s`; Unavailable when the server cannot be
        asked for `outage_s`.
        """
        how = Patience(self._retry, self._clock, poll_s, outage_s)
        return self._run(wait(job_id, namespace, how, timeout_s=timeout_s, told=on_status))

    def watch(
        self,
        job_id: str | None = None,
        *,
        types: Iterable[str] = (),
        states: Iterable[Phase] = (),
        tags: Mapping[str, str] | None = None,
        follow: bool = False,
        after: str | None = None,
        poll_s: float = 2.0,
        outage_s: float = 60.0,
        on_gap: Callable[[str], None] | None = None,
        namespace: str | None = None,
    ) -> Iterator[JobEvent]:
        """What happens, as it does: to one job, how it is now first, until it has ended or, to
        `follow` it, on and on; else to all jobs of any of `types` that come to any of `states` and
        have all `tags`. Each event has a `position`, and `after` one of them the stream goes on.

        It survives restarts of the server and misses nothing. Where a position is older than what
        the server keeps, it begins anew, and `on_gap` is told; without it a warning is logged.
        Where the server has no streams, it looks every `poll_s` seconds, and what comes and goes
        between two looks is missed. Raises JobNotFound; Unavailable when the server cannot be
        reached for `outage_s`.
        """
        wanted = Watched.of(job_id, types, states, tags, follow, after, namespace)
        how = Patience(self._retry, self._clock, poll_s, outage_s)
        return self._told(watch(wanted, how, on_gap))

    def explain(self, job_id: str, *, namespace: str | None = None) -> JobExplanation:
        """Why the job does not run. Raises JobNotFound."""
        return self._ask(operations.explain(job_id, namespace))

    def failure(
        self, job_id: str, *, include_all_attempts: bool = False, namespace: str | None = None
    ) -> FailureDetails:
        """How the job failed. Raises JobNotFound, also for a job that never failed."""
        return self._ask(operations.failure(job_id, include_all_attempts, namespace))

    def log(
        self,
        job_id: str,
        *,
        attempt: int | None = None,
        lines: int | None = None,
        cursor: str | None = None,
        namespace: str | None = None,
    ) -> JobLog:
        """What the handler logged: the newest `lines` of each attempt (200, at most 1000), or of
        the one asked for; with the `next_cursor` of the log before, only what came since. Raises
        JobNotFound.
        """
        return self._ask(operations.log(job_id, attempt, lines, cursor, namespace))

    def cancel(
        self,
        job_id: str,
        *,
        reason: str = "",
        force: bool = False,
        namespace: str | None = None,
    ) -> CancellationResult:
        """Raises JobNotFound; a job that has ended already is an answer, not an error."""
        return self._ask(operations.cancel(job_id, reason, force, namespace))

    def suspend(self, job_id: str, *, namespace: str | None = None) -> SuspensionResult:
        """No attempt of the job begins until `resume_job`; one that runs goes on."""
        return self._ask(operations.suspend(job_id, True, namespace))

    def resume_job(self, job_id: str, *, namespace: str | None = None) -> SuspensionResult:
        """Ends the suspension of one job; `resume` ends pauses."""
        return self._ask(operations.suspend(job_id, False, namespace))

    def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | None = None,
        delay: timedelta | None = None,
        namespace: str | None = None,
    ) -> RetryResult:
        """Runs a job again that failed. Raises JobNotFound; NOT_RETRIABLE is an answer."""
        how = Again(reset_attempts, priority, delay)
        return self._ask(operations.retry(job_id, how, namespace))

    def delete(self, job_id: str, *, namespace: str | None = None) -> None:
        """Removes a job that has ended. Raises JobNotFound, InvalidTransition if it has not."""
        self._ask(operations.delete(job_id, namespace))

    def search(
        self, search: JobSearch | None = None, *, namespace: str | None = None
    ) -> JobSearchResult:
        """One page of jobs. Raises InvalidArgument for a cursor of another search."""
        return self._ask(operations.search(search or JobSearch(), namespace))

    def search_all(
        self, search: JobSearch | None = None, *, namespace: str | None = None
    ) -> Iterator[JobStatus]:
        """All matching jobs, page by page as they are asked for."""
        wanted = operations.first_search(search)
        while wanted is not None:
            page = self.search(wanted, namespace=namespace)
            yield from page.jobs
            wanted = operations.next_search(wanted, page)

    def search_failures(
        self, search: FailureSearch | None = None, *, namespace: str | None = None
    ) -> FailureSearchResult:
        """One page of failed jobs, and how all of them spread."""
        return self._ask(operations.search_failures(search or FailureSearch(), namespace))

    def failures_all(
        self, search: FailureSearch | None = None, *, namespace: str | None = None
    ) -> Iterator[FailureDetails]:
        """All matching failed jobs, page by page as they are asked for."""
        wanted = operations.first_failures(search)
        while wanted is not None:
            page = self.search_failures(wanted, namespace=namespace)
            yield from page.failures
            wanted = operations.next_failures(wanted, page)

    def cancel_jobs(
        self,
        job_ids: Iterable[str] | None = None,
        *,
        filter: JobFilter | None = None,
        reason: str = "",
        force: bool = False,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> BatchCancellationResult:
        """Cancels these jobs or those that the filter finds, up to 10,000 (`has_more`)."""
        call = operations.cancel_jobs(reason, force, dry_run, namespace)
        return self._ask(call(Which.of(job_ids, filter)))

    def cancel_all(
        self,
        job_ids: Iterable[str] | None = None,
        *,
        filter: JobFilter | None = None,
        reason: str = "",
        force: bool = False,
        on_result: Callable[[BatchCancellationResult], None] | None = None,
        namespace: str | None = None,
    ) -> BatchCancellationResult:
        """As `cancel_jobs`, again and again while there are more; the sum. `on_result` is given
        what came of each request.
        """
        call = operations.cancel_jobs(reason, force, False, namespace)
        return self._run(flows.change_all(call, job_ids, filter, self._retry, on_result))

    def retry_jobs(
        self,
        job_ids: Iterable[str] | None = None,
        *,
        filter: FailureFilter | None = None,
        reset_attempts: bool = False,
        priority: Priority | None = None,
        delay: timedelta | None = None,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> BatchRetryResult:
        """Runs these failed jobs again, or those that the filter finds, up to 10,000."""
        how = Again(reset_attempts, priority, delay)
        call = operations.retry_jobs(how, dry_run, namespace)
        return self._ask(call(Which.of(job_ids, filter)))

    def retry_all(
        self,
        job_ids: Iterable[str] | None = None,
        *,
        filter: FailureFilter | None = None,
        reset_attempts: bool = False,
        priority: Priority | None = None,
        delay: timedelta | None = None,
        on_result: Callable[[BatchRetryResult], None] | None = None,
        namespace: str | None = None,
    ) -> BatchRetryResult:
        """As `retry_jobs`, again and again while there are more; the sum."""
        how = Again(reset_attempts, priority, delay)
        call = operations.retry_jobs(how, False, namespace)
        return self._run(flows.change_all(call, job_ids, filter, self._retry, on_result))

    def delete_jobs(
        self,
        job_ids: Iterable[str] | None = None,
        *,
        filter: JobFilter | None = None,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> BatchDeletionResult:
        """Removes these jobs or those that the filter finds, if they have ended, up to 10,000."""
        call = operations.delete_jobs(dry_run, namespace)
        return self._ask(call(Which.of(job_ids, filter)))

    def delete_all(
        self,
        job_ids: Iterable[str] | None = None,
        *,
        filter: JobFilter | None = None,
        on_result: Callable[[BatchDeletionResult], None] | None = None,
        namespace: str | None = None,
    ) -> BatchDeletionResult:
        """As `delete_jobs`, again and again while there are more; the sum."""
        call = operations.delete_jobs(False, namespace)
        return self._run(flows.change_all(call, job_ids, filter, self._retry, on_result))

    def stats(
        self,
        *,
        breakdown_by: Iterable[Breakdown] = (),
        time_range: timedelta | None = None,
        tags: Iterable[str] = (),
        namespace: str | None = None,
    ) -> QueueStats:
        """Counts, rates and latencies; of the last hour unless `time_range` is given. `tags`
        (`key=value`) are for `counts`, `total` and `total_retries` only.
        """
        return self._ask(operations.stats(breakdown_by, time_range, tags, namespace))

    def verdict(self, type: str | None = None, *, namespace: str | None = None) -> Verdict:
        """How the namespace does, or the type in it, in a sentence."""
        return self._ask(operations.verdict(type, namespace))

    def workers(self, *, namespace: str | None = None) -> tuple[Worker, ...]:
        """The connected workers."""
        return self._ask(operations.workers(namespace)).workers

    def worker_list(self, *, namespace: str | None = None) -> WorkerList:
        """The connected workers, and those that were lost in the last minutes."""
        return self._ask(operations.workers(namespace))

    def waiting(
        self, limit: int | None = None, *, namespace: str | None = None
    ) -> tuple[WaitingJob, ...]:
        """The oldest jobs that could run, 10 unless `limit` says otherwise, and why they do not."""
        return self._ask(operations.waiting(limit, namespace)).waiting

    def failing(
        self,
        type: str | None = None,
        *,
        time_range: timedelta | None = None,
        namespace: str | None = None,
    ) -> FailingTypes:
        """The types that failed, and how; within the last hour unless `time_range` is given."""
        return self._ask(operations.failing(type, time_range, namespace))

    def series(
        self, *, time_range: timedelta | None = None, namespace: str | None = None
    ) -> StatsSeries:
        """Outcomes and latencies over time; of the last hour unless `time_range` is given."""
        return self._ask(operations.series(time_range, namespace))

    def access(self, *, namespace: str | None = None) -> Access:
        """What the caller may do in the namespace."""
        return self._ask(operations.access(namespace))

    def pauses(self, *, namespace: str | None = None) -> tuple[Pause, ...]:
        """What is paused in the namespace."""
        return self._ask(operations.pauses(namespace)).pauses

    def pause(
        self, type: str | None = None, *, reason: str = "", namespace: str | None = None
    ) -> Pause:
        """No job of the type, or of the whole namespace, starts until `resume`."""
        return self._ask(operations.pause(type, reason, namespace))

    def resume(self, type: str | None = None, *, namespace: str | None = None) -> bool:
        """Ends exactly this pause; False where there was none."""
        return self._ask(operations.resume(type, namespace)).resumed

    def webhooks(
        self,
        *,
        state: str | None = None,
        job_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        namespace: str | None = None,
    ) -> WebhookList:
        """A page of what is told of the ends of jobs, newest first."""
        return self._ask(telling.webhooks(state, job_id, cursor, limit, namespace))

    def webhooks_all(
        self,
        *,
        state: str | None = None,
        job_id: str | None = None,
        namespace: str | None = None,
    ) -> Iterator[WebhookMessage]:
        """All such messages, page by page as they are asked for."""
        cursor, more = None, True
        while more:
            page = self._ask(
                telling.webhooks(state, job_id, cursor, telling.PAGE_MESSAGES, namespace)
            )
            yield from page.messages
            cursor, more = page.next_cursor, page.next_cursor is not None

    def webhook(self, message_id: str, *, namespace: str | None = None) -> WebhookMessage:
        """One message. Raises MessageNotFound."""
        return self._ask(telling.webhook(message_id, namespace))

    def redeliver_webhooks(
        self,
        ids: Sequence[str] | None = None,
        *,
        state: str | None = None,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> WebhookRedeliveryResult:
        """Tells these messages once more, or those that are FAILED or DELIVERED, up to 10,000."""
        which = telling.Messages(ids, state)
        return self._ask(telling.redeliver(which, dry_run, namespace))

    def purge_webhooks(
        self,
        ids: Sequence[str] | None = None,
        *,
        state: str | None = None,
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> WebhookPurgeResult:
        """Deletes these messages, or those in a state, up to 10,000; what is PENDING is never told
        then.
        """
        which = telling.Messages(ids, state)
        return self._ask(telling.purge(which, dry_run, namespace))

    def close(self) -> None:
        """Closes the connections."""
        self._http.mine.close()
        self._streams.mine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, operation: Operation[T]) -> T:
        return self._run(flows.exchange(operation, self._retry))

    def _run(self, flow: Flow[T]) -> T:
        run, line = flows.Run(flow), Line(self._streams.mine, self._token)
        try:
            step = run.step()
            while step is not None:
                step = run.step(self._do(step, line))
            return run.result
        finally:
            line.close()

    def _told(self, flow: Flow[None]) -> Iterator[JobEvent]:
        run, line = flows.Run(flow), Line(self._streams.mine, self._token)
        try:
            step = run.step()
            while step is not None:
                if isinstance(step, Told):
                    yield step.event
                step = run.step(self._do(step, line))
        finally:
            line.close()

    def _do(self, step: Step, line: Line) -> Reply:
        match step:
            case Rest():
                self._sleep(step.seconds)
                return Reply()
            case Listen() | Hear() | Leave():
                return line.do(step)
            case Told():
                return Reply()
        http = self._http.mine
        try:
            response = http.send(request_of(http, step, self._token))
        except httpx.RequestError as error:
            return Reply(failure=error)
        return Reply(response)
