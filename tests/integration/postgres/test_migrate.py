"""The schema: brought up to date once, whoever tries, and out of the way of those who work."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import takewhile
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.processes import PROGRAM, running
from tests.integration.postgres.test_schema import SNAPSHOT, dumped
from tests.programs import finish

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.building import split
from queue_operator.backends.postgres.migrate import Migration, migrations
from queue_operator.domain.errors import SchemaMismatch, Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

SHIPPED = migrations()
NAMES = [migration.name for migration in SHIPPED]
AT_ONCE = [one.name for one in takewhile(lambda one: not one.is_outside, SHIPPED)]
[INDEXES] = [migration for migration in SHIPPED if migration.name == "0011_later"]
UP_TO_INDEXES = [migration for migration in SHIPPED if migration.name <= INDEXES.name]
WIDER = Migration("9001_wider", "ALTER TABLE ready ADD COLUMN extra text;")
WIDEST = Migration("9002_widest", "ALTER TABLE ready ADD COLUMN another text;")
BREAKING = Migration("9003_breaking", "-- needs: 9003_breaking\nDROP TABLE sweep;")
PATIENT_S = 60.0


@pytest.fixture
def empty_dsn(new_database: Callable[[], str]) -> str:
    """A database without the schema."""
    return new_database()


@asynccontextmanager
async def holding(dsn: str, *statements: LiteralString) -> AsyncIterator[psycopg.AsyncConnection]:
    """A transaction that has run the statements and stays open."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        for statement in statements:
            await connection.execute(statement)
        yield connection
        await connection.rollback()


async def run(dsn: str, statement: LiteralString, *parameters: object) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(statement, parameters)


async def set_for_all(dsn: str, name: str, value: str) -> None:
    """For every session of the database that starts from now on."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                sql.Identifier(connection.info.dbname), sql.Identifier(name), sql.Literal(value)
            )
        )


async def columns(dsn: str, table: str) -> set[str]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = %s", (table,)
        )
        return {name for (name,) in await cursor.fetchall()}


# One migrates, the others wait


async def test_a_second_run_finds_nothing_to_do(empty_dsn: str) -> None:
    assert await migrate(empty_dsn) == NAMES
    assert await migrate(empty_dsn) == []


async def test_three_runs_at_once_apply_everything_once(empty_dsn: str) -> None:
    applied = await asyncio.gather(*(migrate(empty_dsn) for _ in range(3)))
    assert sorted(name for names in applied for name in names) == NAMES


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_who_waited_sees_what_was_done_meanwhile(empty_dsn: str, isolation: str) -> None:
    """Whatever isolation the role or the database is set to."""
    await set_for_all(empty_dsn, "default_transaction_isolation", isolation)
    said: list[str] = []
    async with holding(empty_dsn, "CREATE SCHEMA queue_operator"):
        first = asyncio.create_task(migrate(empty_dsn, lock_timeout_s=PATIENT_S))
        await until_waiting(empty_dsn, 1)
        second = asyncio.create_task(migrate(empty_dsn, say=said.append))
        await until_waiting(empty_dsn, 2)
    applied, later = await first, await second
    assert applied[: len(AT_ONCE)] == AT_ONCE
    # Which of them builds the indexes, and does what comes after these, is open.
    assert sorted([*applied, *later]) == NAMES
    assert said[0] == "another process migrates this database: waiting for it"


async def who_waits(dsn: str, kind: str) -> list[str]:
    """The names of those who wait for such a lock."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as admin:
        cursor = await admin.execute(
            "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND wait_event = %s",
            (kind,),
        )
        return [name for (name,) in await cursor.fetchall()]


async def test_of_five_processes_one_is_killed_in_the_middle(empty_dsn: str) -> None:
    """On an empty database: the others bring the schema about, and nothing is half applied."""
    await run(empty_dsn, "CREATE SCHEMA queue_operator")
    async with AsyncExitStack() as stack:
        # What the migration makes after many other tables, so it stands still in its middle.
        in_the_way = holding(empty_dsn, "CREATE TABLE queue_operator.lane_count (id integer)")
        await in_the_way.__aenter__()
        processes = {
            name: await stack.enter_async_context(
                running(
                    *(PROGRAM, "migrate", "--output", "json", "--lock-timeout", str(PATIENT_S)),
                    *("--dsn", make_conninfo(empty_dsn, application_name=name)),
                )
            )
            for name in (f"migrate-{n}" for n in range(5))
        }
        await until_waiting(empty_dsn, len(processes))
        [within] = await who_waits(empty_dsn, "transactionid")
        killed = processes.pop(within)
        killed.kill()
        await killed.wait()
        await in_the_way.__aexit__(None, None, None)
        said = await asyncio.gather(*(finish(process) for process in processes.values()))
    applied = [name for text in said for name in json.loads(text)["applied"]]
    # Which of them came first, the dead one did not.
    assert sorted(applied) == NAMES
    assert dumped(empty_dsn) == SNAPSHOT.read_text()
    backend = await PostgresBackend.open(empty_dsn)
    await backend.close()


# Out of the way of those who work


async def test_a_migration_gives_way_to_what_works(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    backend = await PostgresBackend.open(empty_dsn)
    said: list[str] = []
    given_way = asyncio.Event()

    def say(text: str) -> None:
        said.append(text)
        if "trying again" in text:
            given_way.set()

    async with holding(empty_dsn, "SELECT FROM queue_operator.ready") as reader:
        upgrade = asyncio.create_task(
            migrate(empty_dsn, shipped=[*SHIPPED, WIDER], lock_timeout_s=0.05, say=say)
        )
        await asyncio.wait_for(given_way.wait(), PATIENT_S)
        # It has let go of everything: who reads and writes goes on, although the old
        # transaction that was in its way is still there.
        assert await who_waits(empty_dsn, "relation") == []
        assert "extra" not in await columns(empty_dsn, "ready")
        await backend.enqueue_job(Job(id="meanwhile", type="t"))
        [job] = await backend.dequeue_jobs("w", [], 1)
        assert job.id == "meanwhile"
        await reader.rollback()
    assert await upgrade == [WIDER.name]
    assert "extra" in await columns(empty_dsn, "ready")
    assert said[0] == f"applying {WIDER.name}"
    assert said[1] == "a lock was not to be had within 0.05 s: undone, trying again in 1 s"
    await backend.close()


async def test_a_lock_that_never_comes_free_ends_it_with_nothing_changed(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    shipped = [*SHIPPED, WIDER, WIDEST]
    async with holding(empty_dsn, "SELECT FROM queue_operator.ready"):
        with pytest.raises(Unavailable, match=r"others held a lock for 0\.5 s"):
            await migrate(empty_dsn, shipped=shipped, lock_timeout_s=0.05, patience_s=0.5)
    assert not {"extra", "another"} & await columns(empty_dsn, "ready")


async def test_another_that_migrates_for_ever_is_not_waited_for_for_ever(empty_dsn: str) -> None:
    async with holding(empty_dsn, "CREATE SCHEMA queue_operator"):
        first = asyncio.create_task(migrate(empty_dsn, lock_timeout_s=PATIENT_S))
        await until_waiting(empty_dsn, 1)
        with pytest.raises(Unavailable, match="others held a lock for 0\\.2 s"):
            await migrate(empty_dsn, lock_timeout_s=0.05, patience_s=0.2)
    assert await first == NAMES


async def test_a_migration_that_fails_is_undone_whole(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    bad = Migration("9002_bad", "CREATE TABLE fresh (id integer); SELECT 1 / 0;")
    with pytest.raises(Unavailable, match="failed and was undone: division by zero"):
        await migrate(empty_dsn, shipped=[*SHIPPED, WIDER, bad])
    assert "extra" not in await columns(empty_dsn, "ready")
    assert await columns(empty_dsn, "fresh") == set()
    assert dumped(empty_dsn) == SNAPSHOT.read_text()


async def test_a_server_that_takes_no_writes_is_not_migrated(empty_dsn: str) -> None:
    await set_for_all(empty_dsn, "default_transaction_read_only", "on")
    with pytest.raises(Unavailable, match="session is read-only"):
        await migrate(empty_dsn)


# Indexes are built beside those who work

OLDER: LiteralString = "LOCK TABLE queue_operator.ready IN ROW EXCLUSIVE MODE"
"""For which a build of an index waits, and which nobody else minds."""


async def before_the_indexes(dsn: str) -> PostgresBackend:
    """At work on a database as it is just before they are built, with jobs that ended."""
    await migrate(dsn)
    backend = await PostgresBackend.open(dsn)
    await backend.enqueue_jobs([Job(id=f"ended-{n}", type="t") for n in range(500)])
    taken = await backend.claim([Demand(assignee_id="w", limit=500)], lease_ttl_s=60)
    await backend.settle([Outcome(one.job_id, Event.COMPLETE, token=one.token) for one in taken])
    await run(dsn, "DROP INDEX queue_operator.ready_later")
    # What came later stays, but nobody knows of it: it cannot be applied twice.
    await run(dsn, "DELETE FROM queue_operator.schema_migration WHERE name >= %s", INDEXES.name)
    return backend


async def test_no_statement_of_the_queue_waits_while_indexes_are_built(empty_dsn: str) -> None:
    backend = await before_the_indexes(empty_dsn)
    async with holding(empty_dsn, OLDER):
        upgrade = asyncio.create_task(migrate(empty_dsn, shipped=UP_TO_INDEXES))
        await until_waiting(empty_dsn, 1)
        # Of ready_later, with the lock of its table, and it waits for the older transaction.
        assert await who_waits(empty_dsn, "virtualxid") == ["queue-operator-migrate"]
        await backend.enqueue_jobs([Job(id=f"meanwhile-{n}", type="t") for n in range(3)])
        one, _ = await backend.dequeue_jobs("w", [], 2)
        await backend.complete_job(one.id, b"r")
        await run(empty_dsn, "SELECT FROM queue_operator.lease FOR UPDATE")
        assert (await backend.get_job_stats([])).completed_jobs == 501
        with pytest.raises(SchemaMismatch, match=f"lacks {INDEXES.name}"):
            await PostgresBackend.open(empty_dsn)
        assert not upgrade.done()
    assert await upgrade == [INDEXES.name]
    assert dumped(empty_dsn) == SNAPSHOT.read_text()
    await backend.close()


async def test_an_index_that_was_half_built_is_built_anew(empty_dsn: str) -> None:
    backend = await before_the_indexes(empty_dsn)
    async with holding(empty_dsn, OLDER):
        killed = asyncio.create_task(migrate(empty_dsn, shipped=UP_TO_INDEXES))
        await until_waiting(empty_dsn, 1)
        await run(
            empty_dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'virtualxid'",
        )
        with pytest.raises(Unavailable):
            await killed
        with pytest.raises(Unavailable, match=f"{INDEXES.name} is not done"):
            await migrate(empty_dsn, shipped=UP_TO_INDEXES, lock_timeout_s=0.05, patience_s=0.1)
    said: list[str] = []
    assert await migrate(empty_dsn, shipped=UP_TO_INDEXES, say=said.append) == [INDEXES.name]
    assert "dropping ready_later, of which a half was built" in said
    # What was whole stayed.
    assert not [text for text in said if text.startswith("CREATE INDEX CONCURRENTLY lane_by_use")]
    assert dumped(empty_dsn) == SNAPSHOT.read_text()
    await backend.close()


async def test_one_builds_indexes_the_others_wait_and_are_not_waited_for(empty_dsn: str) -> None:
    backend = await before_the_indexes(empty_dsn)
    waits = asyncio.Event()
    async with holding(empty_dsn, OLDER):
        first = asyncio.create_task(migrate(empty_dsn, shipped=UP_TO_INDEXES))
        await until_waiting(empty_dsn, 1)
        second = asyncio.create_task(
            migrate(empty_dsn, shipped=UP_TO_INDEXES, say=lambda _: waits.set())
        )
        await asyncio.wait_for(waits.wait(), PATIENT_S)
        assert await who_waits(empty_dsn, "advisory") == []
        with pytest.raises(Unavailable, match=r"has built indexes for 0\.2 s and goes on"):
            await migrate(empty_dsn, shipped=UP_TO_INDEXES, patience_s=0.2)
    assert await first == [INDEXES.name]
    assert await second == []
    await backend.close()


def test_no_transaction_builds_an_index_on_a_table_that_may_be_large() -> None:
    for migration in SHIPPED:
        if migration.is_outside:
            continue
        made = set(re.findall(r"CREATE TABLE (\w+)", migration.text))
        built = set(re.findall(r"CREATE (?:UNIQUE )?INDEX \w+\s+ON (\w+)", migration.text))
        assert built <= made, migration.name


def test_what_runs_outside_a_transaction_can_be_repeated() -> None:
    outside = [migration for migration in SHIPPED if migration.is_outside]
    assert outside
    for statement in [one for migration in outside for one in split(migration.statements)]:
        assert re.match(r"(CREATE|DROP) INDEX CONCURRENTLY (\w+\s|IF EXISTS )", statement)
        assert " queue_operator." in statement


# Which schema goes with which release


async def test_without_the_schema_opening_says_what_to_run(empty_dsn: str) -> None:
    with pytest.raises(SchemaMismatch, match="run `queue-operator migrate`"):
        await PostgresBackend.open(empty_dsn)


async def test_with_half_of_the_schema_opening_names_what_is_missing(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    await run(empty_dsn, "DELETE FROM queue_operator.schema_migration WHERE name = %s", NAMES[-1])
    with pytest.raises(SchemaMismatch, match=NAMES[-1]):
        await PostgresBackend.open(empty_dsn)


Try = Callable[[str], Awaitable[object]]


@pytest.mark.parametrize("attempt", [migrate, PostgresBackend.open], ids=["migrate", "open"])
async def test_a_migration_that_was_applied_with_other_content_is_refused(
    empty_dsn: str, attempt: Try
) -> None:
    await migrate(empty_dsn)
    await run(empty_dsn, "UPDATE queue_operator.schema_migration SET checksum = 'other'")
    with pytest.raises(SchemaMismatch, match="applied with other content"):
        await attempt(empty_dsn)


async def test_an_older_release_goes_on_with_a_newer_schema(empty_dsn: str) -> None:
    await migrate(empty_dsn, shipped=[*SHIPPED, WIDER, WIDEST])
    assert await migrate(empty_dsn) == []
    backend = await PostgresBackend.open(empty_dsn)
    await backend.close()


@pytest.mark.parametrize("attempt", [migrate, PostgresBackend.open], ids=["migrate", "open"])
async def test_an_older_release_refuses_a_schema_that_it_cannot_live_with(
    empty_dsn: str, attempt: Try
) -> None:
    newer = [*SHIPPED, WIDER, BREAKING]
    await migrate(empty_dsn, shipped=newer)
    with pytest.raises(SchemaMismatch, match="needs a release that knows 9003_breaking"):
        await attempt(empty_dsn)
    assert await migrate(empty_dsn, shipped=newer) == []


async def test_a_migration_that_was_passed_over_is_not_made_up_for(empty_dsn: str) -> None:
    """In the wrong order it could fail half way, or make another schema than everywhere else."""
    await migrate(empty_dsn, shipped=[*SHIPPED, WIDEST])
    with pytest.raises(SchemaMismatch, match="9001_wider was never applied, but 9002_widest was"):
        await migrate(empty_dsn, shipped=[*SHIPPED, WIDER, WIDEST])
