"""Those who follow jobs as it happens: what each wants, and what it has yet to be told."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from queue_operator.backends.horizon import Horizon
from queue_operator.backends.positions import Position
from queue_operator.backends.streams import Happened, Kind, Now
from queue_operator.domain.states import TERMINAL, JobState
from queue_operator.domain.views import Phase

BUFFER: Final = 1000
"""So many events may wait for one who follows before it is too slow."""
CURRENT: Final = "CURRENT"
"""What happened to a job of which is told how it is."""


_NOTHING: Final = Horizon(0)


class Ending(StrEnum):
    """Why nothing more comes."""

    OVER = "end"
    SLOW = "slow"
    AWAY = "away"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody follows: one job, which ends it unless `goes_on`; or all jobs of a namespace
    that are of any of the types, carry all tags, and come to any of the statuses, where there are
    such.
    """

    namespace: str
    job_ids: frozenset[str] = frozenset()
    goes_on: bool = False
    types: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    statuses: frozenset[Phase] = frozenset()

    def is_of(self, kind: Kind) -> bool:
        return (
            kind.namespace == self.namespace
            and (not self.types or kind.type in self.types)
            and self.tags <= kind.tags
        )


@dataclass(slots=True, kw_only=True, eq=False)
class News:
    """One event as it is told, under the position that it leads to. `text` is what a door made of
    it, which is the same for all to whom it is told.
    """

    id: str
    job_id: str
    kind: Kind
    status: Phase
    state: JobState
    event: str
    attempt: int
    at: datetime
    text: bytes = b""

    @classmethod
    def of(cls, one: Happened, job_id: str, status: Phase, state: JobState, at: Position) -> "News":
        return cls(
            id=str(at),
            job_id=job_id,
            kind=one.kind,
            status=status,
            state=state,
            event=one.event,
            attempt=one.attempt,
            at=one.at,
        )

    @classmethod
    def of_now(cls, now: Now, job_id: str, at: Position) -> "News":
        return cls(
            id=str(at),
            job_id=job_id,
            kind=now.kind,
            status=now.status,
            state=now.state,
            event=CURRENT,
            attempt=now.attempt,
            at=now.at,
        )


class Batch(NamedTuple):
    """What came; nothing more comes where there is an ending."""

    news: Sequence[News]
    ending: Ending | None = None


@dataclass(slots=True, eq=False)
class Follower:
    """One stream. `own` is where it is while it is elsewhere than all others. `live` are the jobs
    that it follows by id, by number; some have `ended`, or are `gone`. `looked` is how those were,
    as `looked_at` sees them, of which nothing was told since.
    """

    wish: Wish
    caller: str
    own: Position | None = None
    live: dict[int, str] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    looked: dict[int, JobState] = field(default_factory=dict)
    looked_at: Horizon = _NOTHING
    ending: Ending | None = None
    buffer: deque[News] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_full(self) -> bool:
        return len(self.buffer) >= BUFFER

    def put(self, news: News) -> None:
        self.buffer.append(news)
        self._wake.set()

    def end(self, why: Ending) -> None:
        """The first reason stays."""
        self.ending = self.ending or why
        self._wake.set()

    def note(self, number: int, state: JobState | None) -> None:
        """How a job that it follows by id is now; None where it was deleted. Once all have ended
        nothing more comes, and once all are deleted nothing can.
        """
        if state is None:
            self.gone.add(number)
        elif state in TERMINAL:
            self.ended.add(number)
        else:
            self.ended.discard(number)
        over = self.gone if self.wish.goes_on else self.ended | self.gone
        if self.live and over >= self.live.keys():
            self.end(Ending.OVER)

    async def next(self, patience_s: float) -> Batch:
        """What came, or nothing within that time. What a reader is slow about is not kept."""
        if not self.buffer and self.ending is None:
            self._wake.clear()
            try:
                async with asyncio.timeout(patience_s):
                    await self._wake.wait()
            except TimeoutError:
                return Batch(())
        news = list(self.buffer)
        self.buffer.clear()
        return Batch(news, self.ending)


class Audience:
    """Some who follow, by what they want."""

    def __init__(self) -> None:
        self.all: dict[Follower, None] = {}
        self._by_number: dict[int, dict[Follower, None]] = {}
        self._by_kind: dict[tuple[str, str], dict[Wish, dict[Follower, None]]] = {}

    def __len__(self) -> int:
        return len(self.all)

    @property
    def numbers(self) -> list[int]:
        return list(self._by_number)

    def add(self, one: Follower) -> None:
        self.all[one] = None
        for number in one.live:
            self._by_number.setdefault(number, {})[one] = None
        for key in _keys(one.wish):
            self._by_kind.setdefault(key, {}).setdefault(one.wish, {})[one] = None

    def discard(self, one: Follower) -> None:
        if self.all.pop(one, self) is self:
            return
        for number in one.live:
            self._by_number[number].pop(one)
            if not self._by_number[number]:
                del self._by_number[number]
        for key in _keys(one.wish):
            wishes = self._by_kind[key]
            wishes[one.wish].pop(one)
            if not wishes[one.wish]:
                del wishes[one.wish]
            if not wishes:
                del self._by_kind[key]

    def wants(self, kind: Kind) -> bool:
        """Whether a filter lets through jobs of the kind."""
        return any(True for _ in self._of(kind))

    def of(self, one: Happened) -> Iterator[Follower]:
        """Whom it is told to."""
        yield from self._by_number.get(one.number, ())
        if one.status is None or not one.job_id:
            return
        for wish, followers in self._of(one.kind):
            if not wish.statuses or one.status in wish.statuses:
                yield from followers

    def _of(self, kind: Kind) -> Iterator[tuple[Wish, dict[Follower, None]]]:
        for key in ((kind.namespace, kind.type), (kind.namespace, "")):
            for wish, followers in self._by_kind.get(key, {}).items():
                if wish.tags <= kind.tags:
                    yield wish, followers


def _keys(wish: Wish) -> list[tuple[str, str]]:
    """Where a filter is found; one of jobs by id is none."""
    if wish.job_ids:
        return []
    return [(wish.namespace, kind) for kind in wish.types or ("",)]
