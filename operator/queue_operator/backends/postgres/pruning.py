"""Pruning of the event log."""

from typing import Final

from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.sql import load

_PRUNE: Final = load(__package__, "event_prune")
# A row of the log tells of up to thousands of jobs.
_STEP: Final = 500


class Pruning:
    """Forgets what the event log has told to all who read it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def prune_events(self, older_than_s: float) -> int:
        """Step by step, each a transaction of its own; gives the number of rows."""
        total = 0
        while True:
            pruned = await self._step(older_than_s)
            if pruned == 0:
                return total
            total += pruned or 0

    @again_when_undone
    async def _step(self, older_than_s: float) -> int | None:
        """None where somebody else made a step meanwhile."""
        wanted = {"older_than_s": older_than_s, "max_rows": _STEP}
        async with borrowed(self._pool) as connection:
            [(pruned,)] = await (await connection.execute(_PRUNE, wanted)).fetchall()
        return None if pruned is None else int(pruned)
