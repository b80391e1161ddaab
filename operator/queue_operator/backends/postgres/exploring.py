"""Where the first jobs of lanes are, looked up without taking any: in lanes of which nothing is
known, and in those that nobody of this process asked for a while.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

from queue_operator.backends.postgres.arrays import Int8s, Times
from queue_operator.backends.postgres.arrivals import Arrivals
from queue_operator.backends.postgres.connection import LONG_S, Pool, borrowed, trust
from queue_operator.backends.postgres.driver_errors import TookTooLong
from queue_operator.backends.postgres.fronts import END, START, Answer, Front, Place, Range
from queue_operator.backends.postgres.steps import Steps
from queue_operator.backends.postgres.upkeep import Background, by_itself
from queue_operator.backends.sql import load
from queue_operator.domain.ordering import PRIORITY_BONUS

_GLANCE: Final = load(__package__, "glance")
_PIECE_S: Final = 1.0
_LEAST_PIECE: Final = timedelta(seconds=1)
_AT_ONCE: Final = 10_000
_REVISIT_S: Final = 60.0
_REVISITED: Final = 20_000
_REVISITED_AT_ONCE: Final = 1000
_MANY: Final = 10_000
_EVERYWHERE: Final = Range(START, END)


class Explorer:
    """Tells `fronts` where jobs wait, and where none do."""

    def __init__(self, pool: Pool, arrivals: Arrivals) -> None:
        self._pool = pool
        self._arrivals = arrivals
        self._exploring = asyncio.Lock()
        self._revisit_at_s = time.monotonic() + _REVISIT_S
        self.revisiting = Background("revisiting lanes", self._revisit)

    async def first_jobs(
        self, ranges: Sequence[tuple[int, Range]], patience_s: float | None = None
    ) -> dict[int, Place]:
        """Of those ranges in which a job is due, by their place, where the first one is."""
        # Another server may have nothing there, and the front would be forgotten.
        trust(self._pool, self._arrivals.history)
        async with borrowed(self._pool, patience_s) as connection:
            cursor = await connection.execute(_GLANCE, where(ranges))
            return {n - 1: (at, number) for n, at, number in await cursor.fetchall()}

    async def explore(self, fronts: Sequence[Front]) -> None:
        """Looks for the first jobs of lanes of which nothing is known, where they are many, or more
        dead entries lie before them than a claim has the time for: of many at once, with much time,
        or else lane by lane and piece by piece.
        """
        if not fronts:
            return
        async with self._exploring:
            # Another claim may have waited for the same.
            left = [front for front in dict.fromkeys(fronts) if front.is_unknown]
            for first in range(0, len(left), _AT_ONCE):
                await self._find_all(left[first : first + _AT_ONCE])

    def revisit_in_time(self) -> None:
        """Has lanes looked into that nobody asks here, in a task of its own: once a minute some of
        them, in turn, and all of them when they have become many. To be called whenever more of
        them may have come to be remembered.
        """
        if self.revisiting.is_over and (self._is_due or self._is_behind):
            self.revisiting.begin()

    @property
    def _is_due(self) -> bool:
        return time.monotonic() >= self._revisit_at_s

    @property
    def _is_behind(self) -> bool:
        """Whether many lanes came to be remembered since the last time."""
        fronts = self._arrivals.fronts
        return len(fronts) > 2 * fronts.looked_into + _MANY

    async def _revisit(self) -> None:
        most = len(self._arrivals.fronts) if self._is_behind else _REVISITED
        self._revisit_at_s = time.monotonic() + _REVISIT_S
        await by_itself("lanes that others emptied are forgotten", lambda: self.revisit(most))

    async def revisit(self, most: int = _REVISITED) -> None:
        """Looks into lanes that were not asked since the last time, some after the other in turn.
        Whoever else takes their jobs does not tell, so they would be remembered for ever, and be in
        the way of the first claim that asks for them.
        """
        fronts = self._arrivals.fronts
        try:
            for _ in range(0, min(len(fronts), most), _REVISITED_AT_ONCE):
                some = fronts.next_unwanted(_REVISITED_AT_ONCE)
                if some and not await self._look([(front, front.all_ranges()) for front in some]):
                    # Others may have more dead entries before them, too.
                    break
        finally:
            # Also after an error, which is no reason to try again at once.
            fronts.looked_into = len(fronts)

    async def _find_all(self, fronts: Sequence[Front]) -> None:
        if not await self._look([(front, [_EVERYWHERE]) for front in fronts], LONG_S):
            for front in fronts:
                await self._find_first(front)

    async def _look(
        self, asked: Sequence[tuple[Front, Sequence[Range]]], patience_s: float | None = None
    ) -> bool:
        """Looks into some ranges of each front; False if that takes too long."""
        # What arrives from here on may not be seen.
        ticks = [front.ask() for front, _ in asked]
        found: dict[int, Place] | None = None
        try:
            with suppress(TookTooLong):
                ranges = [(front.lane.id, one) for front, its in asked for one in its]
                found = await self.first_jobs(ranges, patience_s)
        finally:
            places, most = count(), limits(self._arrivals.now)
            for (front, its), tick in zip(asked, ticks, strict=True):
                told = [(one, Answer(found.get(next(places)))) for one in its if found is not None]
                self._leave(front, tick, told, most)
        return found is not None

    async def _find_first(self, front: Front) -> None:
        tick, answers = front.ask(), list[tuple[Range, Answer]]()
        steps, patience_s = Steps(START[0], END[0], datetime.now(UTC)), _PIECE_S
        # All in one has taken too long already.
        steps.failed()
        place: Place | None = None
        try:
            while place is None and (piece := steps.next()):
                begins_at, ends_at = piece
                # Both ends belong to a range; the next piece begins with the last of this one.
                piece_range = Range((begins_at, 0), (ends_at, 0))
                try:
                    first = await self.first_jobs([(front.lane.id, piece_range)], patience_s)
                except TookTooLong:
                    steps.failed()
                    if ends_at - begins_at <= _LEAST_PIECE:
                        patience_s = min(2 * patience_s, LONG_S)
                else:
                    steps.done()
                    place = first.get(0)
            answers.append((_EVERYWHERE, Answer(place)))
        finally:
            self._leave(front, tick, answers, limits(self._arrivals.now))

    def _leave(
        self,
        front: Front,
        tick: int,
        answers: Sequence[tuple[Range, Answer]],
        most: Mapping[str, Place],
    ) -> None:
        """A look is over, without an answer if it failed."""
        self._arrivals.fronts.leave(front, tick, answers, most.get(front.lane.key.priority, END))


def where(ranges: Sequence[tuple[int, Range]]) -> dict[str, Any]:
    """Parameters that say where to look: lanes and ranges of their orders."""
    return {
        "lanes": Int8s(lane_id for lane_id, _ in ranges),
        "froms": Times(one.first[0] for _, one in ranges),
        "from_nos": Int8s(one.first[1] for _, one in ranges),
        "tos": Times(one.last[0] for _, one in ranges),
        "to_nos": Int8s(one.last[1] for _, one in ranges),
    }


def limits(now: datetime | None) -> Mapping[str, Place]:
    """By priority, where a job has its place that is submitted or comes back now. A mark beyond
    it, of a job whose caller gave it a later time, would have all others come late.
    """
    if now is None:
        return {}
    return {priority.value: (now - bonus, 0) for priority, bonus in PRIORITY_BONUS.items()}
