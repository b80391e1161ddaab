"""Counts of jobs, kept by adding up changes."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import LONG_S, Pool, again_when_undone, borrowed
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable

TAIL: Final = load(__package__, "count_tail")
"""What the counts do not have yet: a part of each statement that reads them."""
FOLD: Final = load(__package__, "count_fold", summed_up=load(__package__, "count_summed_up"))
_IS_OURS: Final = load(__package__, "count_is_ours")
_WAITING: Final = load(__package__, "lanes_waiting", tail=TAIL)
_FORGET: Final = load(__package__, "count_forget")
_STEP: Final = 5000
"""Changes that are folded at a time."""
_STEPS: Final = 40
"""So many steps follow one another at most: nobody may stand still behind a flood."""
_EVERY_S: Final = 1.0


class OfLane(NamedTuple):
    """A lane, and what its jobs are also counted by."""

    lane_id: int
    namespace_id: int
    type_id: int
    priority: str


async def lanes_waiting(connection: AsyncConnection[TupleRow]) -> tuple[str, list[int]]:
    """A snapshot, and the lanes in which jobs wait as it sees them, for whatever: all of these,
    and maybe some more.
    """
    [(snapshot, lanes)] = await (await connection.execute(_WAITING)).fetchall()
    return snapshot, lanes


async def forget(connection: AsyncConnection[TupleRow], lanes: Sequence[OfLane]) -> int:
    """The counts of lanes that are removed in the same transaction; gives how many went. What is
    not empty stays.
    """
    given = {
        "lanes": [lane.lane_id for lane in lanes],
        "namespaces": [lane.namespace_id for lane in lanes],
        "types": [lane.type_id for lane in lanes],
        "priorities": [lane.priority for lane in lanes],
    }
    [(forgotten,)] = await (await connection.execute(_FORGET, given)).fetchall()
    return int(forgotten)


class Counts:
    """The upkeep of what statistics, depths and quotas read. Exact at every moment, however much
    is not folded; but who reads then adds the rest up.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._fold_at_s = float("-inf")

    @again_when_undone
    async def fold(self, limit: int = _STEP) -> int:
        """Adds about `limit` changes to the counts and gives their number, 0 where another replica
        is at it. Call it again at once when that was `limit` or more.
        """
        async with borrowed(self._pool) as connection:
            [(folded,)] = await (await connection.execute(FOLD, {"limit": limit})).fetchall()
        return int(folded)

    async def adopt(self) -> None:
        """In a restored copy of a database: the first fold takes all there is. Until then all
        changes are looked at, from then on they are found by their transactions again.
        """
        async with borrowed(self._pool) as connection:
            [(is_ours,)] = await (await connection.execute(_IS_OURS)).fetchall()
        if not is_ours:
            async with borrowed(self._pool, LONG_S) as connection:
                await connection.execute(FOLD, {"limit": _STEP})

    async def fold_some(self) -> bool:
        """A step; whether there is more."""
        self._fold_at_s = time.monotonic() + _EVERY_S
        return await self.fold(_STEP) >= _STEP

    async def fold_all(self) -> None:
        """What there is, up to a bound."""
        for _ in range(_STEPS):
            if not await self.fold_some():
                break

    async def keep_up(self) -> None:
        """Before a look at the counts: one step, where this process made none for a second. So
        there is little to add up, however seldom leases are swept.
        """
        if time.monotonic() >= self._fold_at_s:
            # What is not folded is added up.
            with suppress(Unavailable):
                await self.fold_some()
