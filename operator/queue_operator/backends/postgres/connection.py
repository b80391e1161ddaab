"""Connections: one pool with the planner settings the hot path relies on, and one place
that turns a driver's error into a domain error.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from select import POLLIN, poll
from typing import Any, Final, LiteralString, ParamSpec, Self, TypeVar

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import TupleRow
from psycopg.types.array import ListBinaryDumper
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from queue_operator.backends.forks import Birthplace
from queue_operator.backends.postgres.arrays import DUMPERS
from queue_operator.backends.postgres.driver_errors import Undone, named, unavailable
from queue_operator.backends.postgres.line import Line, address, hosts
from queue_operator.backends.postgres.probing import probe
from queue_operator.backends.sql import load
from queue_operator.domain.errors import QueueError, Unavailable

SCHEMA: Final = "queue_operator"
HISTORY: Final = load(__package__, "history")

_P = ParamSpec("_P")
_T = TypeVar("_T")
_TRIES: Final = 5
LONG_S: Final = 60.0
"""Patience with a statement of a call that may touch any number of jobs."""
_MANY: Final = 1000
_LARGE_BYTES: Final = 16 * 1024 * 1024

logger = logging.getLogger(__name__)

# Cached plans outlive the sizes they were made for. A plan made while a table was empty
# reads it whole once it is large, so the hot path may use nothing but index look-ups.
_SETTINGS: Final[dict[LiteralString, str]] = {
    "search_path": SCHEMA,
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_nestloop": "on",
    "jit": "off",
    # What may be set for the role or the database, and would change what statements mean, or
    # what the driver can read.
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "extra_float_digits": "1",
    "array_nulls": "on",
    "default_transaction_isolation": "read committed",
    # How long to wait for others, and in all, is for the statement's own patience to say.
    "lock_timeout": "0",
}
TRANSACTION_TIMEOUT_SINCE: Final = 170_000
"""The version of the server that has it; older ones refuse the name."""
_SET: Final = (
    "SELECT set_config(name, value, %s) FROM unnest(%s::text[], %s::text[]) s(name, value)"
)
_HISTORY: Final = f"SELECT {HISTORY}"
# To be said before the first query of a transaction.
_FREEZE: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


_AS_IT_IS: Final = nullcontext()


class Pool(AsyncConnectionPool[Line]):
    """Connections with our settings.

    A statement that takes longer than `statement_timeout_s` is ended by the server, or, when
    nothing comes back from it at all, by hanging up half a second later. `pooler` says that a
    pooler in transaction mode sits in between: what is set on a session there is lost, or found
    by others, so settings are made anew in each transaction. `loop` is the one that it was
    opened on, which alone may use it. `history` is that of the database to which the newest
    connection leads, and `on_history` is told of each; not with a pooler, behind which that may
    change at any time. `on_wait` is told how many seconds somebody waited for a connection.
    `trouble` is why the last attempt to connect failed, if it did, and
    `role` the user of the server that connections are for.
    """

    loop: asyncio.AbstractEventLoop
    birthplace: Birthplace
    statement_timeout_s: float
    pooler: bool
    history = ""
    on_history: Callable[[str], None] = staticmethod(lambda _: None)
    on_wait: Callable[[float], None] = staticmethod(lambda _: None)
    trouble: psycopg.Error | None = None
    role = ""

    async def getconn(self, timeout: float | None = None) -> Line:
        """Tells how long it took, also where there was none in time."""
        began_s = time.perf_counter()
        try:
            return await super().getconn(timeout)
        finally:
            self.on_wait(time.perf_counter() - began_s)

    async def putconn(self, conn: Line) -> None:
        """Whoever is cancelled in the queue for the pool's lock would take the connection, and
        its place in the pool, along with it.
        """
        giving = self._take_back(conn)
        if conn.worn or self._lock.locked() or self._waiting:
            await asyncio.shield(asyncio.create_task(giving))
        else:
            await giving

    def abandon(self) -> None:
        """Hangs up on the server, when the loop that could do so in the usual way has ended."""
        self._closed = True
        while self._pool:
            self._pool.popleft().pgconn.finish()

    async def _take_back(self, conn: Line) -> None:
        if conn.worn:
            # Those made at the same time lead to the same server, with the same plans.
            await self.drain()
        await super().putconn(conn)


async def open_pool(
    dsn: str,
    *,
    size: int,
    connect_timeout_s: float,
    statement_timeout_s: float,
    pooler: bool = False,
) -> Pool:
    """Opens a pool and proves one connection. Raises Unavailable if that fails."""

    async def configure(connection: Line) -> None:
        try:
            await _make_ours(connection, pool)
        except psycopg.Error as error:
            pool.trouble = error
            raise
        pool.trouble = None

    class Told(Line):
        @classmethod
        async def connect(cls, *args: Any, **kwargs: Any) -> Self:
            """The pool tries on by itself, and only says that there was none in time."""
            try:
                return await super().connect(*args, **kwargs)
            except psycopg.Error as error:
                pool.trouble = error
                raise

    conninfo = address(
        dsn,
        connect_timeout=max(int(connect_timeout_s), 1),
        tcp_user_timeout=max(int(statement_timeout_s * 1000), 1),
    )
    try:
        # The pool retries in the background and would hide why the first connection failed.
        await probe(conninfo, connect_timeout_s, pooler=pooler)
    except (psycopg.Error, OSError) as error:
        raise unavailable(error) from None
    pool = Pool(
        conninfo,
        connection_class=Told,
        min_size=1,
        max_size=size,
        open=False,
        configure=configure,
        timeout=hosts(conninfo) * connect_timeout_s,
        reconnect_timeout=2.0,
        # A pooler of this kind does not keep prepared statements either.
        kwargs={"prepare_threshold": None} if pooler else None,
    )
    pool.loop = asyncio.get_running_loop()
    pool.birthplace = Birthplace("the Postgres backend")
    pool.statement_timeout_s = statement_timeout_s
    pool.pooler = pooler
    await pool.open()
    return pool


async def _make_ours(connection: Line, pool: Pool) -> None:
    """What a new connection is told before anybody gets it."""
    connection.patience_s = pool.statement_timeout_s
    connection.role = pool.role = connection.info.user
    await connection.set_autocommit(True)
    # Said with each BEGIN: behind a pooler it cannot be set beforehand.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    # Arrays as text cost the client ten times as much, most of all those of bytes.
    connection.adapters.register_dumper(list, ListBinaryDumper)
    for kind, dumper in DUMPERS.items():
        connection.adapters.register_dumper(kind, dumper)
    if not pool.pooler:
        await _apply_settings(connection, pool.statement_timeout_s, local=False)
        cursor = await connection.execute(_HISTORY)
        [(connection.history,)] = await cursor.fetchall()
        pool.history = connection.history
        pool.on_history(connection.history)


async def _live(pool: Pool) -> Line:
    """A connection that the server has not hung up on. The pool's own check would pause longer
    with each dead one, and after a restart of the server all of them are dead.
    """
    for _ in range(pool.max_size):
        connection = await pool.getconn()
        if not _is_dead(connection):
            return connection
        try:
            await connection.close()
        finally:
            await pool.putconn(connection)
    return await pool.getconn()


def _is_dead(connection: Line) -> bool:
    """Whether the server has hung up on an idle connection.

    Asking the server would take a round trip per call; that it closed the line, or said
    anything at all unasked, can be seen on the socket.
    """
    if connection.closed:
        return True
    waiting = poll()
    waiting.register(connection.fileno(), POLLIN)
    return bool(waiting.poll(0))


async def _apply_settings(connection: Line, statement_s: float, *, local: bool) -> None:
    settings = {**_SETTINGS, "statement_timeout": str(int(statement_s * 1000))}
    if connection.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
        settings["transaction_timeout"] = "0"
    await connection.execute(_SET, (local, list(settings), list(settings.values())))


# Of each task where it looked something up, in a list that it shares with tasks that it begins: who
# of them borrows a connection of that pool takes it out, so that nothing is left for later ones.
_trusted: Final = ContextVar[list[tuple[Pool, str]]]("trusted")


def trust(pool: Pool, history: str) -> None:
    """What this task has looked up is so in one history of the database only: where the next
    connection that it borrows leads to another one, it gets Unavailable instead. So numbers of
    lanes and namespaces are not taken for those that a new primary gave to others. Not Undone: who
    then tries again without looking them up again would take them so.
    """
    _trusted.set([(pool, history)])


def _take_trusted(pool: Pool) -> str:
    found = _trusted.get(None)
    return found.pop()[1] if found and found[0][0] is pool else ""


def _check(connection: Line, trusted: str) -> None:
    if trusted and connection.history and connection.history != trusted:
        # It may only look so, when somebody reset the server's statistics: a new one knows.
        connection.worn = True
        raise Unavailable("the address leads to another server by now; call again")


@asynccontextmanager
async def borrowed(
    pool: Pool, patience_s: float | None = None, *, frozen: bool = False
) -> AsyncIterator[Line]:
    """A connection from the pool, with `patience_s` for each statement (the statement timeout).

    Raises Unavailable, or one of its kinds, when there is no connection or the server refuses,
    breaks off or does not answer; psycopg.DataError and IntegrityError for values that the
    database refuses, which only the caller can explain.
    """
    role, trusted = "", _take_trusted(pool)
    try:
        connection = await _live(pool)
        role = connection.role
        try:
            _check(connection, trusted)
            async with _settled(pool, connection, patience_s, frozen):
                yield connection
        except (
            psycopg.errors.ReadOnlySqlTransaction,
            psycopg.errors.ObjectNotInPrerequisiteState,
            psycopg.errors.FeatureNotSupported,
        ):
            # The address may lead to the new primary by now: look it up again. And a plan
            # that a migration made unfit goes with its connection.
            connection.worn = True
            raise
        finally:
            # The pool closes what a statement left half done.
            await pool.putconn(connection)
    except PoolClosed:
        raise Unavailable("the backend was closed: open another one") from None
    except PoolTimeout as error:
        raise _none_in_time(pool) from error
    except psycopg.Error as error:
        meant = named(error, role)
        if meant is None:
            raise
        raise meant from error


def _none_in_time(pool: Pool) -> QueueError:
    if pool.trouble is not None:
        return named(pool.trouble, pool.role) or unavailable(pool.trouble)
    return Unavailable(
        f"no connection to PostgreSQL within {pool.timeout:g} s: all {pool.max_size} were in use, "
        "or it does not answer; call again, or give it a larger pool_size"
    )


def _settled(
    pool: Pool, connection: Line, patience_s: float | None, frozen: bool
) -> AbstractAsyncContextManager[None]:
    """Makes our settings hold for the block: they are on the session already, or, behind a
    pooler or with other patience, they are made for one transaction.
    """
    connection.patience_s = pool.statement_timeout_s
    if not pool.pooler and patience_s is None and not frozen:
        return _AS_IT_IS
    return _settled_for_one(pool, connection, patience_s, frozen)


@asynccontextmanager
async def _settled_for_one(
    pool: Pool, connection: Line, patience_s: float | None, frozen: bool
) -> AsyncIterator[None]:
    async with connection.transaction():
        if frozen:
            await connection.execute(_FREEZE)
        statement_s = patience_s or pool.statement_timeout_s
        await _apply_settings(connection, statement_s, local=True)
        # Not before: a server that is silent from the start is not waited for for longer.
        connection.patience_s = statement_s
        yield


def patience_for(jobs: int, size: int) -> float | None:
    """Patience with a statement on that many jobs, of `size` bytes; None for what is usual."""
    return LONG_S if jobs > _MANY or size > _LARGE_BYTES else None


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


def again_when_undone(call: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
    """Repeats a call that is one transaction when the server undid it, to end a deadlock or
    because a statement was prepared for an older schema.
    """

    @wraps(call)
    async def insisting(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        for _ in range(_TRIES):
            try:
                return await call(*args, **kwargs)
            except Undone as undone:
                logger.info("%s again: %s", call.__name__, undone)
        return await call(*args, **kwargs)

    return insisting
