"""What is wrong with a batch of new jobs, for stores that can look jobs up one by one."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from queue_operator.domain.batch import followers, no_parent, together
from queue_operator.domain.errors import DuplicateJob, KeyConflict, QueueError
from queue_operator.domain.idempotency import content_digest
from queue_operator.domain.job import Job

Name = tuple[str, str]
"""A namespace, and an id or an idempotency key in it."""

Holder = tuple[str, bytes]
"""Who holds an idempotency key: a job's id, and the digest of its content."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """What is wrong with the jobs of a batch, by place. A clash stands only when there are no
    `errors`: without the jobs that are refused, its key may be free.
    """

    errors: Mapping[int, QueueError]
    clashes: Mapping[int, QueueError]


def refusals(
    jobs: Mapping[int, Job],
    is_stored: Callable[[Name], bool],
    holder_of: Callable[[Name], Holder | None],
    *,
    atomic: bool,
) -> Refusals:
    """Looks in one order: a job's id is taken, unless it repeats the submission that has its
    key; its key is, by the first of the batch to name it or by one that is stored; a parent is
    missing. Not `atomic`, ask again without the jobs that are refused.
    """
    holders = _holders(jobs, holder_of)
    repeats = {n for n, (holder, _) in holders.items() if holder[1] == content_digest(jobs[n])}
    clashing = holders.keys() - repeats
    new = {_name(job) for n, job in jobs.items() if n not in clashing}
    # A parent may be named by the id of a repeat, which is not stored itself.
    to_store = {_name(job) for n, job in jobs.items() if n not in holders}
    names = {_name(job) for job in jobs.values()}
    errors: dict[int, QueueError] = {}
    # These may find their parent once another job of the batch is refused.
    unsure: set[int] = set()
    for n, job in jobs.items():
        if n in repeats:
            continue
        if is_stored(_name(job)) or (n in clashing and _name(job) in to_store):
            errors[n] = DuplicateJob((job.id,), (n,))
        elif n not in clashing and (place := _missing_parent(job, new, is_stored)) is not None:
            parent = job.depends_on[place]
            errors[n] = no_parent(f"jobs[{n}].", place, parent)
            if (job.namespace, parent) in names:
                unsure.add(n)
    told = {n: error for n, error in errors.items() if n not in unsure} or errors
    if not atomic:
        told = told | _following(jobs, told, holders)
    clashes: dict[int, QueueError] = {}
    for n in sorted(clashing - errors.keys()):
        (job_id, _), place = holders[n]
        if place not in told:
            field = f"jobs[{n}].idempotency_key"
            clashes[n] = KeyConflict(jobs[n].idempotency_key, job_id, field)
    return Refusals(told, clashes)


def _following(
    jobs: Mapping[int, Job], told: Mapping[int, QueueError], held: Collection[int]
) -> dict[int, QueueError]:
    """Those that wait for refused jobs, at once and not one generation each time that is asked."""
    orphans = [n for n, error in told.items() if not isinstance(error, DuplicateJob)]
    waiting = {
        n: job for n, job in jobs.items() if n not in held and (n in orphans or n not in told)
    }
    return dict(followers(waiting, [n for n in orphans if n in waiting]))


def _name(job: Job) -> Name:
    return job.namespace, job.id


def _holders(
    jobs: Mapping[int, Job], holder_of: Callable[[Name], Holder | None]
) -> dict[int, tuple[Holder, int | None]]:
    """Who has the key of each job that is not the first to name it, with the place of a holder
    that is of the batch.
    """
    holders: dict[int, tuple[Holder, int | None]] = {}
    first: dict[Name, tuple[Holder, int]] = {}
    for n, job in jobs.items():
        key = job.namespace, job.idempotency_key
        if not job.idempotency_key:
            continue
        if holder := holder_of(key):
            holders[n] = holder, None
        elif key in first:
            holders[n] = first[key]
        else:
            first[key] = (job.id, content_digest(job)), n
    return holders


def _missing_parent(job: Job, new: set[Name], is_stored: Callable[[Name], bool]) -> int | None:
    """The place of the first parent that does not exist."""
    names = ((job.namespace, parent) for parent in job.depends_on)
    missing = (n for n, name in enumerate(names) if name not in new and not is_stored(name))
    return next(missing, None)


def first_of(refused: Refusals) -> QueueError | None:
    """Of all that is wrong with a batch, what its caller is told."""
    errors = {**refused.errors, **refused.clashes}
    return together(errors) if errors else None
