"""Many ordered streams read as one, and none of them further than needed."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

_GROWTH: Final = 4

Place = tuple[int, int]
"""Where something lies in an order: microseconds since 1970 and the job's number."""

SourceT = TypeVar("SourceT")


class Seen(NamedTuple):
    """A job that a stream came by; one that does not match only tells how far it has got.
    `is_last` says that the stream was cut off there.
    """

    place: Place
    created_us: int
    matched: bool
    is_last: bool


@dataclass(slots=True)
class Stream(Generic[SourceT]):
    """Jobs of some lanes from one source, beyond `place`. `look` is how many to look at next."""

    source: SourceT
    lanes: Sequence[int]
    place: Place
    look: int
    found: deque[Seen] = field(default_factory=deque)
    ended: bool = False

    def take_in(self, rows: Sequence[Seen], want: int, cut: Place | None) -> None:
        """What a fetch of at most `want` rows gave; it told nothing beyond `cut`."""
        stopped = bool(rows) and (len(rows) >= want or rows[-1].is_last)
        if stopped or cut is None:
            self.ended = not stopped
            self.look *= _GROWTH
        if stopped:
            self.place = rows[-1].place
        elif cut is not None:
            self.place = cut
        self.found.extend(row for row in rows if row.matched)


class Fetched(NamedTuple):
    """The answers of streams by their index. Where there were more, `cut` is the place of the
    last one: of no stream anything beyond it was told.
    """

    rows: Mapping[int, Sequence[Seen]]
    cut: Place | None = None


Fetch = Callable[[SourceT, Sequence[Stream[SourceT]], int, int], Awaitable[Fetched]]
"""Given a source, some of its streams, how many jobs to look at and how many to give of each:
their answers.
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
        self._streams = streams
        self._fetch = fetch
        self._sign = -1 if descending else 1
        self._most = most
        self.looked = 0
        # The next match of each stream that has one, and how far the others have got.
        self._heads: list[tuple[Place, int]] = []
        self._dry = [(self._key(s.place), n) for n, s in enumerate(streams)]
        heapify(self._dry)

    async def take(self, count: int) -> list[Seen]:
        """The next matches of all, `count` unless there are no more."""
        taken: list[Seen] = []
        while len(taken) < count:
            # Whoever has not got as far as the first match may have one before it.
            behind = []
            while self._dry and (not self._heads or self._dry[0][0] < self._heads[0][0]):
                behind.append(heappop(self._dry)[1])
            if behind:
                await self._refill(behind + self._soon(behind), count - len(taken))
            elif self._heads:
                taken.append(self._pop())
            else:
                break
        return taken

    def _soon(self, behind: Sequence[int]) -> list[int]:
        """Other streams that are as cheap to ask, and likely to be next."""
        look = max(self._streams[n].look for n in behind)
        soon = [n for _, n in self._dry if self._streams[n].look <= look]
        self._dry = [(key, n) for key, n in self._dry if self._streams[n].look > look]
        heapify(self._dry)
        return soon

    def _pop(self) -> Seen:
        _, n = heappop(self._heads)
        first = self._streams[n].found.popleft()
        self._queue(n)
        return first

    async def _refill(self, numbers: Sequence[int], want: int) -> None:
        groups: dict[SourceT, list[int]] = {}
        for n in numbers:
            groups.setdefault(self._streams[n].source, []).append(n)
        looks = {
            source: max(self._streams[n].look for n in group) for source, group in groups.items()
        }
        self._allow(sum(looks[source] * len(group) for source, group in groups.items()))
        for source, group in groups.items():
            streams = [self._streams[n] for n in group]
            fetched = await self._fetch(source, streams, looks[source], want)
            for place, stream in enumerate(streams):
                stream.take_in(fetched.rows.get(place, ()), want, fetched.cut)
        for n in numbers:
            self._queue(n)

    def _allow(self, more: int) -> None:
        if self.looked and self._most is not None and self.looked + more > self._most:
            raise TooFar
        self.looked += more

    def _queue(self, n: int) -> None:
        stream = self._streams[n]
        if stream.found:
            heappush(self._heads, (self._key(stream.found[0].place), n))
        elif not stream.ended:
            heappush(self._dry, (self._key(stream.place), n))

    def _key(self, place: Place) -> Place:
        return self._sign * place[0], self._sign * place[1]
