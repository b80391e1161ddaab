"""What is wrong with the jobs of a batch, beside what is wrong with each: all of it, by place."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from queue_operator.domain.dependencies import on_circles
from queue_operator.domain.errors import (
    DuplicateJob,
    Fault,
    InvalidArgument,
    KeyConflict,
    PayloadTooLarge,
    QueueError,
    with_findings,
)
from queue_operator.domain.job import Job
from queue_operator.domain.limits import DEFAULT_LIMITS, Limits
from queue_operator.domain.validation import check_in_turn, check_sequence

_PLACE: Final = re.compile(r"^jobs\[\d+\]")

Name = tuple[str, str]
"""A namespace, and an id in it."""


class CheckedJobs(tuple[Job, ...]):
    """Jobs that `check_job` has let pass, each, so that a store with these limits need not look
    again. Of a batch more must be right.
    """

    limits: Limits

    def __new__(cls, jobs: Iterable[Job], limits: Limits) -> "CheckedJobs":
        checked = super().__new__(cls, jobs)
        checked.limits = limits
        return checked


def check_each(jobs: Sequence[Job], limits: Limits = DEFAULT_LIMITS) -> dict[int, QueueError]:
    """What is wrong with each job of a batch, by position; the first of two equal ids is right,
    and so is one that may repeat the first: the store compares what they hold.

    Positions are part of the field's name (`jobs[3].type`). Of a circle of jobs that wait for
    each other all are wrong.
    """
    check_sequence("jobs", jobs)
    errors: dict[int, QueueError] = {}
    first_at: dict[Name, int] = {}
    checked = isinstance(jobs, CheckedJobs) and jobs.limits == limits
    check = check_in_turn(limits)
    for index, job in enumerate(jobs):
        try:
            if not checked:
                check(job)
        except InvalidArgument as error:
            errors[index] = _placed(index, error)
            continue
        first = first_at.setdefault(_name(job), index)
        if first != index and not may_repeat(job, jobs[first]):
            errors[index] = DuplicateJob((job.id,), (index,))
    for namespace, job_id in _circular([job for n, job in enumerate(jobs) if n not in errors]):
        place = first_at[namespace, job_id]
        errors[place] = InvalidArgument(
            f"jobs[{place}].depends_on", f"job {job_id!r} waits for itself through the batch"
        )
    return errors


def check_batch(jobs: Sequence[Job], limits: Limits = DEFAULT_LIMITS) -> None:
    """Raises what `together` makes of what `check_each` finds; what is wrong with a job itself
    comes before ids that are given twice.
    """
    errors = check_each(jobs, limits)
    if errors:
        wrong = {n: one for n, one in errors.items() if not isinstance(one, DuplicateJob)}
        raise together(errors, leading=wrong or errors)


def may_repeat(job: Job, first: Job) -> bool:
    """Whether one of the same id is the same submission again, as it may be sent apart, unless it
    holds something else.
    """
    return job.idempotency_key != "" and job.idempotency_key == first.idempotency_key


def together(
    errors: Mapping[int, QueueError], *, leading: Mapping[int, QueueError] | None = None
) -> QueueError:
    """Of all that is wrong with a batch, by place, one error to raise: ids that are taken, else
    keys that are, else the first, of the `leading`. Its `findings` name all that is wrong.
    """
    lead = _first(dict(sorted((errors if leading is None else leading).items())))
    findings = [_finding(n, errors[n]) for n in sorted(errors)]
    return with_findings(lead, findings, len(findings)) if len(findings) > 1 else lead


def _first(errors: Mapping[int, QueueError]) -> QueueError:
    taken = [one for one in errors.values() if isinstance(one, DuplicateJob)]
    if taken:
        ids, indexes = (one.job_ids[0] for one in taken), (one.indexes[0] for one in taken)
        return DuplicateJob(tuple(ids), tuple(indexes))
    clashes = {n: one for n, one in errors.items() if isinstance(one, KeyConflict)}
    if len(clashes) > 1:
        one = next(iter(clashes.values()))
        holders = tuple(clash.job_id for clash in clashes.values())
        return KeyConflict(one.key, one.job_id, one.field, tuple(clashes), holders)
    return next(iter([*clashes.values(), *errors.values()]))


def _finding(place: int, error: QueueError) -> Fault:
    match error:
        case DuplicateJob():
            return Fault(f"jobs[{place}].id", error.code, "already exists", error.job_ids[0])
        case KeyConflict():
            return Fault(error.field, error.code, error.reason, error.job_id)
        case InvalidArgument():
            return Fault(error.field, error.code, error.reason)
    return Fault(f"jobs[{place}]", error.code, error.message)


def followers(jobs: Mapping[int, Job], refused: Collection[int]) -> dict[int, InvalidArgument]:
    """By place, what is wrong with the jobs that wait for the refused ones, and with those that
    wait for these, and so on: they lack a parent.
    """
    children: defaultdict[Name, list[int]] = defaultdict(list)
    for n, job in jobs.items():
        for parent in job.depends_on:
            children[job.namespace, parent].append(n)
    gone = {_name(jobs[n]) for n in refused}
    line, found = list(gone), set[int]()
    while line:
        new = {n for n in children[line.pop()] if n not in found and n not in refused}
        found |= new
        names = {_name(jobs[n]) for n in new} - gone
        gone |= names
        line += names
    return {n: _lacking(n, jobs[n], gone) for n in sorted(found)}


def _lacking(place: int, job: Job, gone: Collection[Name]) -> InvalidArgument:
    at = next(n for n, one in enumerate(job.depends_on) if (job.namespace, one) in gone)
    return no_parent(f"jobs[{place}].", at, job.depends_on[at])


def no_parent(job: str, place: int, parent: str) -> InvalidArgument:
    """What is wrong with a job that waits for one that is not there. `job` begins its fields."""
    return InvalidArgument(f"{job}depends_on[{place}]", f"there is no job {parent!r} to wait for")


def moved_to(place: int, error: QueueError) -> QueueError:
    """The same error about a job that is at `place` of the caller's batch."""
    match error:
        case DuplicateJob():
            return DuplicateJob(error.job_ids, (place,))
        case KeyConflict():
            return KeyConflict(error.key, error.job_id, f"jobs[{place}].idempotency_key")
        case PayloadTooLarge():
            field = _PLACE.sub(f"jobs[{place}]", error.field)
            return PayloadTooLarge(field, error.size, error.limit)
        case InvalidArgument():
            return InvalidArgument(_PLACE.sub(f"jobs[{place}]", error.field), error.reason)
    return error


def unplaced(error: QueueError) -> QueueError:
    """The same error about a job that came alone."""
    match error:
        case KeyConflict():
            return KeyConflict(error.key, error.job_id)
        case InvalidArgument() if not isinstance(error, DuplicateJob | PayloadTooLarge):
            return InvalidArgument(_PLACE.sub("", error.field).lstrip("."), error.reason)
    return error


def _placed(index: int, error: InvalidArgument) -> InvalidArgument:
    # What is no job at all has no field.
    field = f"jobs[{index}].{error.field}".removesuffix(".job")
    if isinstance(error, PayloadTooLarge):
        return PayloadTooLarge(field, error.size, error.limit)
    return InvalidArgument(field, error.reason)


def _circular(jobs: Iterable[Job]) -> list[Name]:
    """Names of jobs that wait for themselves through others of `jobs`."""
    parents: defaultdict[str, dict[str, Sequence[str]]] = defaultdict(dict)
    for job in jobs:
        if job.depends_on:
            parents[job.namespace][job.id] = job.depends_on
    return [(name, one) for name, mine in parents.items() for one in on_circles(mine)]


def _name(job: Job) -> Name:
    return job.namespace, job.id
