"""Stores submissions, alone and in batches."""

from collections.abc import Sequence
from datetime import datetime

from queue_operator.api import schemas, views
from queue_operator.api.errors import DuplicateInBatch, item_error
from queue_operator.api.services import Services
from queue_operator.api.submissions import Batch, refusal
from queue_operator.domain.errors import DuplicateJob, QueueError
from queue_operator.domain.job import Job


async def submit(job: Job, services: Services) -> schemas.SubmissionResult:
    """Stores one job. Raises DuplicateJob or Unavailable."""
    await services.queue.enqueue_job(job)
    stored = await _stored(job, services)
    created_at = None if stored is None else stored.created_at
    return views.submission_result(stored or job, created_at, services.now())


async def submit_batch(batch: Batch, services: Services) -> schemas.BatchResult:
    """Stores the jobs of a batch: all or, if it is atomic, none.

    Raises the error of an atomic batch, Unavailable for any.
    """
    items = batch.items
    if not batch.atomic:
        items = await _store_good(items, services)
    elif (fault := refusal(items)) is not None:
        raise fault
    else:
        await _store_all([item for item in items if isinstance(item, Job)], services)
    created_at = await _created_at(items, services)
    results = [_result(item, created_at, services) for item in items]
    accepted = sum(isinstance(item, Job) for item in items)
    return schemas.BatchResult(
        total=len(items), accepted=accepted, rejected=len(items) - accepted, results=results
    )


async def _store_all(jobs: Sequence[Job], services: Services) -> None:
    try:
        await services.queue.enqueue_jobs(jobs)
    except DuplicateJob as error:
        indexes = tuple(i for i, job in enumerate(jobs) if job.id in error.job_ids)
        raise DuplicateInBatch(error.job_ids, indexes) from None


async def _store_good(
    items: Sequence[Job | QueueError], services: Services
) -> tuple[Job | QueueError, ...]:
    """Stores every job that can be; the others turn into their errors."""
    remaining = list(items)
    while jobs := [item for item in remaining if isinstance(item, Job)]:
        try:
            await services.queue.enqueue_jobs(jobs)
        except DuplicateJob as error:
            taken = set(error.job_ids)
            if not taken.intersection(job.id for job in jobs):
                raise
            remaining = [_unless_taken(item, taken) for item in remaining]
        else:
            break
    return tuple(remaining)


def _unless_taken(item: Job | QueueError, taken: set[str]) -> Job | QueueError:
    if isinstance(item, Job) and item.id in taken:
        return DuplicateJob((item.id,))
    return item


async def _created_at(items: Sequence[Job | QueueError], services: Services) -> datetime | None:
    # One transaction stored them all, at one time of the database's clock.
    first = next((item for item in items if isinstance(item, Job)), None)
    stored = None if first is None else await _stored(first, services)
    return None if stored is None else stored.created_at


async def _stored(job: Job, services: Services) -> Job | None:
    """The job as the store has it. The submission has succeeded whatever happens here, so
    no error of this look must reach the caller, who would submit again.
    """
    try:
        return await services.queue.get_job(job.id, namespace=job.namespace)
    except QueueError:
        return None


def _result(
    item: Job | QueueError, created_at: datetime | None, services: Services
) -> schemas.SubmissionResult:
    if isinstance(item, Job):
        return views.submission_result(item, created_at, services.now())
    return schemas.SubmissionResult(
        job_id=next(iter(item.job_ids), None) if isinstance(item, DuplicateJob) else None,
        status=schemas.SubmissionStatus.REJECTED,
        error=item_error(item),
    )
