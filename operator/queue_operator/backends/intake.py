"""What is wrong with a batch of new jobs, for stores that can look jobs up one by one."""

from collections.abc import Callable, Mapping

from queue_operator.domain.errors import DuplicateJob, InvalidArgument, KeyConflict, QueueError
from queue_operator.domain.idempotency import content_digest
from queue_operator.domain.job import Job

Name = tuple[str, str]
"""A namespace, and an id or an idempotency key in it."""

Holder = tuple[str, bytes]
"""Who holds an idempotency key: a job's id, and the digest of its content."""


def refusals(
    jobs: Mapping[int, Job],
    is_stored: Callable[[Name], bool],
    holder_of: Callable[[Name], Holder | None],
) -> dict[int, QueueError]:
    """What is wrong with each job, by place, looked for in one order: its id is taken, unless it
    repeats the submission that has its key; its key is; a parent is missing.

    Of two jobs of the batch with one key the first holds it, unless it is refused itself: ask
    again without those that are.
    """
    errors: dict[int, QueueError] = {}
    names = {(job.namespace, job.id): n for n, job in jobs.items()}
    first: dict[Name, Holder] = {}
    for n, job in jobs.items():
        key = job.namespace, job.idempotency_key
        digest = content_digest(job) if job.idempotency_key else b""
        holder = (holder_of(key) or first.get(key)) if job.idempotency_key else None
        if holder is not None and holder[1] == digest:
            continue
        if is_stored((job.namespace, job.id)):
            errors[n] = DuplicateJob((job.id,), (n,))
        elif holder is not None:
            if names.get((job.namespace, holder[0])) not in errors:
                field = f"jobs[{n}].idempotency_key"
                errors[n] = KeyConflict(job.idempotency_key, holder[0], field)
        elif error := _missing_parent(n, job, lambda name: name in names or is_stored(name)):
            errors[n] = error
        if holder is None and job.idempotency_key:
            first[key] = job.id, digest
    return errors


def _missing_parent(n: int, job: Job, is_known: Callable[[Name], bool]) -> InvalidArgument | None:
    for place, parent in enumerate(job.depends_on):
        if not is_known((job.namespace, parent)):
            reason = f"there is no job {parent!r} to wait for"
            return InvalidArgument(f"jobs[{n}].depends_on[{place}]", reason)
    return None


def first_of(errors: Mapping[int, QueueError]) -> QueueError:
    """Of all that is wrong with a batch, what its caller is told."""
    taken = [one for one in errors.values() if isinstance(one, DuplicateJob)]
    if taken:
        ids, indexes = (one.job_ids[0] for one in taken), (one.indexes[0] for one in taken)
        return DuplicateJob(tuple(ids), tuple(indexes))
    clashes = (one for one in errors.values() if isinstance(one, KeyConflict))
    return next(clashes, None) or next(iter(errors.values()))
