"""Searches: which jobs match, page by page."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.paging import decode_cursor, encode_cursor
from queue_operator.backends.postgres.connection import Pool, again_when_undone, snapshot
from queue_operator.backends.postgres.looking import (
    NEWEST_CHANGE,
    NEWEST_FAILURE,
    CountedLanes,
    Looking,
    find_lanes,
)
from queue_operator.backends.postgres.merging import Place, TooFar
from queue_operator.backends.postgres.reading import read_jobs
from queue_operator.backends.postgres.sources import (
    FIRST,
    LAST,
    Condition,
    Order,
    place_of,
    time_of,
)
from queue_operator.backends.protocol import (
    COUNT_BOUND,
    FailurePage,
    FailureSearch,
    JobPage,
    JobSearch,
    SearchOrder,
)
from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase, refining, states_of

_TOTALS: Final = load(__package__, "failure_totals")
_SETTINGS: Final = "SET LOCAL enable_hashjoin = on; SET LOCAL enable_memoize = off"
_ORDERS: Final = {
    SearchOrder.CREATED_ASC: Order(by_change=False, descending=False),
    SearchOrder.CREATED_DESC: Order(by_change=False, descending=True),
    SearchOrder.UPDATED_DESC: NEWEST_CHANGE,
}
_FAILURES: Final = frozenset({JobState.DEAD_LETTER, JobState.FAILED_RETRY})
_FEW: Final = 1000
"""So many matches are sorted rather than looked for."""
_SPARSE: Final = 8
"""Where at most one job of so many matches, a walk in the order of creation may be long."""


class Finder:
    """Job and failure searches. One whose filters leave more to read than a statement can in
    `patience_s` is refused.
    """

    def __init__(self, pool: Pool, *, patience_s: float = 5.0) -> None:
        self._pool = pool
        self._patience_s = patience_s

    @again_when_undone
    async def search(self, search: JobSearch) -> JobPage:
        beyond = _beyond(search)
        async with self._reading("states", "add states, types, tags or a time") as connection:
            lanes = await find_lanes(
                connection, search.namespace, search.types, search.priorities, search.tags
            )
            if search.count:
                found, total, exact = await _find_and_count(connection, lanes, search, beyond)
            else:
                found, total, exact = await _find(connection, lanes, search, beyond), None, True
            jobs = await _read_page(connection, search, found)
        return JobPage(
            jobs=jobs,
            total_count=total,
            total_is_exact=exact,
            next_cursor=_cursor(search, found),
        )

    @again_when_undone
    async def search_failures(self, search: FailureSearch) -> FailurePage:
        beyond = _beyond(search)
        condition = _failing(search)
        async with self._reading("failed_after", "add failed_after or types") as connection:
            lanes = await find_lanes(connection, search.namespace, search.types)
            totals = FailurePage(jobs=(), total_count=None)
            if search.count:
                totals = await _totals(connection, lanes, condition)
            some = lanes if totals.total_count != 0 else CountedLanes(())
            looking = Looking(connection, some, condition, NEWEST_FAILURE)
            found = await _page(looking, search, beyond)
            jobs = await _read_page(connection, search, found)
        return replace(totals, jobs=jobs, next_cursor=_cursor(search, found))

    @asynccontextmanager
    async def _reading(self, field: str, advice: str) -> AsyncIterator[AsyncConnection[TupleRow]]:
        async with snapshot(self._pool, self._patience_s) as connection:
            try:
                await connection.execute(_SETTINGS)
                yield connection
            except psycopg.errors.QueryCanceled:
                reason = f"this search reads too many jobs for {self._patience_s:g} s; {advice}"
                raise InvalidArgument(field, reason) from None


async def _find(
    connection: AsyncConnection[TupleRow],
    lanes: CountedLanes,
    search: JobSearch,
    beyond: Place | None,
) -> list[Place]:
    """The page and one more."""
    condition, order = _asked(search), _ORDERS[search.order]
    looking = Looking(connection, lanes, condition, order)
    if search.updated_after is None or order.by_change:
        return await _page(looking, search, beyond)
    changed = Looking(connection, lanes, condition, NEWEST_CHANGE)
    few = await changed.take(_FEW + 1)
    if len(few) > _FEW:
        with suppress(TooFar):
            return [seen.place for seen in await looking.take_near(search.limit + 1, beyond)]
        few = await changed.take(COUNT_BOUND + 1)
    if len(few) > COUNT_BOUND:
        return await _page(looking, search, beyond)
    return _cut([(seen.created_us, seen.place[1]) for seen in few], search, order, beyond)


async def _find_and_count(
    connection: AsyncConnection[TupleRow],
    lanes: CountedLanes,
    search: JobSearch,
    beyond: Place | None,
) -> tuple[list[Place], int, bool]:
    """The page and one more, and how many match in all, exactly or at least."""
    condition, order = _asked(search), _ORDERS[search.order]
    looking = Looking(connection, lanes, condition, order)
    if search.updated_after is not None and not order.by_change:
        changed = Looking(connection, lanes, condition, NEWEST_CHANGE)
        total = await changed.count(COUNT_BOUND + 1)
        is_exact = total <= COUNT_BOUND
        if is_exact and total * _SPARSE <= lanes.jobs(condition.states):
            # Few changed, and they may lie anywhere in the order.
            places = [(seen.created_us, seen.place[1]) for seen in await changed.take(total)]
            return _cut(places, search, order, beyond), total, True
        return await _page(looking, search, beyond), min(total, COUNT_BOUND), is_exact
    found = await _page(looking, search, beyond)
    if condition.only_states:
        return found, lanes.jobs(condition.states), True
    if beyond is None and len(found) <= search.limit:
        return found, len(found), True
    if condition.only_dead:
        dead = await looking.count_dead(COUNT_BOUND + 1)
        others = condition.states - {JobState.DEAD_LETTER}
        total = dead + lanes.jobs(others)
        return (found, total, True) if dead <= COUNT_BOUND else (found, COUNT_BOUND, False)
    by_creation = search.created_after is not None or search.created_before is not None
    rule = _ORDERS[SearchOrder.CREATED_DESC] if by_creation else NEWEST_CHANGE
    total = await Looking(connection, lanes, condition, rule).count(COUNT_BOUND + 1)
    return found, min(total, COUNT_BOUND), total <= COUNT_BOUND


async def _page(
    looking: Looking, search: JobSearch | FailureSearch, beyond: Place | None
) -> list[Place]:
    return [seen.place for seen in await looking.take(search.limit + 1, beyond)]


def _cut(
    places: Sequence[Place], search: JobSearch, order: Order, beyond: Place | None
) -> list[Place]:
    """The page and one more out of all matches."""
    ordered = sorted(places, reverse=order.descending)
    if beyond is not None:
        ordered = [p for p in ordered if (p < beyond if order.descending else p > beyond)]
    return ordered[: search.limit + 1]


def _asked(search: JobSearch) -> Condition:
    states, phases = _seen_as(search, frozenset(JobState))
    return Condition(
        states=states,
        created_after=search.created_after or FIRST,
        created_before=search.created_before or LAST,
        changed_after=search.updated_after or FIRST,
        phases=phases,
    )


def _failing(search: FailureSearch) -> Condition:
    states, phases = _seen_as(search, _FAILURES)
    return Condition(
        states=states,
        failed_after=search.failed_after or FIRST,
        failed_before=search.failed_before or LAST,
        phases=phases,
        failed=True,
        categories=search.categories,
        code=search.error_code,
    )


def _seen_as(
    search: JobSearch | FailureSearch, every: frozenset[JobState]
) -> tuple[frozenset[JobState], frozenset[Phase]]:
    """The states in which a match may be, and the phases that tell the jobs of one apart."""
    states = search.states or every
    if not search.phases:
        return states, frozenset()
    states &= states_of(search.phases)
    return states, refining(search.phases, states)


async def _totals(
    connection: AsyncConnection[TupleRow], lanes: CountedLanes, condition: Condition
) -> FailurePage:
    """How the failures that match spread: a page without its jobs."""
    categories: Counter[ErrorCategory] = Counter()
    codes: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    parameters = {**condition.parameters(), "lanes": lanes.having(condition.states)}
    cursor = await connection.execute(_TOTALS, parameters)
    for kind, category, code, jobs in await cursor.fetchall():
        categories[ErrorCategory(category)] += jobs
        codes[code] += jobs
        kinds[kind] += jobs
    return FailurePage(
        jobs=(), total_count=kinds.total(), by_category=categories, by_code=codes, by_type=kinds
    )


async def _read_page(
    connection: AsyncConnection[TupleRow],
    search: JobSearch | FailureSearch,
    found: Sequence[Place],
) -> tuple[Job, ...]:
    numbers = [number for _, number in found[: search.limit]]
    jobs = await read_jobs(connection, numbers, whole=False) if numbers else {}
    return tuple(jobs[number] for number in numbers)


def _beyond(search: JobSearch | FailureSearch) -> Place | None:
    """The last place of the page before. Raises InvalidArgument for another search's cursor."""
    position = decode_cursor(search)
    if position is None:
        return None
    at, number = position
    return place_of(at), number


def _cursor(search: JobSearch | FailureSearch, found: Sequence[Place]) -> str:
    """Of the page after this one, of which `found` has the first job."""
    if len(found) <= search.limit:
        return ""
    at, number = found[search.limit - 1]
    return encode_cursor(search, (time_of(at), number))
