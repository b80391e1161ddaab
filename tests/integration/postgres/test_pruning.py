"""Pruning of the event log: old rows go that all who read it have."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import LiteralString

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.watching import watched

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.protocol import StatsWindow
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job

DAY_S = 86_400.0
IDENTITY: LiteralString = (
    "(SELECT system_identifier FROM pg_control_system())::text"
    " || '.' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
)
NewDatabase = Callable[[], str]
Connection = psycopg.AsyncConnection[TupleRow]
Opened = tuple[PostgresBackend, Connection, str]


async def admin_of(dsn: str) -> Connection:
    options = "-c search_path=queue_operator"
    return await psycopg.AsyncConnection.connect(dsn, autocommit=True, options=options)


async def events(backend: PostgresBackend, first: int, count: int) -> None:
    """One row of the log each."""
    for n in range(first, first + count):
        await backend.enqueue_job(Job(id=f"job-{n}", type="t"))


async def age(admin: Connection) -> None:
    await admin.execute("UPDATE job_event SET at = at - interval '2 days'")


async def rows(admin: Connection) -> int:
    row = await (await admin.execute("SELECT count(*) FROM job_event")).fetchone()
    return row[0] if row else 0


async def a_lake(admin: Connection, name: str, snapshot: str, *, ours: bool = True) -> None:
    """How far the pipeline is with it."""
    await admin.execute(
        "INSERT INTO pipeline_checkpoint (name, generation, system_identifier, snapshot)"
        f" VALUES (%s, 1, CASE WHEN %s THEN {IDENTITY} ELSE 'another' END, %s)"
        " ON CONFLICT (name) DO UPDATE SET snapshot = excluded.snapshot",
        (name, ours, snapshot),
    )


async def snapshot(admin: Connection) -> str:
    row = await (await admin.execute("SELECT pg_current_snapshot()::text")).fetchone()
    return row[0] if row else ""


@pytest.fixture
async def opened(new_database: NewDatabase) -> AsyncIterator[Opened]:
    """A store on a database of its own, and somebody who may do anything there."""
    dsn = new_database()
    await migrate(dsn)
    backend, admin = await PostgresBackend.open(dsn), await admin_of(dsn)
    yield backend, admin, dsn
    await backend.close()
    await admin.close()


async def test_only_what_is_old_goes(opened: Opened) -> None:
    backend, admin, _ = opened
    await events(backend, 0, 5)
    await age(admin)
    await events(backend, 5, 3)
    await backend.roll_up()
    assert await backend.prune_events(DAY_S) == 5
    assert await backend.prune_events(DAY_S) == 0
    assert len(await backend.read_events()) == 3


async def test_what_is_not_rolled_up_is_rolled_up_first(opened: Opened) -> None:
    backend, admin, _ = opened
    await events(backend, 0, 3)
    await backend.roll_up()
    await events(backend, 3, 2)
    await age(admin)
    assert await backend.prune_events(DAY_S) == 5
    assert await rows(admin) == 0
    counted = await backend.window_stats(StatsWindow(time_range_s=3 * DAY_S))
    assert counted.submitted == 5


async def test_what_a_lake_has_not_read_stays(opened: Opened) -> None:
    backend, admin, _ = opened
    await events(backend, 0, 2)
    first = await snapshot(admin)
    await events(backend, 2, 2)
    second = await snapshot(admin)
    await age(admin)
    await backend.roll_up()
    await a_lake(admin, "behind", "")
    await a_lake(admin, "up to date", second)
    assert await backend.prune_events(DAY_S) == 0
    await a_lake(admin, "behind", first)
    assert await backend.prune_events(DAY_S) == 2
    await a_lake(admin, "behind", second)
    assert await backend.prune_events(DAY_S) == 2


async def test_a_lake_that_was_fed_from_another_database_has_read_nothing(
    opened: Opened,
) -> None:
    backend, admin, _ = opened
    await events(backend, 0, 2)
    await age(admin)
    await backend.roll_up()
    await a_lake(admin, "copied", await snapshot(admin), ours=False)
    assert await backend.prune_events(DAY_S) == 0


async def test_a_row_that_was_open_when_the_lake_was_read_stays(opened: Opened) -> None:
    backend, admin, dsn = opened
    other = await admin_of(dsn)
    await other.set_autocommit(False)
    await other.execute("INSERT INTO job_event (event, job_nos) VALUES ('SUBMIT', '{1}')")
    await events(backend, 0, 2)
    read = await snapshot(admin)
    await other.commit()
    await age(admin)
    await backend.roll_up()
    await a_lake(admin, "lake", read)
    assert await backend.prune_events(DAY_S) == 0
    await a_lake(admin, "lake", await snapshot(admin))
    assert await backend.prune_events(DAY_S) == 3
    await other.close()


async def test_an_age_of_nothing_is_refused(opened: Opened) -> None:
    backend, *_ = opened
    with pytest.raises(InvalidArgument) as raised:
        await backend.prune_events(0)
    assert raised.value.field == "older_than_s"


async def test_two_that_prune_share_the_work(opened: Opened) -> None:
    backend, admin, dsn = opened
    await admin.execute(
        "INSERT INTO job_event (event, job_nos, at)"
        " SELECT 'SUBMIT', ARRAY[n], now() - interval '2 days' FROM generate_series(1, 4000) AS n"
    )
    await admin.execute(
        "UPDATE roll_up_progress SET snapshot = pg_current_snapshot(), xid = pg_current_xact_id()"
    )
    other = await PostgresBackend.open(dsn)
    pruned = await asyncio.gather(*(one.prune_events(DAY_S) for one in (backend, other)))
    assert sum(pruned) == 4000
    assert await rows(admin) == 0
    [marks] = await (await admin.execute("SELECT count(*) FROM event_pruned")).fetchall()
    assert marks == (1,)
    await other.close()


async def test_who_is_overtaken_goes_on(opened: Opened) -> None:
    backend, admin, dsn = opened
    await events(backend, 0, 5)
    await age(admin)
    await backend.roll_up()
    other = await admin_of(dsn)
    async with other.transaction():
        # As a step of one row.
        await other.execute("DELETE FROM event_pruned")
        await other.execute(
            "WITH gone AS (DELETE FROM job_event WHERE seq = (SELECT min(seq) FROM job_event)"
            " RETURNING seq) INSERT INTO event_pruned SELECT seq FROM gone"
        )
        pruning = asyncio.create_task(backend.prune_events(DAY_S))
        await until_waiting(dsn, 1)
    assert await pruning == 4
    assert await rows(admin) == 0
    await other.close()


@pytest.mark.parametrize("kept", [1_000, 50_000])
async def test_pruning_reads_what_it_deletes(opened: Opened, kept: int) -> None:
    """Neither what stays, nor what went before and an old snapshot keeps."""
    _, admin, dsn = opened
    reader = await admin_of(dsn)
    await reader.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    await reader.set_autocommit(False)
    await reader.execute("SELECT FROM job_event")
    for days, count in ((2, 20_000), (0, kept)):
        await admin.execute(
            "INSERT INTO job_event (event, job_nos, at)"
            " SELECT 'SUBMIT', ARRAY[n], now() - %s * interval '1 day'"
            " FROM generate_series(1, %s) AS n",
            (days, count),
        )
    await admin.execute(
        "UPDATE roll_up_progress SET snapshot = pg_current_snapshot(), xid = pg_current_xact_id()"
    )
    async with watched(dsn, plans="auto") as (pruner, seen):
        assert await pruner.prune_events(DAY_S) == 20_000
        # To find and to delete each row and its entries.
        assert seen.pages < 20 * 20_000
        seen.clear()
        assert await pruner.prune_events(DAY_S) == 0
        assert seen.pages < 200, str(seen)
    await reader.close()
