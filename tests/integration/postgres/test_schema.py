"""The schema is what the committed `schema.sql` says.

After a new migration, write it anew with QUEUE_OPERATOR_TEST_UPDATE=1 and review the difference.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from tests.integration.postgres.schema_dump import SCHEMA, Undumpable, dump

from queue_operator.backends.postgres import migrate

SNAPSHOT = Path(__file__).with_name("schema.sql")
HEADER = "-- What all migrations make. Written by test_schema.py: see there.\n\n"
UPDATE = os.environ.get("QUEUE_OPERATOR_TEST_UPDATE") == "1"

NewDatabase = Callable[[], str]


@pytest.fixture
def migrated(new_database: NewDatabase) -> str:
    dsn = new_database()
    asyncio.run(migrate(dsn))
    return dsn


def dumped(dsn: str) -> str:
    with psycopg.connect(dsn) as connection:
        return HEADER + dump(connection)


def run(dsn: str, *statements: LiteralString) -> None:
    with psycopg.connect(dsn) as connection:
        for statement in statements:
            connection.execute(statement)


def test_the_migrations_make_the_committed_schema(migrated: str) -> None:
    found = dumped(migrated)
    if UPDATE:
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text(), "see the first lines of test_schema.py"


def test_the_committed_schema_is_complete(new_database: NewDatabase) -> None:
    """Run in an empty database, it makes a schema of which the dump is the same."""
    dsn = new_database()
    run(dsn, f"CREATE SCHEMA {SCHEMA}; SET search_path = {SCHEMA};{SNAPSHOT.read_text()}")
    assert dumped(dsn) == SNAPSHOT.read_text()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE ready ADD COLUMN extra text",
        "ALTER TABLE ready ALTER COLUMN host DROP NOT NULL",
        "ALTER TABLE ready ALTER COLUMN attempt TYPE bigint",
        "ALTER TABLE lease ALTER COLUMN cancel_reason DROP DEFAULT",
        "ALTER TABLE lease RESET (fillfactor)",
        "ALTER TABLE lease SET (toast.autovacuum_enabled = false)",
        "ALTER TABLE job ALTER COLUMN payload SET STORAGE EXTERNAL",
        "ALTER TABLE ready DROP CONSTRAINT ready_state_check",
        "DROP INDEX ready_claim",
        "DROP INDEX ready_claim; CREATE INDEX ready_claim ON ready (lane_id) WHERE due",
        "ALTER TABLE lane DROP CONSTRAINT lane_pkey",
        "ALTER SEQUENCE job_no_block CACHE 7",
        "CREATE TABLE extra (id integer)",
        "DROP TABLE final",
    ],
)
def test_a_change_of_the_schema_is_seen(migrated: str, change: str) -> None:
    before = dumped(migrated)
    run(migrated, f"SET search_path = {SCHEMA}; {change}")
    assert dumped(migrated) != before


@pytest.mark.parametrize(
    "addition",
    [
        "CREATE VIEW waiting AS SELECT * FROM ready",
        "CREATE FUNCTION one() RETURNS integer LANGUAGE sql RETURN 1",
        "CREATE TYPE mood AS ENUM ('good')",
    ],
)
def test_what_cannot_be_dumped_is_no_secret(migrated: str, addition: str) -> None:
    run(migrated, f"SET search_path = {SCHEMA}; {addition}")
    with pytest.raises(Undumpable, match="teach the dump"):
        dumped(migrated)
