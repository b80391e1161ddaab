"""The figures about the stored jobs: whose turn it is to show them."""

from typing import Final

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.one_loop import on_one_loop
from queue_operator.backends.sql import load

_LEAD: Final = load(__package__, "figure_lead")


@on_one_loop
class FigureStore:
    """The protocol `Leadership`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def lead(self, holder: str, ttl_s: float) -> bool:
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_LEAD, {"holder": holder, "ttl_s": ttl_s})
            [(is_ours,)] = await cursor.fetchall()
        return bool(is_ours)

    async def resign(self, holder: str) -> None:
        await self.lead(holder, -1.0)
