"""Searches among jobs at hand: filter, sort, cut. For stores without an index to ask."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from queue_operator.backends.paging import Position, decode_cursor, encode_cursor
from queue_operator.backends.protocol import (
    COUNT_BOUND,
    FailurePage,
    FailureSearch,
    JobPage,
    JobSearch,
    SearchOrder,
)
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.domain.tags import matches
from queue_operator.domain.views import phase

_START = datetime.min

Numbered = tuple[int, Job]
"""A job and its number in order of submission."""


def _created(one: Numbered) -> Position:
    return one[1].created_at or _START, one[0]


def _updated(one: Numbered) -> Position:
    return one[1].updated_at or _START, one[0]


def _failed_at(one: Numbered) -> Position:
    return one[1].failed_at or _START, one[0]


def _is_within(at: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    return at is not None and (not after or at > after) and (not before or at < before)


def _matches(job: Job, search: JobSearch, now: datetime) -> bool:
    return (
        (not search.types or job.type in search.types)
        and (not search.states or job.state in search.states)
        and (not search.priorities or job.priority in search.priorities)
        and matches(search.tags, job.tags)
        and _is_within(job.created_at, search.created_after, search.created_before)
        and _is_within(job.updated_at, search.updated_after, None)
        and (not search.phases or phase(job, now) in search.phases)
    )


def _cut(
    found: list[Numbered],
    search: JobSearch | FailureSearch,
    key: Callable[[Numbered], Position],
    down: bool,
) -> tuple[tuple[Job, ...], str]:
    """One page of what was found, and the cursor of the next."""
    found.sort(key=key, reverse=down)
    start = decode_cursor(search)
    rest = [
        one for one in found if start is None or (key(one) < start if down else key(one) > start)
    ]
    jobs = rest[: search.limit]
    cursor = encode_cursor(search, key(jobs[-1])) if len(rest) > search.limit else ""
    return tuple(job for _, job in jobs), cursor


def page(stored: Iterable[Numbered], search: JobSearch, now: datetime) -> JobPage:
    """One page of a search among the jobs of its namespace."""
    found = [one for one in stored if _matches(one[1], search, now)]
    updated = search.order is SearchOrder.UPDATED_DESC
    down = search.order is not SearchOrder.CREATED_ASC
    jobs, cursor = _cut(found, search, _updated if updated else _created, down)
    if not search.count:
        return JobPage(jobs=jobs, total_count=None, next_cursor=cursor)
    count = min(len(found), COUNT_BOUND)
    exact = len(found) <= COUNT_BOUND
    return JobPage(jobs=jobs, total_count=count, total_is_exact=exact, next_cursor=cursor)


def without_content(job: Job) -> Job:
    """The record without payload and result, which may be large."""
    if not job.payload and job.result is None:
        return job
    return replace(job, payload=b"", result=None)


def _failed(job: Job, search: FailureSearch) -> bool:
    states = search.states or {JobState.DEAD_LETTER, JobState.FAILED_RETRY}
    error = job.error
    return (
        job.state in states
        and error is not None
        and (not search.categories or error.category in search.categories)
        and (not search.types or job.type in search.types)
        and search.error_code in ("", error.code)
        # The phase of a failure does not depend on the time.
        and (not search.phases or phase(job, _START) in search.phases)
        and _is_within(job.failed_at, search.failed_after, search.failed_before)
    )


def page_of_failures(stored: Iterable[Numbered], search: FailureSearch) -> FailurePage:
    """One page of the failures of a namespace, and how all of them spread."""
    found = [one for one in stored if _failed(one[1], search)]
    jobs, cursor = _cut(found, search, _failed_at, down=True)
    if not search.count:
        return FailurePage(jobs=jobs, total_count=None, next_cursor=cursor)
    errors = [job.error for _, job in found if job.error]
    return FailurePage(
        jobs=jobs,
        total_count=len(found),
        next_cursor=cursor,
        by_category=Counter(error.category for error in errors),
        by_code=Counter(error.code for error in errors),
        by_type=Counter(job.type for _, job in found),
    )
