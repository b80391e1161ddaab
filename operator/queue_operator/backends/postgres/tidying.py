"""Names that nobody uses any more go: lanes first, then types and namespaces."""

import logging
import time
from datetime import UTC, datetime
from typing import Final

from queue_operator.backends.postgres.arrays import Int8s
from queue_operator.backends.postgres.connection import (
    LONG_S,
    Pool,
    again_when_undone,
    borrowed,
    transaction,
)
from queue_operator.backends.postgres.counts import TAIL, OfLane, forget
from queue_operator.backends.postgres.lanes import FORGOTTEN_S, UNUSED_S
from queue_operator.backends.sql import load
from queue_operator.backends.tallies import SPANS

_EMPTY: Final = load(__package__, "lane_empty")
_RETIRE: Final = load(__package__, "lane_retire", tail=TAIL, empty=_EMPTY)
_REMOVE: Final = load(__package__, "lane_remove", tail=TAIL, empty=_EMPTY)
_USED: Final = load(__package__, "name_used")
_CLOSED: Final = load(__package__, "roll_up_closed")
LOCK_NAMES: Final = load(__package__, "name_lock", used=_USED, closed=_CLOSED)
REMOVE_NAMES: Final = load(__package__, "name_remove", used=_USED)
_BATCH: Final = 5000
_MOST_BATCHES: Final = 20
_NAMES_EVERY_S: Final = 600.0
SPANS_S: Final = Int8s(span.seconds for span in SPANS)
_EVER: Final = datetime(1, 1, 1, tzinfo=UTC), 0

logger = logging.getLogger(__name__)


class Tidying:
    """Safe on every replica at once. What statistics are still kept of keeps its names."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._looked_to = _EVER
        self._names_at_s = float("-inf")

    async def tidy(self, *, unused_s: float = UNUSED_S, hidden_s: float = FORGOTTEN_S) -> int:
        """A part of the work, so that it takes no more than some seconds; gives how many lanes
        and names went.
        """
        gone = 0
        for _ in range(_MOST_BATCHES):
            looked = await self._retire(unused_s)
            removed = await self._remove(unused_s)
            gone += removed
            if looked < _BATCH and removed < _BATCH:
                break
        if time.monotonic() >= self._names_at_s or unused_s < UNUSED_S:
            self._names_at_s = time.monotonic() + _NAMES_EVERY_S
            gone += await self._remove_names(hidden_s)
        return gone

    @again_when_undone
    async def _retire(self, unused_s: float) -> int:
        used_after, id_after = self._looked_to
        wanted = {
            "used_after": used_after,
            "id_after": id_after,
            "unused_s": unused_s,
            "max_rows": _BATCH,
        }
        async with borrowed(self._pool, LONG_S) as connection:
            cursor = await connection.execute(_RETIRE, wanted)
            [(looked, _, used_at, last_id)] = await cursor.fetchall()
        self._looked_to = (used_at, last_id) if looked == _BATCH else _EVER
        return int(looked)

    @again_when_undone
    async def _remove(self, unused_s: float) -> int:
        async with transaction(self._pool, LONG_S) as connection:
            cursor = await connection.execute(_REMOVE, {"unused_s": unused_s, "max_rows": _BATCH})
            gone = [OfLane(*row) for row in await cursor.fetchall()]
            if gone:
                await forget(connection, gone)
        return len(gone)

    @again_when_undone
    async def _remove_names(self, hidden_s: float) -> int:
        """A second statement looks for lanes once more: it sees what was made before the lock."""
        async with transaction(self._pool, LONG_S) as connection:
            wanted = {"hidden_s": hidden_s, "max_rows": _BATCH, "spans": SPANS_S}
            [(types, spaces)] = await (await connection.execute(LOCK_NAMES, wanted)).fetchall()
            if not types and not spaces:
                return 0
            locked = {"types": types, "spaces": spaces, "hidden_s": hidden_s}
            [(gone,)] = await (await connection.execute(REMOVE_NAMES, locked)).fetchall()
        return int(gone)
