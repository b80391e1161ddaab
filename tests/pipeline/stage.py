"""What the tests of the pipeline stand on: a database, a lake, and the pipeline between."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from queue_operator.domain.states import Event, JobState
from queue_operator.pipeline.jobs import PipelineReport, run_pipeline
from queue_operator.pipeline.lake import Lake
from queue_operator.pipeline.schemas import SUBMIT

SOME_TIME = datetime(2026, 3, 1, 10, 30, tzinfo=UTC)
Row = dict[str, Any]


@dataclass
class EventLog:
    """Writes events as the backend does: one row per statement."""

    connection: psycopg.Connection[Any]
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000_000)))

    def submit(self, count: int = 1, *, type: str = "mail", at: datetime = SOME_TIME) -> list[int]:
        """Job numbers of the jobs submitted."""
        numbers = [next(self._numbers) for _ in range(count)]
        ids = [f"job-{number}" for number in numbers]
        # Nobody is in the first, so that a place is not taken for granted.
        lane = {"namespace": "default", "type": type, "priority": "NORMAL", "tags": ["a", "b"]}
        lanes = [{**lane, "type": "another"}, lane]
        self._insert(
            SUBMIT,
            numbers,
            None,
            JobState.INITIAL_PENDING,
            at,
            attempts=None,
            ids=ids,
            lane_of=[1] * count,
            lanes=json.dumps(lanes),
        )
        return numbers

    def claim(
        self, numbers: Sequence[int], wait_us: Sequence[int], at: datetime = SOME_TIME
    ) -> None:
        self._insert(
            Event.CLAIM,
            numbers,
            JobState.INITIAL_PENDING,
            JobState.RUNNING,
            at,
            wait_us=list(wait_us),
            workers=["worker-1"] * len(numbers),
        )

    def complete(
        self, numbers: Sequence[int], run_us: Sequence[int], at: datetime = SOME_TIME
    ) -> None:
        self._leave(Event.COMPLETE, JobState.COMPLETED, numbers, run_us, at)

    def fail(self, numbers: Sequence[int], run_us: Sequence[int], at: datetime = SOME_TIME) -> None:
        failed = [None, *({"category": "USER", "code": "E1"} for _ in numbers[1:])]
        self._leave(Event.FAIL, JobState.FAILED_RETRY, numbers, run_us, at, json.dumps(failed))

    def _leave(
        self,
        event: Event,
        target: JobState,
        numbers: Sequence[int],
        run_us: Sequence[int],
        at: datetime,
        failed: str | None = None,
    ) -> None:
        self._insert(
            event, numbers, JobState.RUNNING, target, at, run_us=list(run_us), failed=failed
        )

    def _insert(
        self,
        event: str,
        numbers: Sequence[int],
        before: JobState | None,
        after: JobState,
        at: datetime,
        **more: Any,
    ) -> None:
        row = {
            "at": at,
            "event": str(event),
            "from_state": before and before.value,
            "to_state": after.value,
            "job_nos": list(numbers),
            "attempts": [1] * len(numbers),
            **more,
        }
        names = sql.SQL(", ").join(map(sql.Identifier, row))
        values = sql.SQL(", ").join(map(sql.Placeholder, row))
        statement = sql.SQL("INSERT INTO queue_operator.job_event ({}) VALUES ({})")
        self.connection.execute(statement.format(names, values), row)


@dataclass(frozen=True)
class Stage:
    """A database, a lake, and the pipeline between them."""

    dsn: str
    folder: Path
    spark: SparkSession
    events: EventLog

    @property
    def lake(self) -> Lake:
        return Lake(self.spark, self.folder)

    def run(self) -> PipelineReport:
        return run_pipeline(self.dsn, self.folder, spark=self.spark)

    def query(self, text: str) -> list[Row]:
        with psycopg.connect(self.dsn, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(text).fetchall()

    def rollup(self) -> dict[tuple[str, str], Row]:
        """By type and state; for tests that stay within one hour."""
        rows = self.query("SELECT * FROM queue_operator.rollup_hour")
        assert len({row["hour"] for row in rows}) <= 1
        return {(row["type"], row["state"]): row for row in rows}

    def stored_jobs(self) -> list[int]:
        """The job number of each row in the lake, doubles included."""
        return sorted(row["job_no"] for row in self.lake.read().select("job_no").collect())
