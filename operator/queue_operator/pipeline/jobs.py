"""The pipeline's one job: read what is new, write it to the lake, roll up, and only then
remember how far it got.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg.rows import dict_row
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from queue_operator.pipeline import bronze, gold
from queue_operator.pipeline.checkpoint import (
    Checkpoint,
    locked,
    open_checkpoint,
    save_checkpoint,
)
from queue_operator.pipeline.errors import SparkFailed
from queue_operator.pipeline.lake import Lake
from queue_operator.pipeline.session import build_session
from queue_operator.pipeline.source import (
    Connection,
    Snapshot,
    connect,
    read_events,
    shape,
    statement,
)

Say = Callable[[str], None]
"""Told what is being done, in the words of one short line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """What a run did. `seconds` is the time of each step by its name.

    `events` counts rows of the event log, one per statement; `bronze_rows` what they were
    exploded into, one per job. `hours` are the starts of the hours recomputed, in UTC.
    """

    generation: int
    snapshot: str
    events: int = 0
    bronze_rows: int = 0
    hours: tuple[datetime, ...] = ()
    rollup_rows: int = 0
    compacted_runs: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def run_pipeline(
    dsn: str,
    lake: Path | str,
    *,
    master: str = "local[2]",
    spark: SparkSession | None = None,
    say: Say = lambda _: None,
) -> PipelineReport:
    """Takes the lake and `rollup_hour` to what is committed now.

    Nothing is lost or counted twice, whenever it dies and however often it runs. Uses
    `spark`, else the session that is active, and leaves it running; it must have the JDBC
    driver, as those of `build_session` do. Without either it starts one on `master` and
    stops it at the end. Raises Unavailable when Postgres cannot be reached,
    JavaMissing, NoAccount, NoCacheFolder, DriverMissing, NotMigrated, PipelineBusy,
    EventsTooNew, DatabaseRefused and SparkFailed.
    """
    clock = _Steps(say)
    try:
        with connect(dsn) as connection, _session(spark, master, clock) as session:
            return _run(connection, Lake(session, lake), session, clock)
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(str(error)) from error


def latest_rollup(dsn: str, limit: int) -> list[dict[str, Any]]:
    """The newest `limit` rows of `rollup_hour`, without the histograms."""
    with connect(dsn) as connection:
        cursor = connection.cursor(row_factory=dict_row)
        return cursor.execute(statement("latest_rollup"), (limit,)).fetchall()


class _Steps:
    """Names the steps as they start and keeps how long they took."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str, text: str) -> Iterator[None]:
        self._say(text)
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 3)


@contextmanager
def _session(spark: SparkSession | None, master: str, clock: _Steps) -> Iterator[SparkSession]:
    running = spark or SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with clock.step("session", f"starting Spark on {master}"):
        own = build_session(master)
    try:
        yield own
    finally:
        own.stop()


def _run(connection: Connection, lake: Lake, spark: SparkSession, clock: _Steps) -> PipelineReport:
    name = lake.identity()
    with locked(connection, name):
        start, upto = open_checkpoint(connection, name, lake.newest_generation())
        written = _ingest(connection, lake, spark, start, upto, clock)
        with clock.step("gold", f"rolling up {len(written.hours)} hours"):
            rollup_rows = _publish(connection, lake, start.advanced(upto), written)
        with clock.step("compact", "looking after the lake"):
            compacted = lake.compact(start.generation)
    return PipelineReport(
        generation=start.generation,
        snapshot=str(upto),
        events=written.events,
        bronze_rows=written.rows,
        hours=tuple(_instant(hour) for hour in written.hours),
        rollup_rows=rollup_rows,
        compacted_runs=compacted,
        seconds=clock.seconds,
    )


def _ingest(
    connection: Connection,
    lake: Lake,
    spark: SparkSession,
    start: Checkpoint,
    upto: Snapshot,
    clock: _Steps,
) -> bronze.Written:
    window = start.window(upto)
    if window.is_empty:
        return bronze.Written(events=0, rows=0, hours=())
    with clock.step("look", "looking for new events"):
        cut = shape(connection, window)
    if cut.jobs == 0:
        return bronze.Written(events=0, rows=0, hours=())
    with clock.step("bronze", f"writing {cut.jobs} transitions to the lake"):
        events = read_events(spark, connection, window, cut)
        return bronze.ingest(
            lake, events, start.generation, start.run, parallel=len(cut.predicates()) > 1
        )


def _publish(
    connection: Connection, lake: Lake, reached: Checkpoint, written: bronze.Written
) -> int:
    """Roll-ups and checkpoint in one transaction: neither is ever seen without the other."""
    rows = list(gold.rollups(gold.typed_events(lake, written))) if written.hours else []
    with connection.transaction():
        stored = gold.replace_hours(connection, map(_instant, written.hours), rows)
        save_checkpoint(connection, reached)
    return stored


def _instant(hour: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
