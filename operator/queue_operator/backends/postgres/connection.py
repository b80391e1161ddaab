"""Connections: one pool with the planner settings the hot path relies on, and one place
that turns a driver's error into a domain error.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.types.array import ListBinaryDumper
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from queue_operator.domain.errors import Unavailable

Pool = AsyncConnectionPool[AsyncConnection[TupleRow]]
SCHEMA: Final = "queue_operator"

_P = ParamSpec("_P")
_T = TypeVar("_T")
_DEADLOCK_TRIES: Final = 5

logger = logging.getLogger(__name__)


class Deadlock(Unavailable):
    """The server undid the transaction, because it and another waited for each other."""


# Cached plans outlive the sizes they were made for. A plan made while a table was empty
# reads it whole once it is large, so the hot path may use nothing but index look-ups.
_SESSION: Final = """
SET search_path = queue_operator;
SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SET enable_bitmapscan = off; SET jit = off; SET timezone = 'UTC';
"""


async def open_pool(
    dsn: str, *, size: int, connect_timeout_s: float, statement_timeout_s: float
) -> Pool:
    """Opens a pool and proves one connection. Raises Unavailable if that fails."""

    async def configure(connection: AsyncConnection[TupleRow]) -> None:
        await connection.set_autocommit(True)
        # Arrays as text cost the client ten times as much, most of all those of bytes.
        connection.adapters.register_dumper(list, ListBinaryDumper)
        await connection.execute(_SESSION)
        timeout_ms = str(int(statement_timeout_s * 1000))
        await connection.execute("SELECT set_config('statement_timeout', %s, false)", (timeout_ms,))

    pool: Pool = AsyncConnectionPool(
        dsn,
        min_size=1,
        max_size=size,
        open=False,
        configure=configure,
        timeout=connect_timeout_s,
        reconnect_timeout=2.0,
        check=AsyncConnectionPool.check_connection,
        kwargs={
            "connect_timeout": max(int(connect_timeout_s), 1),
            "application_name": "queue-operator",
        },
    )
    try:
        await _probe(dsn, connect_timeout_s)
        await pool.open()
    except (psycopg.Error, OSError, PoolTimeout) as error:
        await pool.close()
        raise unavailable(error) from None
    return pool


async def _probe(dsn: str, timeout_s: float) -> None:
    # The pool retries in the background and would hide why the first connection failed.
    async with asyncio.timeout(timeout_s + 1):
        connection = await psycopg.AsyncConnection.connect(
            dsn, connect_timeout=max(int(timeout_s), 1)
        )
        await connection.close()


def unavailable(error: BaseException) -> Unavailable:
    """The domain error for a store that does not answer, with the driver's first line."""
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        # The driver repeats the part of the address that it did not understand, which may
        # be a part of the password.
        return Unavailable(
            "the database address is not valid; write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/NAME, with special characters percent-encoded"
        )
    first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return Unavailable(f"PostgreSQL cannot be reached: {first_line}; check the database address")


@asynccontextmanager
async def borrowed(pool: Pool) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """A connection from the pool. Raises Unavailable when there is none or it breaks."""
    try:
        async with pool.connection() as connection:
            yield connection
    except psycopg.errors.DeadlockDetected as error:
        raise Deadlock("PostgreSQL ended a deadlock; call again") from error
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
        raise unavailable(error) from error


@asynccontextmanager
async def transaction(pool: Pool) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """The same inside a transaction; it is rolled back when the block raises."""
    async with borrowed(pool) as connection, connection.transaction():
        yield connection


def again_after_deadlock(call: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
    """Repeats a call that is one transaction when the server undid it to end a deadlock."""

    @wraps(call)
    async def insisting(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        for _ in range(_DEADLOCK_TRIES):
            try:
                return await call(*args, **kwargs)
            except Deadlock as error:
                logger.info("%s again: %s", call.__name__, error)
        return await call(*args, **kwargs)

    return insisting
