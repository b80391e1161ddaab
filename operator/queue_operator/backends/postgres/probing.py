"""The first look at an address: does it lead to a server that can hold the queue?"""

import asyncio
import logging
from typing import Final

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.driver_errors import GUIDE
from queue_operator.backends.postgres.line import Line, hosts
from queue_operator.domain.errors import Unavailable

_MARGIN_S: Final = 1.0
_READ_ONLY: Final = "SELECT current_setting('transaction_read_only')"
_SERVING: Final = "SELECT pg_catalog.pg_backend_pid()"

logger = logging.getLogger(__name__)


async def probe(conninfo: str, timeout_s: float, *, pooler: bool) -> None:
    """Raises Unavailable when what is behind the address cannot be used, or only in another
    way than is said.
    """
    try:
        async with asyncio.timeout(hosts(conninfo) * timeout_s + _MARGIN_S):
            async with await Line.connect(conninfo, autocommit=True) as line:
                _check_encoding(line)
                await check_writable(line)
                if not pooler:
                    await _check_direct(conninfo, line)
    except TimeoutError:
        raise Unavailable(
            f"PostgreSQL cannot be reached: no answer within {timeout_s:g} s; check the database "
            "address"
        ) from None


async def check_writable(line: AsyncConnection[TupleRow]) -> None:
    """Raises what a write would: at a standby, which an address may ask for, or the old primary
    after a failover.
    """
    if await (await line.execute(_READ_ONLY)).fetchone() == ("on",):
        raise psycopg.errors.ReadOnlySqlTransaction("the server is read-only")


def _check_encoding(line: Line) -> None:
    """Texts may hold any character."""
    encoding = line.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        raise Unavailable(
            f"the encoding of database {line.info.dbname} is {encoding}, which cannot hold every "
            "text: make one with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )


async def _check_direct(conninfo: str, line: Line) -> None:
    """A pooler in transaction mode, left unsaid, would lose our settings and find statements
    that others prepared. A pooler makes up the process id that it gives to its clients.
    """
    serving = await _server_process(line)
    if serving == line.info.backend_pid:
        return
    async with await Line.connect(conninfo, autocommit=True) as other:
        shared = await _server_process(other) == serving
    if shared:
        raise Unavailable(
            "a pooler in transaction mode stands before PostgreSQL: set database.pooler to true, "
            f"and database.listen_dsn to an address of the server itself; see {GUIDE}"
        )
    logger.warning(
        "a pooler stands before PostgreSQL: unless it works in session mode, set database.pooler "
        "to true; see %s",
        GUIDE,
    )


async def _server_process(line: Line) -> int:
    row = await (await line.execute(_SERVING)).fetchone()
    return int(row[0]) if row else 0
