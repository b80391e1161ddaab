"""Cancels one job and tells what that meant for it."""

from queue_operator.api.schemas import CancellationResult, CancellationStatus
from queue_operator.api.services import Services
from queue_operator.domain.job import Cancelled, Job
from queue_operator.domain.states import SLOT_HOLDING, JobState, is_terminal
from queue_operator.domain.views import PHASE, phase


async def cancel(
    job_id: str, namespace: str, reason: str, force: bool, services: Services
) -> CancellationResult:
    """Raises JobNotFound or Unavailable; a finished job is an answer, not an error."""
    before = await services.queue.get_job(job_id, namespace=namespace)
    if is_terminal(before.state):
        return _already_complete(before, services)
    answer = await services.queue.cancel_jobs(
        (), (job_id,), namespace=namespace, force=force, reason=reason
    )
    if job_id in answer.unknown_job_ids:
        # It ended, or was deleted, between the look and the cancel.
        return _already_complete(
            await services.queue.get_job(job_id, namespace=namespace), services
        )
    return _cancelled(before, answer, force, services)


def _already_complete(job: Job, services: Services) -> CancellationResult:
    state = phase(job, services.now())
    return CancellationResult(
        job_id=job.id,
        status=CancellationStatus.ALREADY_COMPLETE,
        previous_state=state,
        message=f"the job had already ended as {state}",
    )


def _cancelled(
    before: Job, answer: Cancelled, force: bool, services: Services
) -> CancellationResult:
    """The cancel's own answer says whether a worker must be told; the look before it may
    be outdated by a claim or a failure in between.
    """
    if answer.requests or before.state is JobState.CANCELLING:
        how = "its handler is interrupted" if force else "its handler is asked to stop"
        return CancellationResult(
            job_id=before.id,
            status=CancellationStatus.CANCEL_REQUESTED,
            previous_state=PHASE[JobState.RUNNING],
            message=f"the job is running; {how}",
        )
    missed = before.state in SLOT_HOLDING
    return CancellationResult(
        job_id=before.id,
        status=CancellationStatus.CANCELLED,
        previous_state=PHASE[JobState.FAILED_RETRY] if missed else phase(before, services.now()),
        message="the job will not run",
    )
