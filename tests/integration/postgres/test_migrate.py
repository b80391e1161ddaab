"""The schema: brought up to date once, whoever tries."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.migrate import migrations
from queue_operator.domain.errors import Unavailable

NAMES = [migration.name for migration in migrations()]


@pytest.fixture
def empty_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """A database without the schema."""
    name = sql.Identifier(f"empty_{uuid.uuid4().hex[:12]}")
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(name))
        yield make_conninfo(postgres_admin_dsn, dbname=name.as_string().strip('"'))
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


async def test_a_second_run_finds_nothing_to_do(empty_dsn: str) -> None:
    assert await migrate(empty_dsn) == NAMES
    assert await migrate(empty_dsn) == []


async def test_two_runs_at_once_apply_everything_once(empty_dsn: str) -> None:
    applied = await asyncio.gather(*(migrate(empty_dsn) for _ in range(3)))
    assert sorted(name for names in applied for name in names) == NAMES


def test_two_processes_at_once_both_succeed(empty_dsn: str) -> None:
    script = (
        "import asyncio, os; from queue_operator.backends.postgres import migrate; "
        "print(*asyncio.run(migrate(os.environ['DSN'])))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "DSN": empty_dsn},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sorted(" ".join(outputs).split()) == NAMES


async def test_without_the_schema_opening_says_what_to_run(empty_dsn: str) -> None:
    with pytest.raises(Unavailable, match="run `queue-operator migrate`"):
        await PostgresBackend.open(empty_dsn)


async def test_with_half_of_the_schema_opening_names_what_is_missing(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(
            "DELETE FROM queue_operator.schema_migration WHERE name = %s", (NAMES[-1],)
        )
    with pytest.raises(Unavailable, match=NAMES[-1]):
        await PostgresBackend.open(empty_dsn)


async def test_a_migration_that_was_applied_with_other_content_is_refused(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("UPDATE queue_operator.schema_migration SET checksum = 'other'")
    with pytest.raises(Unavailable, match="applied with other content"):
        await migrate(empty_dsn)
