"""The plain alternative: one table, one wide row per job, updated in place."""

from typing import Final, Self

from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.types.array import ListBinaryDumper
from psycopg_pool import AsyncConnectionPool

from bench.programs.stores import Claimed, Stored, job_id
from queue_operator.backends.sql import load

_SCHEMA: Final = load(__package__, "wide_schema")
_SUBMIT: Final = load(__package__, "wide_submit")
_CLAIM: Final = load(__package__, "wide_claim")
_AUDIT: Final = load(__package__, "wide_audit")
_COMPLETE: Final = load(__package__, "wide_complete")


class WideRow:
    """The same fencing, attempts, retry counts, ordering and event log; no lanes, tags,
    history of attempts or counts, so it does less than what it is compared with.
    """

    def __init__(
        self, pool: AsyncConnectionPool[AsyncConnection[TupleRow]], payload: bytes
    ) -> None:
        self._pool = pool
        self._payload = payload

    @classmethod
    async def open(cls, dsn: str, payload: bytes) -> Self:
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(_SCHEMA)
        pool: AsyncConnectionPool[AsyncConnection[TupleRow]] = AsyncConnectionPool(
            dsn, min_size=2, max_size=8, open=False, configure=_configure
        )
        await pool.open(wait=True)
        return cls(pool, payload)

    async def submit(self, numbers: range) -> None:
        parameters = {
            "ids": [job_id(number) for number in numbers],
            "payloads": [self._payload] * len(numbers),
        }
        async with self._pool.connection() as connection:
            await connection.execute(_SUBMIT, parameters)

    async def claim(self, limit: int) -> Claimed:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_CLAIM, {"limit": limit}, binary=True)
            return [(row[0], row[1]) for row in await cursor.fetchall()]

    async def complete(self, claimed: Claimed) -> int:
        parameters = {
            "ids": [job_id for job_id, _ in claimed],
            "tokens": [token for _, token in claimed],
        }
        async with self._pool.connection() as connection:
            row = await (await connection.execute(_COMPLETE, parameters)).fetchone()
        return int(row[0]) if row else 0

    async def stored(self) -> Stored:
        async with self._pool.connection() as connection:
            row = await (await connection.execute(_AUDIT)).fetchone()
        return Stored(*(row or (0, 0, 0)))

    async def close(self) -> None:
        await self._pool.close()


async def _configure(connection: AsyncConnection[TupleRow]) -> None:
    # The same settings as the product's connections have, so that only the design differs.
    await connection.set_autocommit(True)
    connection.adapters.register_dumper(list, ListBinaryDumper)
    await connection.execute(
        "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; "
        "SET enable_bitmapscan = off; SET jit = off"
    )
