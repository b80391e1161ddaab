"""Jobs in, alone and in batches."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.batches import Batch, batch_from, refusal
from queue_operator.api.errors import DuplicateInBatch, InvalidBody, item_error
from queue_operator.api.operation import Body, Call, Operation, render, render_plain
from queue_operator.api.services import Services
from queue_operator.api.submissions import job_from, submission_bytes
from queue_operator.api.views import jobs as views
from queue_operator.domain.batch import CheckedJobs, unplaced
from queue_operator.domain.errors import DuplicateJob, QueueError
from queue_operator.domain.job import Job, Submitted
from queue_operator.domain.limits import BATCH_JOBS

AnyCall = Call[schemas.NamespaceQuery]


async def submit_job(call: AnyCall) -> Response:
    """Stores one job. Under an idempotency key the same submission again is answered with the
    first job, and 200.
    """
    services, namespace = call.services, call.namespace
    body = await call.body(submission_bytes(services.limits.payload_bytes))
    with call.sending() as sending:
        trace = sending.trace()
        job = await call.apart(lambda: job_from(body, namespace, services, trace), len(body))
        sending.about([job])
        with call.change(job=job.id) as told:
            answer = await services.jobs.submit_one(job)
            told.update(job=answer.job_id, count=0 if answer.duplicate else 1)
    status = HTTPStatus.OK if answer.duplicate else HTTPStatus.CREATED
    return render(views.submission_result(answer, services.now()), status)


async def submit_batch(call: AnyCall) -> Response:
    """Stores all jobs or none, unless `atomic` is false: then each result says what became of
    its job. The jobs may depend on each other.
    """
    services, namespace = call.services, call.namespace
    body = await call.body(services.settings.rest.body_bytes)
    with call.sending() as sending:
        trace = sending.trace()
        batch = await call.apart(lambda: batch_from(body, namespace, services, trace), len(body))
        jobs = [item for item in batch.items if isinstance(item, Job)]
        sending.about(jobs)
        with call.change(jobs=[job.id for job in jobs]) as told:
            answers = await _stored(batch, services)
            stored = [one.job_id for one in answers if one.error is None and not one.duplicate]
            told.update(jobs=stored, count=len(stored))
    status = HTTPStatus.CREATED if batch.atomic else HTTPStatus.OK
    return await call.apart(lambda: render_plain(_result(answers, services), status), len(body))


async def _stored(batch: Batch, services: Services) -> Sequence[Submitted]:
    """An answer for every item. Raises the error of an atomic batch, Unavailable for any."""
    if batch.atomic:
        fault = refusal(batch.items)
        if fault is not None:
            raise fault
    jobs = CheckedJobs((item for item in batch.items if isinstance(item, Job)), services.limits)
    try:
        stored = await services.jobs.submit(jobs, atomic=batch.atomic) if jobs else []
    except DuplicateJob as error:
        told = DuplicateInBatch(error.job_ids, error.indexes)
        told.findings = error.findings
        raise told from None
    answers = iter(stored)
    return [
        _refused(item) if isinstance(item, QueueError) else next(answers) for item in batch.items
    ]


def _refused(error: QueueError) -> Submitted:
    job_id = error.job_ids[0] if isinstance(error, DuplicateJob) else ""
    return Submitted(job_id=job_id, error=error)


def _alone(error: QueueError) -> QueueError:
    # What is wrong with a body names no place, and would lose all faults but the first.
    return error if isinstance(error, InvalidBody) else unplaced(error)


def _result(answers: Sequence[Submitted], services: Services) -> dict[str, Any]:
    results = views.SubmissionResults(services.now())
    rejected = sum(answer.error is not None for answer in answers)
    counts = schemas.BatchResult(
        total=len(answers),
        accepted=len(answers) - rejected,
        rejected=rejected,
        results=[],
    )
    told = [
        results.plain(answer) if answer.error is None else _rejected(answer.job_id, answer.error)
        for answer in answers
    ]
    return counts.model_dump() | {"results": told}


def _rejected(job_id: str, error: QueueError) -> dict[str, Any]:
    result = schemas.SubmissionResult(
        job_id=job_id or None,
        status=schemas.SubmissionStatus.REJECTED,
        error=item_error(_alone(error)),
    )
    return result.plain()


OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="submitJob",
        method="POST",
        path="/v1/jobs",
        verb="create",
        subject="Submission",
        summary="Submit a job",
        run=submit_job,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.JobSubmission),
        answers={201: schemas.SubmissionResult, 200: schemas.SubmissionResult},
        errors=frozenset({409}),
    ),
    Operation(
        id="submitBatch",
        method="POST",
        path="/v1/jobs/batch",
        verb="create",
        subject="Submission",
        summary=f"Submit up to {BATCH_JOBS} jobs",
        run=submit_batch,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.BatchSubmission),
        answers={201: schemas.BatchResult, 200: schemas.BatchResult},
        errors=frozenset({409}),
    ),
)
