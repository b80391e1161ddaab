"""Many ordered streams read as one, and none of them further than needed."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

_GROWTH: Final = 4
ABOVE_ALL: Final = 2**63 - 1

Place = tuple[int, int]
"""Where something lies in an order: microseconds since 1970 and the job's number."""

SourceT = TypeVar("SourceT")


class Seen(NamedTuple):
    """A job that a lane came by; one that does not match only tells how far it has got.
    `is_last` says that the lane was cut off there.
    """

    place: Place
    created_us: int
    matched: bool
    is_last: bool
    lane: int


@dataclass(frozen=True, slots=True)
class Stream(Generic[SourceT]):
    """What some lanes of one source have beyond `place`, which nobody knows yet. `look` is how
    many to look at next in each. A lane of a source is in one stream at most.
    """

    source: SourceT
    lanes: Sequence[int]
    place: Place
    look: int


class Fetched(NamedTuple):
    """What lanes have, in order. `cut` is how far all of it was told, None to the end."""

    rows: Sequence[Seen]
    cut: Place | None = None


Fetch = Callable[[SourceT, Sequence[Stream[SourceT]], int, Place | None], Awaitable[Fetched]]
"""Given a source, some of its streams of the same `look`, how many jobs to give of each lane and
up to which place, bar none: their answers.
"""


class TooFar(Exception):
    """More had to be looked at than was allowed."""


class Merge(Generic[SourceT]):
    """`descending` is the order of all streams. `looked` is how many jobs they may have looked
    at; before it exceeds `most`, TooFar is raised, but not for the first look.
    """

    def __init__(
        self,
        streams: Sequence[Stream[SourceT]],
        fetch: Fetch[SourceT],
        *,
        descending: bool,
        most: int | None = None,
    ) -> None:
        self._streams = list(streams)
        self._fetch = fetch
        self._descending = descending
        self._most = most
        self.looked = 0
        # Matches that nobody has taken, in order.
        self._found: list[Seen] = []

    async def take(self, count: int) -> list[Seen]:
        """The next matches of all, `count` unless there are no more."""
        while behind := self._behind(count):
            groups: dict[tuple[SourceT, int], list[Stream[SourceT]]] = {}
            for stream in behind:
                groups.setdefault((stream.source, stream.look), []).append(stream)
            self._allow(sum(stream.look * len(stream.lanes) for stream in behind))
            for group in groups.values():
                await self._read_on(group, count)
        taken, self._found = self._found[:count], self._found[count:]
        return taken

    def _behind(self, count: int) -> list[Stream[SourceT]]:
        """Those that may have one of the next `count` matches."""
        end = self._end(count)
        return [s for s in self._streams if end is None or self._is_before(s.place, end)]

    def _end(self, count: int) -> Place | None:
        """The place that the last of the next `count` matches cannot be beyond."""
        if not count:
            return (ABOVE_ALL, 0) if self._descending else (-ABOVE_ALL, 0)
        return self._found[count - 1].place if len(self._found) >= count else None

    def _is_before(self, place: Place, other: Place) -> bool:
        return place > other if self._descending else place < other

    async def _read_on(self, group: Sequence[Stream[SourceT]], count: int) -> None:
        # What was found in other sources meanwhile may be all that is needed, or nearly.
        end = self._end(count)
        streams = [s for s in group if end is None or self._is_before(s.place, end)]
        if not streams:
            return
        first = (max if self._descending else min)(stream.place for stream in streams)
        want = count - sum(1 for s in self._found[:count] if self._is_before(s.place, first))
        far = None if end is None else (end[0], 0 if self._descending else ABOVE_ALL)
        rows, cut = await self._fetch(streams[0].source, streams, want, far)
        self._move(streams, self._stopped(rows, want), far if cut is None else cut)
        self._found += [row for row in rows if row.matched]
        self._found.sort(reverse=self._descending)

    @staticmethod
    def _stopped(rows: Sequence[Seen], want: int) -> dict[int, Place]:
        """The lanes that may have more, and where they got to."""
        given = Counter(row.lane for row in rows)
        return {row.lane: row.place for row in rows if row.is_last or given[row.lane] >= want}

    def _move(
        self, streams: Sequence[Stream[SourceT]], stopped: dict[int, Place], cut: Place | None
    ) -> None:
        """`streams` were asked; all is known of them up to `cut`, bar what stopped before."""
        source, look = streams[0].source, streams[0].look
        asked = {id(stream) for stream in streams}
        self._streams = [stream for stream in self._streams if id(stream) not in asked]
        self._streams += [
            Stream(source, [lane], place, look * _GROWTH) for lane, place in stopped.items()
        ]
        if cut is None:
            return
        beyond = [stream for stream in streams if not self._is_before(stream.place, cut)]
        self._streams += beyond
        known = {lane for stream in beyond for lane in stream.lanes}.union(stopped)
        rest = [lane for stream in streams for lane in stream.lanes if lane not in known]
        if rest:
            self._streams.append(Stream(source, rest, cut, look))

    def _allow(self, more: int) -> None:
        if self.looked and self._most is not None and self.looked + more > self._most:
            raise TooFar
        self.looked += more
