"""Pauses, and why a job does not run."""

from datetime import datetime

from queue_operator.api import schemas
from queue_operator.api.views.jobs import seen
from queue_operator.backends.steering import Pause
from queue_operator.domain.views import PHASE
from queue_operator.queue.explaining import Explanation


def explanation(found: Explanation, now: datetime) -> schemas.JobExplanation:
    return schemas.JobExplanation(
        job_id=found.job.id,
        state=seen(found.job, now),
        reason=found.reason,
        message=found.message,
        position=found.position,
        position_is_exact=found.position_is_exact,
        depends_on=[
            schemas.Parent(job_id=job_id, state=None if state is None else PHASE[state])
            for job_id, state in found.parents.items()
        ],
        paused=[pause(one) for one in found.pauses],
        eligible_at=found.job.eligible_at,
        workers=found.workers,
        free_slots=found.free_slots,
    )


def pause(one: Pause) -> schemas.Pause:
    return schemas.Pause(
        namespace=one.namespace,
        type=one.type,
        reason=one.reason,
        by=one.by,
        since=one.since,
    )
