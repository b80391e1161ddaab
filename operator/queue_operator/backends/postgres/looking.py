"""One search: what it may find, on one connection and at one moment."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

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

_LANES: Final = load(__package__, "search_lanes")
_DEAD: Final = load(__package__, "search_count_dead")
_BONUSES: Final = {p.value: bonus.total_seconds() for p, bonus in PRIORITY_BONUS.items()}
_COMPLETED: Final = frozenset({JobState.COMPLETED})
_BY_STATE: Final = (WAITING, ASIDE, RUNNING, ENDED)
_FEW_JOBS: Final = 20_000
_LEAST_LOOK: Final = 4
_CHUNK: Final = 1000
_ALL: Final = 2**31 - 1
# How many jobs are looked at before another way is tried.
_VERY_NEAR: Final = 5_000
_NEAR: Final = 20_000
_FAR: Final = 500_000


@dataclass(frozen=True, slots=True)
class CountedLane:
    """A lane and how many jobs it has by state; states without jobs are left out."""

    id: int
    type: str
    bonus_s: float
    jobs: Mapping[str, int]

    def of(self, states: Collection[JobState]) -> int:
        return sum(self.jobs.get(state.value, 0) for state in states)


async def find_lanes(
    connection: AsyncConnection[TupleRow],
    namespace: str,
    types: Collection[str],
    priorities: Collection[Priority] = (),
    tags: Collection[str] = (),
) -> list[CountedLane]:
    """The lanes with jobs that a search filters on."""
    parameters = {
        "namespace": namespace,
        "types": sorted(types),
        "priorities": [priority.value for priority in priorities],
        "tags": sorted(tags),
    }
    cursor = await connection.execute(_LANES, parameters, binary=True)
    return [
        CountedLane(number, kind, _BONUSES[priority], dict(zip(states, jobs, strict=True)))
        for number, kind, priority, states, jobs in await cursor.fetchall()
    ]


class Looking:
    """Jobs of `lanes` that meet `condition`, in `order`."""

    def __init__(
        self,
        connection: AsyncConnection[TupleRow],
        lanes: Sequence[CountedLane],
        condition: Condition,
        order: Order,
    ) -> None:
        self._connection = connection
        self._lanes = {lane.id: lane for lane in lanes}
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
        after, before = self._condition.bounds(self._order)
        ends = {"after": after, "before": before}
        total = 0
        for source, lanes in self._parts(self._sources()):
            streams = self._streams(source, lanes, self._first, _ALL)
            limits = {"want": bound, "give": _ALL, "bound": bound - total}
            cursor = await self._connection.execute(
                counting(source, self._order),
                {**self._parameters(streams, _ALL), **ends, **limits},
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
        done = Looking(self._connection, [*self._lanes.values()], condition, NEWEST_CHANGE)
        return done._merge(done._sources(), _CHUNK, None, most=_FAR)

    def _sources(self) -> tuple[Source, ...]:
        if self._order.by_failure:
            return (FAILED, DEAD)
        completed = JobState.COMPLETED in self._condition.states
        if not self._order.by_change:
            return (JOBS,) if completed else _BY_STATE
        if not completed:
            return _BY_STATE
        held = [lane for lane in self._lanes.values() if lane.of(_COMPLETED)]
        few = sum(sum(lane.jobs.values()) for lane in held) <= _FEW_JOBS
        return (*_BY_STATE, GATHERED if few else DONE)

    def _parts(self, sources: Sequence[Source]) -> Iterator[tuple[Source, list[int]]]:
        """The sources that may have matches, each with the lanes that have such jobs."""
        asked = self._condition
        for source in sources:
            # What is due is neither delayed nor waiting for others.
            if source is WAITING and asked.phases and Phase.SCHEDULED not in asked.phases:
                continue
            # Of plain text, which is hashed much faster than a state, and there may be many lanes.
            states = {state.value for state in source.states & asked.states}
            lanes = [lane.id for lane in self._lanes.values() if not states.isdisjoint(lane.jobs)]
            if lanes:
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
            stream
            for source, lanes in parts
            for stream in self._streams(source, lanes, beyond or self._first, look)
        ]
        return Merge(streams, self._fetch, descending=self._order.descending, most=most)

    def _streams(
        self, source: Source, lanes: list[int], place: Place, look: int
    ) -> list[Stream[Source]]:
        parts = [lanes] if source.whole else [[lane] for lane in lanes]
        return [Stream(source, part, place, look) for part in parts]

    async def _fetch(
        self, source: Source, streams: Sequence[Stream[Source]], look: int, want: int
    ) -> Fetched:
        # Besides what is wanted at most one of each stream, which tells how far that has got.
        give = want + len(streams)
        cursor = await self._connection.execute(
            statement(source, self._order),
            {**self._parameters(streams, look), "want": want, "give": give},
            binary=True,
        )
        answers: dict[int, list[Seen]] = {}
        found = await cursor.fetchall()
        for stream, at, number, created_at, matched, is_last in found:
            seen = Seen((place_of(at), number), place_of(created_at), matched, is_last)
            answers.setdefault(stream - 1, []).append(seen)
        cut = (place_of(found[-1][1]), found[-1][2]) if len(found) == give else None
        return Fetched(answers, cut)

    def _parameters(self, streams: Sequence[Stream[Source]], look: int) -> dict[str, Any]:
        lanes = [lane for stream in streams for lane in stream.lanes]
        by_turn = streams[0].source.by_turn
        return {
            **self._condition.parameters(),
            **self._condition.places(),
            "lanes": lanes,
            "ats": [time_of(stream.place[0]) for stream in streams],
            "nos": [stream.place[1] for stream in streams],
            "bonuses": [self._lanes[lane].bonus_s * by_turn for lane in lanes],
            "until": self._until,
            "look": look,
        }
