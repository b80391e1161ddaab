"""The server's ceiling for submissions: COPY into one plain table with a key."""

from typing import Final, Self

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from bench.programs.stores import Stored, job_id
from queue_operator.backends.sql import load

_SCHEMA: Final = load(__package__, "copy_schema")
_COPY: Final = "COPY bare_job (id, payload) FROM STDIN (FORMAT BINARY)"
_COUNT: Final = "SELECT count(*), 0, 0 FROM bare_job"

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]


class BareCopy:
    """The same ids and payloads, one COPY and one commit per call. No queue can be made of it."""

    def __init__(self, pool: Pool, payload: bytes) -> None:
        self._pool = pool
        self._payload = payload

    @classmethod
    async def open(cls, dsn: str, payload: bytes) -> Self:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(_SCHEMA)
        pool: Pool = AsyncConnectionPool(dsn, min_size=2, max_size=8, open=False)
        await pool.open(wait=True)
        return cls(pool, payload)

    async def submit(self, numbers: range) -> None:
        async with (
            self._pool.connection() as connection,
            connection.cursor() as cursor,
            cursor.copy(_COPY) as copy,
        ):
            copy.set_types(["text", "bytea"])
            for number in numbers:
                await copy.write_row((job_id(number), self._payload))

    async def stored(self) -> Stored:
        async with self._pool.connection() as connection:
            row = await (await connection.execute(_COUNT)).fetchone()
        return Stored(*(row or (0, 0, 0)))

    async def close(self) -> None:
        await self._pool.close()
