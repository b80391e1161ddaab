"""Bronze: one typed row per job and transition, from one row per statement."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from queue_operator.pipeline.lake import Lake
from queue_operator.pipeline.schemas import (
    BRONZE,
    FAILED,
    KIND_SUBMISSION,
    KIND_TRANSITION,
    SUBMITTED,
)

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
_DAY_HOURS: Final = 24
_EPOCH: Final = date(1970, 1, 1)

# Aligned by position; where a statement has none of a kind the column is null.
_ARRAYS: Final = {
    "job_nos": "bigint",
    "from_states": "string",
    "to_states": "string",
    "attempts": "int",
    "wait_us": "bigint",
    "run_us": "bigint",
    "workers": "string",
}
_FOLDERS: Final = ("generation", "run")


@dataclass(frozen=True, slots=True)
class Written:
    """What one run put into the lake. `hours` count from 1970 in UTC."""

    events: int
    rows: int
    hours: tuple[int, ...]

    @property
    def days(self) -> list[date]:
        return [
            _EPOCH + timedelta(days=day) for day in sorted({h // _DAY_HOURS for h in self.hours})
        ]


def explode(events: DataFrame) -> DataFrame:
    """`job_event` rows, as `read_events` gives them, to bronze rows."""
    strict = {"mode": "FAILFAST"}
    # arrays_zip of a null array would be null as a whole; of an empty one it is padded.
    arrays = [
        F.coalesce(F.col(name), F.array().cast(f"array<{kind}>")).alias(name)
        for name, kind in _ARRAYS.items()
    ]
    submitted = F.coalesce(F.from_json("submitted", SUBMITTED, strict), F.array().cast(SUBMITTED))
    failed = F.coalesce(F.from_json("failed", FAILED, strict), F.array().cast(FAILED))
    aligned = events.select(
        "seq",
        "at_us",
        "schema_version",
        "event",
        F.col("submitted").isNotNull().alias("submits"),
        *arrays,
        submitted.alias("submitted"),
        failed.alias("failed"),
    )
    zipped = F.arrays_zip(*_ARRAYS, "submitted", "failed")
    rows = aligned.select(
        "seq", "at_us", "schema_version", "event", "submits", F.posexplode(zipped)
    )
    return rows.select(*_columns())


def _columns() -> list[Column]:
    at_us = F.col("at_us")
    kind = F.when(F.col("submits"), KIND_SUBMISSION).otherwise(KIND_TRANSITION)
    computed = {
        "ordinal": F.col("pos"),
        # An instant: neither of these two looks at a zone.
        "at": F.timestamp_micros(at_us),
        "day": F.date_from_unix_date(units_since_epoch(at_us, DAY_US).cast("int")),
        "kind": kind,
        "job_no": F.col("col.job_nos"),
        "from_state": F.col("col.from_states"),
        "to_state": F.col("col.to_states"),
        "attempt": F.col("col.attempts"),
        "wait_us": F.col("col.wait_us"),
        "run_us": F.col("col.run_us"),
        "worker": F.col("col.workers"),
        "error_category": F.col("col.failed.category"),
        "error_code": F.col("col.failed.code"),
    }
    own = {"seq", "schema_version", "event"}
    submission = F.col("col.submitted")
    return [
        computed.get(field.name, F.col(field.name) if field.name in own else submission[field.name])
        .cast(field.dataType)
        .alias(field.name)
        for field in BRONZE
        if field.name not in _FOLDERS
    ]


def units_since_epoch(at_us: Column, unit_us: int) -> Column:
    """Whole units since 1970, rounded down before it too, in integer arithmetic."""
    unit = F.lit(unit_us).cast("bigint")
    return F.call_function("div", at_us - F.pmod(at_us, unit), unit)


def hour_of(at: Column) -> Column:
    """Hours since 1970 of a timestamp column, in UTC whatever the session's zone."""
    return units_since_epoch(F.unix_micros(at), HOUR_US)


def ingest(lake: Lake, events: DataFrame, generation: int, run: str, *, parallel: bool) -> Written:
    """Writes the run and looks at what was written."""
    rows = explode(events)
    lake.write(rows.hint("rebalance", "kind", "day") if parallel else rows, generation, run)
    counts = (
        lake.read_run(generation, run)
        .groupBy(hour_of(F.col("at")).alias("hour"))
        .agg(F.count_if(F.col("ordinal") == 0).alias("events"), F.count("*").alias("rows"))
        .collect()
    )
    return Written(
        events=sum(row["events"] for row in counts),
        rows=sum(row["rows"] for row in counts),
        hours=tuple(sorted(row["hour"] for row in counts)),
    )
