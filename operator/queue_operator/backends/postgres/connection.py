"""Connections: one pool with the planner settings the hot path relies on, and one place
that turns a driver's error into a domain error.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from select import POLLIN, poll
from typing import Any, Final, LiteralString, ParamSpec, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg.types.array import ListBinaryDumper
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from queue_operator.backends.postgres.arrays import DUMPERS
from queue_operator.domain.errors import Unavailable

SCHEMA: Final = "queue_operator"

_P = ParamSpec("_P")
_T = TypeVar("_T")
_DEADLOCK_TRIES: Final = 5
_MARGIN_S: Final = 0.5
LONG_S: Final = 60.0
"""Patience with a call that may touch any number of jobs."""

logger = logging.getLogger(__name__)


class Deadlock(Unavailable):
    """The server undid the transaction, because it and another waited for each other."""


# Cached plans outlive the sizes they were made for. A plan made while a table was empty
# reads it whole once it is large, so the hot path may use nothing but index look-ups.
_SETTINGS: Final[dict[LiteralString, str]] = {
    "search_path": SCHEMA,
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "timezone": "UTC",
}
_SET: Final = (
    "SELECT set_config(name, value, %s) FROM unnest(%s::text[], %s::text[]) s(name, value)"
)
# To be said before the first query of a transaction.
_FREEZE: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class Pool(AsyncConnectionPool[AsyncConnection[TupleRow]]):
    """Connections with our settings.

    A statement that takes longer than `statement_timeout_s` is ended by the server, or, when
    nothing comes back from it at all, by hanging up half a second later. `pooler` says that a
    pooler in transaction mode sits in between: what is set on a session there is lost, or found
    by others, so settings are made anew in each transaction.
    """

    statement_timeout_s: float
    pooler: bool


async def open_pool(
    dsn: str,
    *,
    size: int,
    connect_timeout_s: float,
    statement_timeout_s: float,
    pooler: bool = False,
) -> Pool:
    """Opens a pool and proves one connection. Raises Unavailable if that fails."""

    async def configure(connection: AsyncConnection[TupleRow]) -> None:
        await connection.set_autocommit(True)
        # Arrays as text cost the client ten times as much, most of all those of bytes.
        connection.adapters.register_dumper(list, ListBinaryDumper)
        for kind, dumper in DUMPERS.items():
            connection.adapters.register_dumper(kind, dumper)
        if not pooler:
            await _apply_settings(connection, statement_timeout_s, local=False)

    try:
        conninfo = _conninfo(dsn, connect_timeout_s, statement_timeout_s)
        await _probe(conninfo, connect_timeout_s)
    except (psycopg.Error, OSError) as error:
        raise unavailable(error) from None
    pool = Pool(
        conninfo,
        min_size=1,
        max_size=size,
        open=False,
        configure=configure,
        timeout=connect_timeout_s,
        reconnect_timeout=2.0,
        # A pooler of this kind does not keep prepared statements either.
        kwargs={"prepare_threshold": None} if pooler else None,
    )
    pool.statement_timeout_s = statement_timeout_s
    pool.pooler = pooler
    await pool.open()
    return pool


def _conninfo(dsn: str, connect_timeout_s: float, statement_timeout_s: float) -> str:
    """The address with what we need, where it does not say otherwise."""
    ours: dict[str, Any] = {
        "application_name": "queue-operator",
        "connect_timeout": max(int(connect_timeout_s), 1),
        # After a failover an old primary may still answer under the old address.
        "target_session_attrs": "read-write",
        "keepalives_idle": 4,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": int(statement_timeout_s * 1000),
    }
    return make_conninfo(**{**ours, **conninfo_to_dict(dsn)})


@asynccontextmanager
async def _live(pool: Pool) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """A connection that the server has not hung up on. The pool's own check would pause longer
    with each dead one, and after a restart of the server all of them are dead.
    """
    connection = await pool.getconn()
    for _ in range(pool.max_size):
        if not _is_dead(connection):
            break
        await connection.close()
        await pool.putconn(connection)
        connection = await pool.getconn()
    try:
        async with connection:
            yield connection
    finally:
        await pool.putconn(connection)


def _is_dead(connection: AsyncConnection[TupleRow]) -> bool:
    """Whether the server has hung up on an idle connection.

    Asking the server would take a round trip per call; that it closed the line, or said
    anything at all unasked, can be seen on the socket.
    """
    if connection.closed:
        return True
    waiting = poll()
    waiting.register(connection.fileno(), POLLIN)
    return bool(waiting.poll(0))


async def _probe(conninfo: str, timeout_s: float) -> None:
    # The pool retries in the background and would hide why the first connection failed.
    async with asyncio.timeout(timeout_s + 1):
        connection = await psycopg.AsyncConnection.connect(conninfo)
        await connection.close()


async def _apply_settings(
    connection: AsyncConnection[TupleRow], statement_s: float, *, local: bool
) -> None:
    settings = {**_SETTINGS, "statement_timeout": str(int(statement_s * 1000))}
    await connection.execute(_SET, (local, list(settings), list(settings.values())))


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
async def borrowed(
    pool: Pool, patience_s: float | None = None, *, frozen: bool = False
) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """A connection from the pool. Raises Unavailable when there is none, it breaks, the
    server has become read-only, or nothing came back in `patience_s` (the statement timeout).
    """
    try:
        async with _live(pool) as connection:
            try:
                with _Watchdog(connection, patience_s or pool.statement_timeout_s):
                    async with _settled(pool, connection, patience_s, frozen):
                        yield connection
            except (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.FeatureNotSupported):
                # The address may lead to the new primary by now: look it up again. And a plan
                # that a migration made unfit ("cached plan must not change result type") goes
                # with its connection.
                await connection.close()
                raise
    except psycopg.errors.DeadlockDetected as error:
        raise Deadlock("PostgreSQL ended a deadlock; call again") from error
    except (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.FeatureNotSupported) as error:
        raise unavailable(error) from error
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
        raise unavailable(error) from error


class _Watchdog:
    """Hangs up when a block takes too long: a server that was stopped, or a line that was cut
    without a word, would keep us waiting for ever, and even a cancel would wait with us.
    """

    def __init__(self, connection: AsyncConnection[TupleRow], patience_s: float) -> None:
        self._connection = connection
        self._patience_s = patience_s + _MARGIN_S

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._patience_s, self._hang_up)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _hang_up(self) -> None:
        if self._connection.closed:
            return
        logger.warning("PostgreSQL did not answer within %.1f s: hanging up", self._patience_s)
        with socket.socket(fileno=os.dup(self._connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)


@asynccontextmanager
async def _settled(
    pool: Pool, connection: AsyncConnection[TupleRow], patience_s: float | None, frozen: bool
) -> AsyncIterator[None]:
    """Makes our settings hold for the block: they are on the session already, or, behind a
    pooler or with other patience, they are made for one transaction.
    """
    if not pool.pooler and patience_s is None and not frozen:
        yield
        return
    async with connection.transaction():
        if frozen:
            await connection.execute(_FREEZE)
        statement_s = patience_s or pool.statement_timeout_s
        await _apply_settings(connection, statement_s, local=True)
        yield


@asynccontextmanager
async def snapshot(
    pool: Pool, patience_s: float | None = None
) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """The same inside a transaction that only reads, and all of whose statements see the
    store at one moment.
    """
    async with borrowed(pool, patience_s, frozen=True) as connection:
        yield connection


@asynccontextmanager
async def transaction(
    pool: Pool, patience_s: float | None = None
) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """The same inside a transaction; it is rolled back when the block raises."""
    async with borrowed(pool, patience_s) as connection, connection.transaction():
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
