"""What runs where, as the leases say, and to whom tokens were given."""

from collections.abc import Collection, Iterable
from typing import Final
from uuid import UUID

from queue_operator.backends.postgres.arrays import Int8s, Uuids
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.rows import storable_token
from queue_operator.backends.sql import load
from queue_operator.domain.lease import Leased

STANDING: Final = load(__package__, "lease_standing")
_LIST: Final = load(__package__, "lease_list", standing=STANDING)
_OWNER: Final = load(__package__, "token_owner")
_MOST: Final = 2**63


async def leased(pool: Pool, assignee_ids: Collection[str]) -> list[Leased]:
    """The jobs of these assignees, in no order."""
    async with borrowed(pool) as connection:
        cursor = await connection.execute(_LIST, {"assignee_ids": list(assignee_ids)})
        return [Leased(*row) for row in await cursor.fetchall()]


async def owners_of(pool: Pool, tokens: Iterable[str]) -> dict[str, str]:
    """By token; those that no job has, or had, are left out."""
    ours = [(token, known) for token in tokens if (known := _of_this_store(token)) is not None]
    if not ours:
        return {}
    parameters = {
        "job_nos": Int8s(known.int >> 64 for _, known in ours),
        "tokens": Uuids(known.bytes for _, known in ours),
    }
    async with borrowed(pool) as connection:
        rows = await (await connection.execute(_OWNER, parameters)).fetchall()
    return {ours[place - 1][0]: assignee_id for place, assignee_id in rows}


def _of_this_store(token: str) -> UUID | None:
    """None for what cannot begin with the number of a job."""
    parsed = storable_token(token)
    return None if parsed is None or parsed.int >> 64 >= _MOST else parsed
