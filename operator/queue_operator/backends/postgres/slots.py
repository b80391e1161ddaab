"""How many slots would be needed to run at once all that runs or could run now, by pool: from the
counts of lanes, and from indexes of what waits for something else.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.counts import TAIL
from queue_operator.backends.sql import load

_POOLS: Final = load(__package__, "figure_pools")
_SLOTS: Final = load(__package__, "figure_slots", tail=TAIL)
_LANES: Final = 5000
MOST: Final = 10_000
"""Jobs of a lane that are looked for one by one."""
_ANEW_S: Final = 600.0

Place = tuple[str, str]
"""A namespace and a pool, "" for none."""


class Slots:
    """Remembers which lanes have a pool: what a lane is never changes."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._pools: dict[int, Place] = {}
        self._read_to = 0
        self._anew_at_s = float("-inf")

    async def needed(self, waiting: Sequence[int], running: Mapping[str, int]) -> dict[Place, int]:
        """By namespace and pool; `waiting` are the lanes in which jobs wait, `running` says how
        many run by namespace. A pool that has lanes and no job needs 0.
        """
        async with borrowed(self._pool) as connection:
            await self._learn(connection)
            # Where no pool is told, what runs is all of the namespace that is not some pool's.
            lanes = list({*waiting, *self._pools})
            found = [
                row
                for first in range(0, len(lanes), _LANES)
                for row in await self._look(connection, lanes[first : first + _LANES])
            ]
        needed: Counter[Place] = Counter(dict.fromkeys(self._pools.values(), 0))
        for namespace, n in running.items():
            needed[namespace, ""] += n
        for namespace, pool, runs, due in found:
            if namespace is None:
                continue
            needed[namespace, pool] += due
            if pool:
                needed[namespace, pool] += runs
                needed[namespace, ""] -= runs
        # The two were read one after the other.
        return {place: max(n, 0) for place, n in needed.items()}

    async def _learn(self, connection: AsyncConnection[TupleRow]) -> None:
        if time.monotonic() >= self._anew_at_s:
            self._pools, self._read_to = {}, 0
            self._anew_at_s = time.monotonic() + _ANEW_S
        cursor = await connection.execute(_POOLS, {"after": self._read_to})
        for lane, namespace, pool in await cursor.fetchall():
            if namespace is not None:
                self._pools[lane] = namespace, pool
            self._read_to = max(self._read_to, lane)

    async def _look(
        self, connection: AsyncConnection[TupleRow], lanes: list[int]
    ) -> list[TupleRow]:
        pools = [self._pools.get(lane, ("", ""))[1] for lane in lanes]
        parameters = {"lanes": lanes, "pools": pools, "most": MOST}
        return await (await connection.execute(_SLOTS, parameters)).fetchall()
