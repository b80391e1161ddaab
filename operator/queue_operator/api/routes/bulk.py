"""Changes to many jobs, by their ids or by a filter."""

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.errors import InvalidBody, details_of, fault, status_of
from queue_operator.api.operation import Body, Call, Operation, render
from queue_operator.api.parsing import given, parse
from queue_operator.api.routes import failures, searching
from queue_operator.api.routes.changing import retry_options
from queue_operator.api.views.refusals import not_possible
from queue_operator.backends.protocol import FailureSearch, JobSearch
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import Limits, check_text
from queue_operator.queue.bulk import BulkAnswer, Selection

_BODY_BYTES: Final = 4 * 1024 * 1024
"""Enough for the most ids of the greatest length in ASCII. To read more at once, of many small
values, would hold the process.
"""

_PLACE: Final = re.compile(r"[.\[]")

AnyCall = Call[schemas.NamespaceQuery]
Wanted = TypeVar("Wanted", schemas.BatchCancellation, schemas.BatchRetry, schemas.BatchDeletion)
AnyWanted = schemas.BatchCancellation | schemas.BatchRetry | schemas.BatchDeletion
S = TypeVar("S", JobSearch, FailureSearch)


async def cancel_jobs(call: AnyCall) -> Response:
    """Cancels jobs as `cancelJob` does, at most 10,000 in one request. Those that are missing
    count as failed.
    """
    wanted = await _read(call, schemas.BatchCancellation)
    with _audited(call, wanted) as answer:
        await call.services.jobs.cancel_many(
            _jobs(call, wanted.job_ids, wanted.filter),
            force=wanted.force,
            reason=wanted.reason,
            dry_run=wanted.dry_run,
            gone=call.request.is_disconnected,
            answer=answer,
        )
    return render(
        schemas.BatchCancellationResult(cancelled=answer.changed, **_told(answer, wanted.dry_run))
    )


async def retry_jobs(call: AnyCall) -> Response:
    """Tries jobs again as `retryJob` does, at most 10,000 in one request. A filter without
    states means those that have failed for good.
    """
    wanted = await _read(call, schemas.BatchRetry)
    chosen = _selection(
        call,
        wanted.job_ids,
        wanted.filter,
        lambda one: FailureSearch(**failures.filters(call.namespace, one)),
        lambda one: one.pagination.limit,
    )
    with _audited(call, wanted) as answer:
        await call.services.jobs.retry_many(
            chosen,
            retry_options(wanted),
            dry_run=wanted.dry_run,
            gone=call.request.is_disconnected,
            answer=answer,
        )
    told = _told(answer, wanted.dry_run)
    if answer.refused:
        told["not_retriable"] = [
            schemas.JobError(
                job_id=job_id,
                code=schemas.RetryStatus.NOT_RETRIABLE,
                message=not_possible(error),
            )
            for job_id, error in answer.refused.items()
        ]
    return render(schemas.BatchRetryResult(queued=answer.changed, **told))


async def delete_jobs(call: AnyCall) -> Response:
    """Deletes jobs that have ended, at most 10,000 in one request. Others are skipped."""
    wanted = await _read(call, schemas.BatchDeletion)
    with _audited(call, wanted) as answer:
        await call.services.jobs.delete_many(
            _jobs(call, wanted.job_ids, wanted.filter),
            dry_run=wanted.dry_run,
            gone=call.request.is_disconnected,
            answer=answer,
        )
    return render(
        schemas.BatchDeletionResult(deleted=answer.changed, **_told(answer, wanted.dry_run))
    )


async def _read(call: AnyCall, model: type[Wanted]) -> Wanted:
    body = await call.body(_BODY_BYTES)
    wanted = await call.apart(lambda: parse(body, model), len(body))
    _check_ids(wanted.job_ids or (), call.services.limits)
    if (wanted.job_ids is None) == (wanted.filter is None):
        raise fault("filter", "INVALID_REQUEST", "give either job_ids or a filter")
    if wanted.filter is not None:
        await call.review("list")
        if wanted.filter.says_nothing():
            raise fault("filter", "INVALID_REQUEST", "name something, or 'all': true for every job")
    return wanted


def _check_ids(job_ids: Collection[str], limits: Limits) -> None:
    faults = []
    for place, job_id in enumerate(job_ids):
        try:
            check_text(f"job_ids[{place}]", job_id, limits.id_characters)
        except InvalidArgument as error:
            faults += details_of(error)
    if faults:
        raise InvalidBody(faults)


def _jobs(
    call: AnyCall, job_ids: list[str] | None, wanted: schemas.JobFilter | None
) -> Selection[JobSearch]:
    return _selection(
        call,
        job_ids,
        wanted,
        lambda one: JobSearch(**searching.filters(call.namespace, one), order=one.order),
        lambda one: one.limit,
    )


F = TypeVar("F", schemas.JobFilter, schemas.FailureFilter)


def _selection(
    call: AnyCall,
    job_ids: list[str] | None,
    wanted: F | None,
    search: Callable[[F], S],
    most: Callable[[F], int],
) -> Selection[S]:
    if wanted is None:
        return Selection(namespace=call.namespace, job_ids=tuple(job_ids or ()))
    return Selection(namespace=call.namespace, search=search(wanted), most=most(wanted))


def _told(answer: BulkAnswer, dry_run: bool) -> dict[str, Any]:
    return {
        "requested": answer.requested,
        "skipped": answer.skipped,
        "failed": len(answer.errors),
        "errors": [
            schemas.JobError(job_id=job_id, code=status_of(error)[1], message=error.message)
            for job_id, error in answer.errors.items()
        ],
        "dry_run": dry_run,
        "has_more": answer.has_more,
    }


@contextmanager
def _audited(call: AnyCall, wanted: AnyWanted) -> Iterator[BulkAnswer]:
    """Tells what is to be done and what was, also of a change that fails midway."""
    answer = BulkAnswer()
    chosen: dict[str, Any] = {"jobs": wanted.job_ids}
    if wanted.filter is not None:
        chosen = {"filter": given(wanted.filter)}
    with call.change(**chosen, dry_run=wanted.dry_run) as told:
        try:
            yield answer
        except InvalidArgument as error:
            raise _named(error, wanted) from None
        finally:
            told.update(count=answer.changed)


def _named(error: InvalidArgument, wanted: AnyWanted) -> InvalidArgument:
    """The same error in the names of the body."""
    if wanted.filter is None or isinstance(error, InvalidBody):
        return error
    told = failures.named(error)
    if _PLACE.split(told.field)[0] not in type(wanted.filter).model_fields:
        return error
    return InvalidArgument(f"filter.{told.field}", told.reason)


OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="cancelJobs",
        method="POST",
        path="/v1/jobs/cancel",
        verb="update",
        subject="Many jobs at once",
        summary="Cancel many jobs",
        run=cancel_jobs,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.BatchCancellation),
        answers={200: schemas.BatchCancellationResult},
    ),
    Operation(
        id="retryJobs",
        method="POST",
        path="/v1/jobs/retry",
        verb="update",
        subject="Many jobs at once",
        summary="Try many jobs again",
        run=retry_jobs,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.BatchRetry),
        answers={200: schemas.BatchRetryResult},
    ),
    Operation(
        id="deleteJobs",
        method="POST",
        path="/v1/jobs/delete",
        verb="delete",
        subject="Many jobs at once",
        summary="Delete many finished jobs",
        run=delete_jobs,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.BatchDeletion),
        answers={200: schemas.BatchDeletionResult},
    ),
)
