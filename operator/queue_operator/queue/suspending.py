"""Suspending single jobs, and resuming them."""

from collections.abc import Collection

from queue_operator.backends.protocol import Backend, Lookup, Suspensions
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.validation import Limits, check_texts


async def set_suspended(
    store: Backend, job_ids: Collection[str], namespace: str, on: bool, limits: Limits
) -> list[str]:
    """The ids of those that are left alone, in order. Raises InvalidArgument for a job of a custom
    resource, and where the store cannot do this.
    """
    if not isinstance(store, Suspensions):
        raise InvalidArgument("operation", "this store suspends no jobs")
    check_texts("job_ids", job_ids, limits.id_characters)
    if isinstance(store, Lookup):
        for job in (await store.look_up(job_ids, namespace=namespace)).values():
            refuse_of_resource("job_ids", job, on)
    left = await store.set_suspended({(namespace, job_id): on for job_id in job_ids})
    alone = {job_id for _, job_id in left}
    return [job_id for job_id in dict.fromkeys(job_ids) if job_id in alone]


def refuse_of_resource(field: str, job: Job, on: bool) -> None:
    """What the resource says would be told anew with its next edit."""
    if job.resource is not None:
        raise InvalidArgument(
            field,
            f"{job.id!r} is the job of QueueJob {job.resource.name!r}: set its spec.suspend to "
            f"{str(on).lower()} instead",
        )
