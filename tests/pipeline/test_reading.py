"""Every committed event reaches the lake, once, whatever happens around it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from tests.pipeline.stage import Stage

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.states import JobState
from queue_operator.pipeline.checkpoint import locked
from queue_operator.pipeline.errors import (
    DatabaseRefused,
    EventsTooNew,
    NotMigrated,
    PipelineBusy,
    SparkFailed,
)
from queue_operator.pipeline.source import (
    JOBS_PER_READ,
    Snapshot,
    Window,
    connect,
    read_events,
    shape,
)

# PySpark leaves the socket open over which it fetched a result.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

PENDING = JobState.INITIAL_PENDING.value


def test_an_empty_log_gives_an_empty_report(stage: Stage) -> None:
    report = stage.run()
    assert (report.events, report.bronze_rows, report.rollup_rows) == (0, 0, 0)
    assert report.generation == 1
    assert stage.rollup() == {}


def test_what_was_read_is_not_read_again(stage: Stage) -> None:
    numbers = stage.events.submit(3)
    stage.events.claim(numbers, [10, 20, 30])
    first = stage.run()
    again = stage.run()
    stage.events.complete(numbers, [100, 200, 300])
    last = stage.run()
    assert (first.events, first.bronze_rows) == (2, 6)
    assert (again.events, again.bronze_rows, again.hours) == (0, 0, ())
    assert (last.events, last.bronze_rows) == (1, 3)
    assert stage.stored_jobs() == sorted(numbers * 3)


def test_an_event_that_commits_late_is_neither_lost_nor_doubled(stage: Stage) -> None:
    """Its row has the lower number and the lower transaction id, and commits last."""
    stage.run()
    with psycopg.connect(stage.dsn) as slow:
        early = type(stage.events)(slow, iter([100])).submit()
        prompt = stage.events.submit(2, type="report")
        before = stage.run()
        assert stage.stored_jobs() == prompt
        slow.commit()
    after = stage.run()
    assert stage.stored_jobs() == [*prompt, *early]
    assert (before.bronze_rows, after.bronze_rows) == (2, 1)
    assert stage.run().bronze_rows == 0
    counts = {key: row["transitions"] for key, row in stage.rollup().items()}
    assert counts == {("mail", PENDING): 1, ("report", PENDING): 2}


def test_an_idle_transaction_holds_nothing_up(stage: Stage) -> None:
    with psycopg.connect(stage.dsn) as idle:
        idle.execute("SELECT pg_current_xact_id()")
        rows = []
        for count in (1, 2, 3):
            stage.events.submit(count)
            rows.append(stage.run().bronze_rows)
        idle.rollback()
    assert rows == [1, 2, 3]
    assert len(stage.stored_jobs()) == 6


def test_a_run_that_dies_after_writing_is_made_good(stage: Stage) -> None:
    """The roll-up fails, so the lake has the rows and the checkpoint does not know."""
    stage.events.submit(2)
    stage.run()
    numbers = stage.events.submit(3)
    stage.events.connection.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the disk is full'; END $$"
    )
    stage.events.connection.execute(
        "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON queue_operator.rollup_hour "
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(DatabaseRefused, match="Postgres refused: the disk is full"):
        stage.run()
    assert len(stage.stored_jobs()) == 5

    stage.events.connection.execute("DROP TRIGGER refuse ON queue_operator.rollup_hour")
    stage.events.claim(numbers, [1, 2, 3])
    report = stage.run()
    assert (report.events, report.bronze_rows) == (2, 6)
    assert stage.stored_jobs() == [1, 2, 3, 3, 4, 4, 5, 5]
    assert stage.rollup()["mail", PENDING]["transitions"] == 5
    assert stage.run().bronze_rows == 0


async def pruned(dsn: str) -> int:
    backend = await PostgresBackend.open(dsn)
    try:
        await backend.roll_up()
        return await backend.prune_events(3600)
    finally:
        await backend.close()


def test_what_the_first_run_did_not_read_is_not_pruned(stage: Stage) -> None:
    """It dies with a lake made, and nothing in it."""
    stage.events.submit(2)
    stage.events.connection.execute("UPDATE queue_operator.job_event SET schema_version = 9")
    with pytest.raises(EventsTooNew):
        stage.run()
    stage.events.connection.execute("UPDATE queue_operator.job_event SET schema_version = 1")
    assert asyncio.run(pruned(stage.dsn)) == 0
    assert stage.run().bronze_rows == 2
    assert asyncio.run(pruned(stage.dsn)) == 1


def test_a_session_that_waits_for_spark_is_not_ended_as_idle(stage: Stage) -> None:
    name = stage.events.connection.info.dbname
    stage.events.connection.execute(f"ALTER DATABASE {name} SET idle_session_timeout = '50ms'")
    with connect(stage.dsn) as working:
        # It began after the other: when the server has ended it, that one was silent for longer.
        with (
            psycopg.connect(stage.dsn, autocommit=True) as idle,
            pytest.raises(psycopg.OperationalError, match="closed the connection"),
        ):
            next(idle.notifies())
        assert working.execute("SELECT 1").fetchone() == (1,)


def test_many_small_runs_are_merged(stage: Stage) -> None:
    for _ in range(4):
        stage.events.submit(2)
        stage.run()
    lake = stage.lake
    assert lake.compact(1, above_runs=4) == 0
    before = stage.stored_jobs()
    assert lake.compact(1, above_runs=3) == 4
    assert len(lake.runs(1)) == 1
    assert stage.stored_jobs() == before
    stage.events.submit(1)
    stage.run()
    assert stage.rollup()["mail", PENDING]["transitions"] == 9


def test_what_a_killed_merge_leaves_is_counted_once(stage: Stage) -> None:
    stage.events.submit(2)
    stage.run()
    lake = stage.lake
    lake.write(lake.read_run(1, "first").drop("generation", "run"), 1, "compacted-killed")
    assert stage.stored_jobs() == [1, 1, 2, 2]
    stage.events.submit(1)
    stage.run()
    assert stage.rollup()["mail", PENDING]["transitions"] == 3
    lake.compact(1, above_runs=1)
    assert stage.stored_jobs() == [1, 2, 3]


def test_large_windows_are_read_in_equal_parts(stage: Stage) -> None:
    """One row far away by number, and rows of very different weight."""
    fill = sql.SQL(
        "INSERT INTO queue_operator.job_event (seq, event, job_nos) OVERRIDING SYSTEM VALUE"
        " SELECT {} + n, 'CLAIM', array_fill(1, ARRAY[CASE WHEN n % 10 = 0 THEN 500 ELSE 20 END])"
        " FROM generate_series(1, {}) AS n"
    )
    stage.events.connection.execute(fill.format(sql.Literal(0), sql.Literal(1)))
    stage.events.connection.execute(fill.format(sql.Literal(10**9), sql.Literal(1500)))
    total = 20 + 150 * 500 + 1350 * 20
    with connect(stage.dsn) as connection:
        window = Window(None, Snapshot(1, 1))
        cut = shape(connection, window)
        events = read_events(stage.spark, connection, window, cut)
        weights = [sum(len(row.job_nos) for row in part) for part in events.rdd.glom().collect()]
    assert total > JOBS_PER_READ
    assert cut.jobs == total == sum(weights)
    assert len(weights) == 16
    assert max(weights) < 3 * sorted(weights)[8]


def test_the_password_is_in_no_plan(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    stage.events.submit()
    with connect(stage.dsn) as connection:
        window = Window(None, Snapshot(1, 1))
        events = read_events(stage.spark, connection, window, shape(connection, window))
        password = connection.info.password
        events.explain(extended=True)
    shown = capfd.readouterr().out
    assert "JDBCRelation" in shown
    assert len(password) > 8
    assert password not in shown


def test_two_runs_at_once_are_refused(stage: Stage) -> None:
    with (
        connect(stage.dsn) as other,
        locked(other, stage.lake.identity()),
        pytest.raises(PipelineBusy, match="wait"),
    ):
        stage.run()
    assert stage.run().generation == 1


def test_another_lake_starts_from_the_beginning(stage: Stage, tmp_path: Path) -> None:
    stage.events.submit(2)
    stage.run()
    stage.folder.rename(tmp_path / "moved")
    assert stage.run().bronze_rows == 2


def test_a_database_without_tables_says_what_to_do(
    stage: Stage, new_database: Callable[[], str], tmp_path: Path
) -> None:
    bare = type(stage)(new_database(), tmp_path / "lake", stage.spark, stage.events)
    with pytest.raises(NotMigrated, match="queue-operator migrate"):
        bare.run()


def test_events_of_a_later_version_are_refused(stage: Stage) -> None:
    stage.events.submit()
    stage.events.connection.execute("UPDATE queue_operator.job_event SET schema_version = 9")
    with pytest.raises(EventsTooNew, match="upgrade"):
        stage.run()
    assert stage.stored_jobs() == []


def test_a_failure_inside_spark_is_told_in_a_line(stage: Stage) -> None:
    stage.events.submit()
    stage.folder.mkdir()
    (stage.folder / "bronze").write_text("a file where a folder must be")
    with pytest.raises(SparkFailed) as raised:
        stage.run()
    assert "bronze" in raised.value.message
    assert "\n" not in raised.value.message
    (stage.folder / "bronze").unlink()
    assert stage.run().bronze_rows == 1
