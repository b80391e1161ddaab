"""Counts of jobs, kept by adding up changes."""

import time
from typing import Final

from queue_operator.backends.postgres.connection import LONG_S, Pool, borrowed
from queue_operator.backends.sql import load

TAIL: Final = load(__package__, "count_tail")
"""What the counts do not have yet: a part of each statement that reads them."""
FOLD: Final = load(__package__, "count_fold", summed_up=load(__package__, "count_summed_up"))
_STEP: Final = 5000
"""Changes that are folded at a time."""
_STEPS: Final = 40
"""So many steps follow one another at most: nobody may stand still behind a flood."""
_EVERY_S: Final = 1.0


class Counts:
    """The upkeep of what statistics, depths and quotas read. Exact at every moment, however much
    is not folded; but who reads then adds the rest up.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._fold_at_s = float("-inf")

    async def fold(self, limit: int = _STEP) -> int:
        """Adds about `limit` changes to the counts and gives their number, 0 where another replica
        is at it. Call it again at once when that was `limit` or more.
        """
        # In a restored copy of a database the first one takes all there is.
        async with borrowed(self._pool, LONG_S) as connection:
            [(folded,)] = await (await connection.execute(FOLD, {"limit": limit})).fetchall()
        return int(folded)

    async def fold_all(self) -> None:
        """What there is, up to a bound."""
        self._fold_at_s = time.monotonic() + _EVERY_S
        for _ in range(_STEPS):
            if await self.fold() < _STEP:
                break

    async def keep_up(self) -> None:
        """Before a look at the counts: one step, where this process made none for a second. So
        there is little to add up, however seldom leases are swept.
        """
        if time.monotonic() >= self._fold_at_s:
            self._fold_at_s = time.monotonic() + _EVERY_S
            await self.fold()
