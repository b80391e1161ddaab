"""One search: what it may find, on one connection and at one moment."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrays import Int8s, Times
from queue_operator.backends.postgres.counts import TAIL
from queue_operator.backends.postgres.merging import (
    Fetched,
    Merge,
    Place,
    Seen,
    Stream,
    TooFar,
)
from queue_operator.backends.postgres.sources import (
    ASIDE,
    DEAD,
    DONE,
    EARLY,
    ENDED,
    FAILED,
    GATHERED,
    JOBS,
    RUNNING,
    WAITING,
    Condition,
    Order,
    Source,
    counting,
    place_of,
    statement,
    time_of,
)
from queue_operator.backends.sql import load
from queue_operator.domain.ordering import PRIORITY_BONUS, Priority
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase

NEWEST_CHANGE: Final = Order(by_change=True, descending=True)
NEWEST_FAILURE: Final = Order(by_change=False, descending=True, by_failure=True)

_LANES: Final = load(__package__, "search_lanes", tail=TAIL)
_DEAD: Final = load(__package__, "search_count_dead")
_BONUSES: Final = {p.value: bonus.total_seconds() for p, bonus in PRIORITY_BONUS.items()}
_COMPLETED: Final = frozenset({JobState.COMPLETED})
# What runs is read whole, the less of it the more is known of the others.
_BY_STATE: Final = (WAITING, ASIDE, ENDED, RUNNING)
_FEW_JOBS: Final = 20_000
_LEAST_LOOK: Final = 2
_CHUNK: Final = 1000
_ALL: Final = 2**31 - 1
_TOGETHER: Final = (0,)
"""Stands for all lanes where they are one stream."""
# How many jobs are looked at before another way is tried.
_VERY_NEAR: Final = 5_000
_NEAR: Final = 20_000
_FAR: Final = 500_000


class Counts(NamedTuple):
    """Lanes that have jobs in one state, and each how many. The bonus is that of their priority,
    and only told of jobs that wait to be claimed.
    """

    state: JobState
    bonus_s: float
    lanes: Sequence[int]
    jobs: Sequence[int]


class CountedLanes:
    """Lanes and how many jobs they have by state. As columns: there may be very many."""

    def __init__(self, counts: Sequence[Counts]) -> None:
        self._counts = counts

    def jobs(self, states: Collection[JobState]) -> int:
        """How many there are in these states."""
        return sum(sum(some.jobs) for some in self._counts if some.state in states)

    def having(self, states: Collection[JobState]) -> list[int]:
        """The lanes that have such jobs."""
        lanes = (some.lanes for some in self._counts if some.state in states)
        return list(dict.fromkeys(chain.from_iterable(lanes)))

    def all_jobs(self, states: Collection[JobState]) -> int:
        """How many jobs the lanes that have such jobs have in whatever state."""
        lanes = set(self.having(states))
        return sum(
            jobs
            for some in self._counts
            for lane, jobs in zip(some.lanes, some.jobs, strict=True)
            if lane in lanes
        )

    def bonuses(self) -> dict[int, float]:
        """Of each lane whose jobs count older than they are, by how many seconds."""
        return {lane: some.bonus_s for some in self._counts if some.bonus_s for lane in some.lanes}


async def find_lanes(
    connection: AsyncConnection[TupleRow],
    namespace: str,
    types: Collection[str],
    priorities: Collection[Priority] = (),
    tags: Collection[str] = (),
) -> CountedLanes:
    """The lanes with jobs that a search filters on."""
    parameters = {
        "namespace": namespace,
        "types": sorted(types),
        "priorities": [priority.value for priority in priorities],
        "tags": sorted(tags),
    }
    cursor = await connection.execute(_LANES, parameters, binary=True)
    return CountedLanes(
        [
            Counts(JobState(state), _BONUSES.get(priority, 0.0), numbers, jobs)
            for state, priority, numbers, jobs in await cursor.fetchall()
        ]
    )


class Looking:
    """Jobs of `lanes` that meet `condition`, in `order`."""

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        lanes: CountedLanes,
        condition: Condition,
        order: Order,
    ) -> None:
        self._connection = connection
        self._lanes = lanes
        self._condition = condition
        self._order = order
        after, before = condition.bounds(order)
        self._until = after if order.descending else before
        self._first = order.first(after, before)

    async def take(self, count: int, beyond: Place | None = None) -> list[Seen]:
        """The first matches beyond a place."""
        sources = self._sources()
        if sources != (JOBS,) or not self._order.descending:
            return await self._merge(sources, count, beyond).take(count)
        try:
            return await self._merge(sources, count, beyond, most=_NEAR).take(count)
        except TooFar:
            pass
        try:
            return await self._take_by_completion(count, beyond)
        except TooFar:
            return await self._merge(sources, count, beyond).take(count)

    async def take_near(self, count: int, beyond: Place | None = None) -> list[Seen]:
        """The same. Raises TooFar where many that do not match lie before."""
        return await self._merge(self._sources(), count, beyond, most=_VERY_NEAR).take(count)

    async def count(self, bound: int) -> int:
        """How many match, or `bound` if there are as many or more."""
        asked, sources = self._condition, self._sources()
        if GATHERED in sources and self._lanes.all_jobs(asked.states) <= _FEW_JOBS:
            # All have to be looked up, which is done in one go where no order is wanted.
            every = Order(by_change=False, descending=True)
            return await Looking(self._connection, self._lanes, asked, every).count(bound)
        after, before = asked.bounds(self._order)
        limits = {"after": after, "before": before, "until": self._until, "want": bound}
        total = 0
        for source, lanes in self._parts(sources):
            stream = self._stream(source, lanes, self._first, _ALL)
            cursor = await self._connection.execute(
                counting(source, self._order),
                {**self._parameters(stream), **limits, "give": _ALL, "bound": bound - total},
            )
            [[found]] = await cursor.fetchall()
            total += found
            if total >= bound:
                break
        return total

    async def count_dead(self, bound: int) -> int:
        """How many of the dead are of the kind asked for, or `bound`."""
        lanes = [lane for _, some in self._parts((DEAD,)) for lane in some]
        wanted = {
            "lanes": lanes,
            "permanent": Phase.FAILED in self._condition.phases,
            "bound": bound,
        }
        [[found]] = await (await self._connection.execute(_DEAD, wanted)).fetchall()
        return int(found)

    async def _take_by_completion(self, count: int, beyond: Place | None) -> list[Seen]:
        """The newest matches, where those that completed lie behind very many that did not.

        Bar a few that have an index of their own, no job completed before it was created. So
        none belongs to a page that completed before the page's oldest job was created.
        """
        others = await self._merge((*_BY_STATE, EARLY), count, beyond).take(count)
        page = {seen.place: seen for seen in others}
        completions = await self._completions()
        while True:
            chunk = await completions.take(_CHUNK)
            for seen in chunk:
                place = seen.created_us, seen.place[1]
                if beyond is None or place < beyond:
                    page[place] = seen._replace(place=place)
            page = {place: page[place] for place in sorted(page, reverse=True)[:count]}
            oldest = min(page, default=(0, 0))
            full = len(page) == count and chunk and chunk[-1].place[0] < oldest[0]
            if full or len(chunk) < _CHUNK:
                return list(page.values())

    async def _completions(self) -> Merge[Source]:
        """Those that completed, the last one first."""
        asked = self._condition
        condition = replace(
            asked,
            states=_COMPLETED,
            # What was created later was completed later, too.
            changed_after=max(asked.changed_after, asked.created_after),
        )
        done = Looking(self._connection, self._lanes, condition, NEWEST_CHANGE)
        return done._merge(done._sources(), _CHUNK, None, most=_FAR)

    def _sources(self) -> tuple[Source, ...]:
        if self._order.by_failure:
            return (FAILED, DEAD)
        completed = JobState.COMPLETED in self._condition.states
        if not self._order.by_change:
            return (JOBS,) if completed else _BY_STATE
        if not completed:
            return _BY_STATE
        few = self._lanes.all_jobs(_COMPLETED) <= _FEW_JOBS
        return (WAITING, ASIDE, ENDED, GATHERED if few else DONE, RUNNING)

    def _parts(self, sources: Sequence[Source]) -> Iterator[tuple[Source, list[int]]]:
        """The sources that may have matches, each with the lanes that have such jobs."""
        asked = self._condition
        for source in sources:
            # What is due is neither delayed nor waiting for others.
            if source is WAITING and asked.phases and Phase.SCHEDULED not in asked.phases:
                continue
            if lanes := self._lanes.having(source.states & asked.states):
                yield source, lanes

    def _merge(
        self,
        sources: Sequence[Source],
        count: int,
        beyond: Place | None,
        *,
        most: int | None = None,
    ) -> Merge[Source]:
        parts = list(self._parts(sources))
        size = sum(1 if source.whole else len(lanes) for source, lanes in parts)
        look = min(count, 2 * count // max(size, 1) + _LEAST_LOOK)
        streams = [
            self._stream(source, lanes, beyond or self._first, count if source.whole else look)
            for source, lanes in parts
        ]
        return Merge(streams, self._fetch, descending=self._order.descending, most=most)

    @staticmethod
    def _stream(source: Source, lanes: Sequence[int], place: Place, look: int) -> Stream[Source]:
        return Stream(source, _TOGETHER if source.whole else lanes, place, look)

    async def _fetch(
        self, source: Source, streams: Sequence[Stream[Source]], want: int, end: Place | None
    ) -> Fetched:
        lanes = [lane for stream in streams for lane in stream.lanes]
        # Where not all match, one more of each lane, which tells how far that has got.
        more = 0 if self._condition.has_all(source, self._order) else len(lanes)
        limits = {"want": want, "give": want + more, "until": self._no_further(end)}
        cursor = await self._connection.execute(
            statement(source, self._order), {**self._parameters(*streams), **limits}, binary=True
        )
        rows: list[Seen] = []
        left = want
        for stream, at, number, created_at, matched, is_last in await cursor.fetchall():
            place = place_of(at), number
            rows.append(Seen(place, place_of(created_at), matched, is_last, lanes[stream - 1]))
            left -= matched
            if not left:
                break
        is_cut = not left or len(rows) == want + more
        return Fetched(rows, rows[-1].place if is_cut else None)

    def _no_further(self, end: Place | None) -> datetime:
        """The far end, exclusive, where nothing beyond a place is wanted."""
        if end is None:
            return self._until
        if self._order.descending:
            return time_of(max(end[0] - 1, place_of(self._until)))
        return time_of(min(end[0] + 1, place_of(self._until)))

    def _parameters(self, *streams: Stream[Source]) -> dict[str, Any]:
        source, look = streams[0].source, streams[0].look
        lanes = [lane for stream in streams for lane in stream.lanes]
        ats = [at for s in streams for at in [time_of(s.place[0])] * len(s.lanes)]
        nos = [no for s in streams for no in [s.place[1]] * len(s.lanes)]
        bonus = self._lanes.bonuses() if source.by_turn else {}
        asked = (
            self._lanes.having(source.states & self._condition.states) if source.whole else lanes
        )
        return {
            **self._condition.parameters(),
            **self._condition.places(),
            "lanes": asked,
            "ats": Times(ats),
            "nos": Int8s(nos),
            "bonuses": [bonus.get(lane, 0.0) for lane in lanes],
            "look": look,
        }
