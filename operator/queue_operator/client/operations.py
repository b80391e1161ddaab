"""Every operation of the API: what is asked, and what the answer means."""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import httpx

from queue_operator.backends.statistics import Breakdown
from queue_operator.client.encoding import encode
from queue_operator.client.models import (
    Access,
    BatchCancellationResult,
    BatchDeletionResult,
    BatchResult,
    BatchRetryResult,
    BulkResult,
    CancellationResult,
    FailingTypes,
    FailureDetails,
    FailureSearchResult,
    JobExplanation,
    JobLog,
    JobSearchResult,
    JobStatus,
    Pause,
    PauseList,
    QueueStats,
    ResumeResult,
    RetryResult,
    StatsSeries,
    SubmissionResult,
    SuspensionResult,
    Verdict,
    WaitingList,
    WorkerList,
)
from queue_operator.client.protocol import (
    Call,
    Operation,
    answer,
    error_of,
    job_path,
    params_of,
    parsed,
)
from queue_operator.client.requests import (
    FailureFilter,
    FailureSearch,
    JobFilter,
    JobSearch,
    Submission,
)
from queue_operator.domain.durations import iso_text
from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.domain.ids import ENTROPY_BITS, uuid7
from queue_operator.domain.ordering import Priority

_ACCEPTED: Final = "ACCEPTED"
_DUPLICATE: Final = "DUPLICATE"
PAGE_JOBS: Final = 1000
"""How many jobs a page holds at most."""

B = TypeVar("B", bound=BulkResult)


def submit(submission: Submission, namespace: str | None) -> Operation[SubmissionResult]:
    documents, made = _documents([submission])
    call = _submission("/v1/jobs", namespace, documents, documents[0])

    def parse(response: httpx.Response, repeated: bool) -> SubmissionResult:
        return _own(answer(call, response, SubmissionResult), repeated and bool(made))

    return Operation(call, parse)


def submit_batch(
    submissions: Iterable[Submission], atomic: bool, namespace: str | None
) -> Operation[BatchResult]:
    documents, made = _documents(submissions)
    body = {"jobs": documents, "atomic": atomic}
    call = _submission("/v1/jobs/batch", namespace, documents, body)

    def parse(response: httpx.Response, repeated: bool) -> BatchResult:
        told = answer(call, response, BatchResult)
        results = [_own(item, repeated and at in made) for at, item in enumerate(told.results)]
        return told.model_copy(update={"results": tuple(results)})

    return Operation(call, parse)


def get(
    job_id: str,
    namespace: str | None,
    *,
    include_result: bool,
    include_history: bool = False,
    include_payload: bool = False,
) -> Operation[JobStatus]:
    params = params_of(
        namespace,
        include_result=_flag(include_result),
        include_history=_flag(include_history),
        include_payload=_flag(include_payload),
    )
    return parsed(Call("GET", job_path(job_id), params, job_ids=(job_id,)), JobStatus)


def explain(job_id: str, namespace: str | None) -> Operation[JobExplanation]:
    call = Call("GET", job_path(job_id, "/why"), params_of(namespace), job_ids=(job_id,))
    return parsed(call, JobExplanation)


def failure(
    job_id: str, include_all_attempts: bool, namespace: str | None
) -> Operation[FailureDetails]:
    params = params_of(namespace, include_all_attempts=_flag(include_all_attempts))
    call = Call("GET", job_path(job_id, "/failure"), params, job_ids=(job_id,))
    return parsed(call, FailureDetails)


def log(
    job_id: str,
    attempt: int | None,
    lines: int | None,
    cursor: str | None,
    namespace: str | None,
) -> Operation[JobLog]:
    params = params_of(namespace, attempt=attempt, lines=lines, cursor=cursor or None)
    return parsed(Call("GET", job_path(job_id, "/logs"), params, job_ids=(job_id,)), JobLog)


def job_events(job_id: str, follow: bool, namespace: str | None) -> Call:
    """The stream of one job."""
    params = params_of(namespace, follow=_flag(follow))
    return Call("GET", job_path(job_id, "/events"), params, job_ids=(job_id,))


def events(wanted: JobSearch, namespace: str | None) -> Call:
    """The stream of all jobs that meet the types, states and tags of `wanted`."""
    params = params_of(
        namespace,
        type=list(wanted.types) or None,
        status=[state.value for state in wanted.states] or None,
        tag=[f"{key}={text}" if text else key for key, text in wanted.tags.items()] or None,
    )
    return Call("GET", "/v1/events", params)


def cancel(
    job_id: str, reason: str, force: bool, namespace: str | None
) -> Operation[CancellationResult]:
    body = encode({"reason": reason, "force": force})
    call = Call("POST", job_path(job_id, "/cancel"), params_of(namespace), body, (job_id,))
    return parsed(call, CancellationResult)


def suspend(job_id: str, on: bool, namespace: str | None) -> Operation[SuspensionResult]:
    path = job_path(job_id, "/suspend" if on else "/resume")
    return parsed(Call("POST", path, params_of(namespace), job_ids=(job_id,)), SuspensionResult)


@dataclass(frozen=True, slots=True)
class Again:
    """How jobs are run again: with all their attempts, another priority, not before `delay`."""

    reset_attempts: bool = False
    priority: Priority | None = None
    delay: timedelta | None = None

    def document(self) -> dict[str, Any]:
        """The options as the API takes them."""
        fields: dict[str, Any] = {"reset_attempts": self.reset_attempts}
        if self.priority is not None:
            fields["priority"] = Priority(self.priority).value
        if self.delay is not None:
            fields["delay"] = iso_text(self.delay)
        return fields


def retry(job_id: str, how: Again, namespace: str | None) -> Operation[RetryResult]:
    # Repeated, it would run a job once more that has failed again meanwhile.
    call = Call(
        "POST",
        job_path(job_id, "/retry"),
        params_of(namespace),
        encode(how.document()),
        (job_id,),
        is_repeatable=False,
    )
    return parsed(call, RetryResult)


def delete(job_id: str, namespace: str | None) -> Operation[None]:
    call = Call("DELETE", job_path(job_id), params_of(namespace), job_ids=(job_id,))

    def parse(response: httpx.Response, repeated: bool) -> None:
        if response.is_success:
            return
        error = error_of(call, response)
        # An earlier try deleted it, and its answer was lost.
        if not (repeated and isinstance(error, JobNotFound)):
            raise error

    return Operation(call, parse)


def search(wanted: JobSearch, namespace: str | None) -> Operation[JobSearchResult]:
    return parsed(_post("/v1/jobs/search", namespace, wanted.document()), JobSearchResult)


def search_failures(wanted: FailureSearch, namespace: str | None) -> Operation[FailureSearchResult]:
    call = _post("/v1/failures/search", namespace, wanted.document())
    return parsed(call, FailureSearchResult)


def first_search(wanted: JobSearch | None) -> JobSearch | None:
    """What all pages begin with: as large as they may be, unless `wanted` says otherwise."""
    wanted = wanted or JobSearch()
    return wanted if wanted.limit else wanted.model_copy(update={"limit": PAGE_JOBS})


def first_failures(wanted: FailureSearch | None) -> FailureSearch | None:
    """As `first_search`."""
    wanted = wanted or FailureSearch()
    if wanted.pagination.limit:
        return wanted
    pagination = wanted.pagination.model_copy(update={"limit": PAGE_JOBS})
    return wanted.model_copy(update={"pagination": pagination})


def next_search(wanted: JobSearch, page: JobSearchResult) -> JobSearch | None:
    """The search for the page after `page`; matches are counted for the first only."""
    if not page.next_cursor:
        return None
    return wanted.model_copy(update={"cursor": page.next_cursor, "include_total": False})


def next_failures(wanted: FailureSearch, page: FailureSearchResult) -> FailureSearch | None:
    """The search for the page after `page`."""
    if not page.next_cursor:
        return None
    pagination = wanted.pagination.model_copy(update={"cursor": page.next_cursor})
    return wanted.model_copy(update={"pagination": pagination})


@dataclass(frozen=True, slots=True)
class Which:
    """Which jobs a bulk operation is about: these, or those that a filter finds."""

    job_ids: Sequence[str] | None = None
    filter: JobFilter | FailureFilter | None = None

    @classmethod
    def of(cls, job_ids: Iterable[str] | None, filter: JobFilter | FailureFilter | None) -> "Which":
        """The selection that a caller gave. Raises InvalidArgument for one id in place of many."""
        if isinstance(job_ids, str):
            raise InvalidArgument("job_ids", "must be a list of ids")
        return cls(None if job_ids is None else tuple(job_ids), filter)

    def document(self) -> dict[str, Any]:
        """The selection as the API takes it; one that selects nothing is refused there."""
        fields: dict[str, Any] = {}
        if self.job_ids is not None:
            if "" in self.job_ids:
                raise InvalidArgument("job_ids", "must not hold an empty id")
            fields["job_ids"] = list(self.job_ids)
        if self.filter is not None:
            fields["filter"] = self.filter.document()
        return fields


BulkCall = Callable[[Which], Operation[B]]
"""A bulk operation whose options are settled."""


def cancel_jobs(
    reason: str, force: bool, dry_run: bool, namespace: str | None
) -> BulkCall[BatchCancellationResult]:
    options = {"reason": reason, "force": force, "dry_run": dry_run}
    return lambda which: parsed(
        _post("/v1/jobs/cancel", namespace, {**which.document(), **options}),
        BatchCancellationResult,
    )


def retry_jobs(how: Again, dry_run: bool, namespace: str | None) -> BulkCall[BatchRetryResult]:
    options = {**how.document(), "dry_run": dry_run}

    def call(which: Which) -> Operation[BatchRetryResult]:
        post = _post("/v1/jobs/retry", namespace, {**which.document(), **options})
        return parsed(replace(post, is_repeatable=dry_run), BatchRetryResult)

    return call


def delete_jobs(dry_run: bool, namespace: str | None) -> BulkCall[BatchDeletionResult]:
    return lambda which: parsed(
        _post("/v1/jobs/delete", namespace, {**which.document(), "dry_run": dry_run}),
        BatchDeletionResult,
    )


def stats(
    breakdown_by: Iterable[Breakdown],
    time_range: timedelta | None,
    tags: Iterable[str],
    namespace: str | None,
) -> Operation[QueueStats]:
    parts = [Breakdown(part).value for part in breakdown_by]
    span = None if time_range is None else iso_text(time_range)
    params = params_of(
        namespace, breakdown_by=parts or None, time_range=span, tag=list(tags) or None
    )
    return parsed(Call("GET", "/v1/stats", params), QueueStats)


def verdict(type: str | None, namespace: str | None) -> Operation[Verdict]:
    return parsed(Call("GET", "/v1/verdict", params_of(namespace, type=type or None)), Verdict)


def workers(namespace: str | None) -> Operation[WorkerList]:
    return parsed(Call("GET", "/v1/workers", params_of(namespace)), WorkerList)


def waiting(limit: int | None, namespace: str | None) -> Operation[WaitingList]:
    return parsed(Call("GET", "/v1/waiting", params_of(namespace, limit=limit)), WaitingList)


def failing(
    type: str | None, time_range: timedelta | None, namespace: str | None
) -> Operation[FailingTypes]:
    span = None if time_range is None else iso_text(time_range)
    params = params_of(namespace, type=type or None, time_range=span)
    return parsed(Call("GET", "/v1/failures/clusters", params), FailingTypes)


def series(time_range: timedelta | None, namespace: str | None) -> Operation[StatsSeries]:
    span = None if time_range is None else iso_text(time_range)
    call = Call("GET", "/v1/stats/series", params_of(namespace, time_range=span))
    return parsed(call, StatsSeries)


def access(namespace: str | None) -> Operation[Access]:
    return parsed(Call("GET", "/v1/access", params_of(namespace)), Access)


def pauses(namespace: str | None) -> Operation[PauseList]:
    return parsed(Call("GET", "/v1/pauses", params_of(namespace)), PauseList)


def pause(type: str | None, reason: str, namespace: str | None) -> Operation[Pause]:
    body = {"type": type, "reason": reason} if type else {"reason": reason}
    return parsed(Call("PUT", "/v1/pauses", params_of(namespace), encode(body)), Pause)


def resume(type: str | None, namespace: str | None) -> Operation[ResumeResult]:
    call = Call("DELETE", "/v1/pauses", params_of(namespace, type=type or None))
    return parsed(call, ResumeResult)


def _post(path: str, namespace: str | None, body: dict[str, Any]) -> Call:
    return Call("POST", path, params_of(namespace), encode(body))


def _flag(value: bool) -> str | None:
    return "true" if value else None


def _submission(
    path: str, namespace: str | None, documents: Sequence[dict[str, Any]], body: dict[str, Any]
) -> Call:
    job_ids = tuple(document.get("job_id", "") for document in documents)
    keys = tuple(document["idempotency_key"] for document in documents)
    try:
        content = encode(body)
    except InvalidArgument as error:
        raise _named(documents, is_batch=body is not documents[0]) or error from None
    return Call("POST", path, params_of(namespace), content, job_ids, keys)


def _named(documents: Sequence[dict[str, Any]], *, is_batch: bool) -> InvalidArgument | None:
    """The first fault of those that no request can hold, with its place."""
    for at, document in enumerate(documents):
        if (fault := _fault(document)) is not None:
            field = f"jobs[{at}].{fault.field}" if is_batch else fault.field
            return InvalidArgument(field, fault.reason)
    return None


def _fault(document: dict[str, Any]) -> InvalidArgument | None:
    for name, value in document.items():
        try:
            encode(value)
        except InvalidArgument as error:
            return InvalidArgument(name, error.reason)
    return None


def faults(submissions: Sequence[Submission]) -> dict[int, InvalidArgument]:
    """What no request can hold, by its place: the field, and why."""
    found = ((at, _fault(one.document())) for at, one in enumerate(submissions))
    return {at: fault for at, fault in found if fault is not None}


def _documents(submissions: Iterable[Submission]) -> tuple[list[dict[str, Any]], frozenset[int]]:
    """The submissions as they are sent, and at which places the client made the key."""
    documents, made = [], set()
    for at, submission in enumerate(submissions):
        document = submission.document()
        if submission.idempotency_key is None:
            # Made before the first try, so that a second one cannot store the job twice.
            document["idempotency_key"] = uuid7(time.time_ns(), secrets.randbits(ENTROPY_BITS))
            made.add(at)
        documents.append(document)
    return documents, frozenset(made)


def _own(item: SubmissionResult, is_ours: bool) -> SubmissionResult:
    """`item`; a duplicate under a key that only this call knows was stored by an earlier try."""
    if not (is_ours and item.status == _DUPLICATE):
        return item
    job_id = item.existing_job_id or item.job_id
    update = {"status": _ACCEPTED, "job_id": job_id, "existing_job_id": None}
    return item.model_copy(update=update)
