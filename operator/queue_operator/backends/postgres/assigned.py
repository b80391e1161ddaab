"""What runs where, as the leases say."""

from collections.abc import Collection
from typing import Final

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.sql import load
from queue_operator.domain.lease import Leased

_LIST: Final = load(__package__, "lease_list")


async def leased(pool: Pool, assignee_ids: Collection[str]) -> list[Leased]:
    """The jobs of these assignees, in no order."""
    async with borrowed(pool) as connection:
        cursor = await connection.execute(_LIST, {"assignee_ids": list(assignee_ids)})
        return [Leased(*row) for row in await cursor.fetchall()]
