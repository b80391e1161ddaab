"""Brings the schema up to date: forward only, safe from several replicas at once."""

import hashlib
import logging
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, LiteralString

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import unavailable
from queue_operator.backends.sql import render
from queue_operator.domain.errors import Unavailable

logger = logging.getLogger(__name__)

# Any number will do, as long as every replica takes the same.
_ADVISORY_LOCK: Final = 7_164_002

_BOOKKEEPING: Final = """
CREATE SCHEMA IF NOT EXISTS queue_operator;
SET LOCAL search_path = queue_operator;
CREATE TABLE IF NOT EXISTS schema_migration (
    name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
);
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """`text` is the file; the state names are written into it when it is applied."""

    name: str
    text: str

    @property
    def statements(self) -> LiteralString:
        return render(self.text)

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    """All of them, in order."""
    folder = files(__package__) / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [Migration(name.removesuffix(".sql"), (folder / name).read_text()) for name in names]


async def migrate(dsn: str) -> list[str]:
    """Applies what is missing and gives the names of what was applied.

    Raises Unavailable when the server cannot be reached or refuses, or when a migration
    that was applied has another content than the one shipped here.
    """
    try:
        connection = await AsyncConnection.connect(dsn, autocommit=True)
        async with connection, connection.transaction():
            # Held to the end of the transaction: another replica waits, then finds all done.
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY_LOCK,))
            await connection.execute(_BOOKKEEPING)
            return await _apply_missing(connection)
    except psycopg.Error as error:
        raise unavailable(error) from None


async def _apply_missing(connection: AsyncConnection[TupleRow]) -> list[str]:
    applied = await _applied(connection)
    done = []
    for migration in migrations():
        if migration.name in applied:
            _check_same(migration, applied[migration.name])
            continue
        await connection.execute(migration.statements)
        await connection.execute(
            "INSERT INTO schema_migration (name, checksum) VALUES (%s, %s)",
            (migration.name, migration.checksum),
        )
        done.append(migration.name)
        logger.info("applied migration %s", migration.name)
    return done


async def _applied(connection: AsyncConnection[TupleRow]) -> dict[str, str]:
    cursor = await connection.execute("SELECT name, checksum FROM schema_migration")
    return {name: checksum for name, checksum in await cursor.fetchall()}


def _check_same(migration: Migration, checksum: str) -> None:
    if migration.checksum != checksum:
        raise Unavailable(
            f"migration {migration.name} was applied with other content than this version "
            "ships; restore the database or install the version that wrote it"
        )


async def check_schema(connection: AsyncConnection[TupleRow]) -> None:
    """Raises Unavailable unless every migration has been applied."""
    try:
        applied = await _applied(connection)
    except psycopg.errors.UndefinedTable:
        applied = {}
    missing = [m.name for m in migrations() if m.name not in applied]
    if missing:
        raise Unavailable(
            f"the database schema lacks {', '.join(missing)}: run `queue-operator migrate`"
        )
