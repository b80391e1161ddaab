"""Changes to one job."""

from typing import Any, Final

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.operation import Body, Call, Operation, render
from queue_operator.api.parsing import parse
from queue_operator.api.services import Services
from queue_operator.api.views.jobs import seen
from queue_operator.api.views.refusals import not_possible
from queue_operator.domain.errors import InvalidTransition, JobNotFound
from queue_operator.domain.job import Cancelled, Job
from queue_operator.domain.states import SLOT_HOLDING, JobState, is_terminal
from queue_operator.domain.views import PHASE
from queue_operator.queue.bulk import RetryOptions

_BODY_BYTES: Final = 64 * 1024

AnyCall = Call[schemas.NamespaceQuery]


async def cancel_job(call: AnyCall) -> Response:
    """A waiting job is cancelled at once, a running one is asked to stop; one that has ended
    stays as it is.
    """
    body = await call.body(_BODY_BYTES)
    wanted = parse(body or b"{}", schemas.CancellationRequest)
    with call.change(job=call.job_id, reason=wanted.reason, force=wanted.force) as told:
        result = await _cancel(call, wanted)
        done = result.status is not schemas.CancellationStatus.ALREADY_COMPLETE
        told.update(count=int(done))
    return render(result)


async def _cancel(call: AnyCall, wanted: schemas.CancellationRequest) -> schemas.CancellationResult:
    services = call.services
    before = await services.jobs.look_at(call.job_id, call.namespace)
    if is_terminal(before.state):
        return _already_complete(before, services)
    answer = await services.jobs.cancel(
        call.job_id, call.namespace, force=wanted.force, reason=wanted.reason
    )
    if call.job_id in answer.unknown_job_ids:
        # It ended, or was deleted, between the look and the cancel.
        after = await services.jobs.look_at(call.job_id, call.namespace)
        return _already_complete(after, services)
    return _cancelled(before, answer, wanted.force, services)


def _already_complete(job: Job, services: Services) -> schemas.CancellationResult:
    state = seen(job, services.now())
    return schemas.CancellationResult(
        job_id=job.id,
        status=schemas.CancellationStatus.ALREADY_COMPLETE,
        previous_state=state,
        message=f"the job had already ended as {state}",
    )


def _cancelled(
    before: Job, answer: Cancelled, force: bool, services: Services
) -> schemas.CancellationResult:
    """The cancel's own answer says whether a worker must be told; the look before it may
    be outdated by a claim or a failure in between.
    """
    if answer.requests or before.state is JobState.CANCELLING:
        how = "its handler is asked to stop"
        if force:
            how += " at once; a handler in a thread ends by itself"
        return schemas.CancellationResult(
            job_id=before.id,
            status=schemas.CancellationStatus.CANCEL_REQUESTED,
            previous_state=PHASE[JobState.RUNNING],
            message=f"the job is running; {how}",
        )
    missed = before.state in SLOT_HOLDING
    return schemas.CancellationResult(
        job_id=before.id,
        status=schemas.CancellationStatus.CANCELLED,
        previous_state=PHASE[JobState.FAILED_RETRY] if missed else seen(before, services.now()),
        message="the job will not run",
    )


async def suspend_job(call: AnyCall) -> Response:
    """From now on no attempt of the job begins; one that runs goes on, and the next waits. A job
    of a QueueJob is suspended by its `spec.suspend`.
    """
    return await _suspend(call, on=True)


async def resume_job(call: AnyCall) -> Response:
    """A suspended job runs again, in the place that it had; what else it waits for counts on."""
    return await _suspend(call, on=False)


async def _suspend(call: AnyCall, *, on: bool) -> Response:
    parse(await call.body(_BODY_BYTES) or b"{}", schemas.NoOptions)
    with call.change(job=call.job_id) as told:
        job = await call.services.jobs.suspend(call.job_id, call.namespace, on=on)
        told.update(count=1)
    return render(
        schemas.SuspensionResult(
            job_id=job.id,
            state=seen(job, call.services.now()),
            suspended=job.suspended,
            message=_what_becomes(job),
        )
    )


def _what_becomes(job: Job) -> str:
    if not job.suspended:
        return "the job is no longer suspended; `why` says what else it waits for"
    if job.state in SLOT_HOLDING:
        return "the attempt that runs goes on, and no other begins until the job is resumed"
    return "the job waits until it is resumed"


async def retry_job(call: AnyCall) -> Response:
    """Tries a job again that has failed for good, waits for its next attempt, or was given up
    because of the jobs it depends on. Others stay as they are.
    """
    body = await call.body(_BODY_BYTES)
    wanted = parse(body or b"{}", schemas.RetryRequest)
    options = retry_options(wanted)
    services = call.services
    with call.change(job=call.job_id, reset_attempts=wanted.reset_attempts) as told:
        answer = await services.jobs.retry(call.job_id, call.namespace, options)
        if answer.error is not None and not isinstance(answer.error, InvalidTransition):
            raise answer.error
        queued = answer.error is None
        told.update(count=int(queued))
    after = await services.jobs.look_at(call.job_id, call.namespace)
    status = schemas.RetryStatus.QUEUED if queued else schemas.RetryStatus.NOT_RETRIABLE
    fields = {} if answer.error is None else {"message": not_possible(answer.error)}
    return render(
        schemas.RetryResult(
            job_id=call.job_id,
            status=status,
            new_state=seen(after, services.now()),
            scheduled_for=after.eligible_at if queued else None,
            **fields,
        )
    )


def retry_options(wanted: schemas.RetryRequest | schemas.BatchRetry) -> RetryOptions:
    """How to try again, as the queue is told."""
    return RetryOptions(
        reset_attempts=wanted.reset_attempts,
        priority=wanted.priority,
        delay_s=None if wanted.delay is None else wanted.delay.total_seconds(),
    )


async def delete_job(call: AnyCall) -> Response:
    """Deletes a job that has ended, with its payload, result and history."""
    with call.change(job=call.job_id) as told:
        if not await call.services.jobs.delete(call.job_id, call.namespace):
            raise JobNotFound(call.job_id, call.namespace)
        told.update(count=1)
    return Response(status_code=204)


DETAILS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="cancelJob",
        method="POST",
        path="/v1/jobs/{job_id}/cancel",
        verb="update",
        subject="Jobs",
        summary="Cancel a job",
        run=cancel_job,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.CancellationRequest, required=False),
        answers={200: schemas.CancellationResult},
        errors=frozenset({404}),
    ),
    Operation(
        id="suspendJob",
        method="POST",
        path="/v1/jobs/{job_id}/suspend",
        verb="update",
        subject="Jobs",
        summary="Suspend a job",
        run=suspend_job,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.NoOptions, required=False),
        answers={200: schemas.SuspensionResult},
        errors=frozenset({404, 409}),
    ),
    Operation(
        id="resumeJob",
        method="POST",
        path="/v1/jobs/{job_id}/resume",
        verb="update",
        subject="Jobs",
        summary="Resume a suspended job",
        run=resume_job,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.NoOptions, required=False),
        answers={200: schemas.SuspensionResult},
        errors=frozenset({404, 409}),
    ),
    Operation(
        id="retryJob",
        method="POST",
        path="/v1/jobs/{job_id}/retry",
        verb="update",
        subject="Jobs",
        summary="Try a job again",
        run=retry_job,
        query=schemas.NamespaceQuery,
        body=Body(model=schemas.RetryRequest, required=False),
        answers={200: schemas.RetryResult},
        errors=frozenset({404}),
    ),
)

OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="deleteJob",
        method="DELETE",
        path="/v1/jobs/{job_id}",
        verb="delete",
        subject="Jobs",
        summary="Delete a finished job",
        run=delete_job,
        query=schemas.NamespaceQuery,
        answers={204: None},
        errors=frozenset({404, 409}),
    ),
)
