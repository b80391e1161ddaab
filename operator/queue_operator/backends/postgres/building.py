"""Builds and drops indexes beside those who work. The server does so outside a transaction only,
one statement after the other, so each of them may find its work done, or half done.
"""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, LiteralString

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import TRANSACTION_TIMEOUT_SINCE
from queue_operator.backends.sql import load

_STATE: Final = load(__package__, "migration_index")
_BUILT: Final = re.compile(r"CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+)\s")
_DROP: Final = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS queue_operator.{}")


def split(text: LiteralString) -> list[LiteralString]:
    """The statements of a file, of which none has a semicolon or two dashes within itself."""
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()]
    statements = "\n".join(lines).split(";")
    return [statement.strip() for statement in statements if statement.strip()]


async def build(
    conninfo: str,
    statements: Sequence[LiteralString],
    *,
    lock_timeout_s: float,
    say: Callable[[str], None],
) -> None:
    """Does what is not done yet. Nobody who works waits for it; it waits up to `lock_timeout_s`
    at a time for transactions that are older.
    """
    async with _unhurried(conninfo, lock_timeout_s) as connection:
        for statement in statements:
            name = _built(statement)
            is_whole = await _is_whole(connection, name) if name else None
            if is_whole:
                continue
            if name and is_whole is False:
                say(f"dropping {name}, of which a half was built")
                await connection.execute(_DROP.format(sql.Identifier(name)))
            say(statement.partition("\n")[0])
            await connection.execute(statement)


@asynccontextmanager
async def _unhurried(
    conninfo: str, lock_timeout_s: float
) -> AsyncIterator[AsyncConnection[TupleRow]]:
    """A session whose statements take their time, whatever is set for the role. What is set with
    the session ends with it; a pooler that refuses to set it leaves us what the role has.
    """
    given = str(conninfo_to_dict(conninfo).get("options") or "")
    settings = {"statement_timeout": 0, "lock_timeout": max(int(lock_timeout_s * 1000), 1)}
    options = " ".join([given, *(f"-c {name}={value}" for name, value in settings.items())])
    try:
        connection = await _connect(make_conninfo(conninfo, options=options.strip()))
        if connection.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
            await connection.execute("SET transaction_timeout = 0")
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" not in str(error):
            raise
        connection = await _connect(conninfo)
    async with connection:
        yield connection


async def _connect(conninfo: str) -> AsyncConnection[TupleRow]:
    return await AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=None)


def _built(statement: str) -> str | None:
    found = _BUILT.match(statement)
    return found[1] if found else None


async def _is_whole(connection: AsyncConnection[TupleRow], name: str) -> bool | None:
    row = await (await connection.execute(_STATE, {"name": name})).fetchone()
    return None if row is None else bool(row[0])
