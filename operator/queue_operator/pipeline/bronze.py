"""Bronze: one typed row per job and transition, from one row per statement."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from queue_operator.pipeline.lake import Lake
from queue_operator.pipeline.schemas import (
    BRONZE,
    FAILED,
    KIND_SUBMISSION,
    KIND_TRANSITION,
    LANE,
    SUBMIT,
)

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
_DAY_HOURS: Final = 24
_EPOCH: Final = date(1970, 1, 1)

# Aligned by position; where a statement has none of a kind the column is null.
_ARRAYS: Final = {
    "job_nos": "bigint",
    "attempts": "int",
    "wait_us": "bigint",
    "run_us": "bigint",
    "workers": "string",
    "ids": "string",
    "correlations": "string",
}
_SCALARS: Final = ("seq", "at_us", "schema_version", "event", "from_state", "to_state")
_FOLDERS: Final = ("generation", "run")
_STRICT: Final = {"mode": "FAILFAST"}


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
    # arrays_zip of a null array would be null as a whole; of an empty one it is padded.
    arrays = [
        F.coalesce(F.col(name), F.array().cast(f"array<{kind}>")).alias(name)
        for name, kind in _ARRAYS.items()
    ]
    aligned = events.select(*_SCALARS, *arrays, _lanes_of_jobs(), _failures())
    zipped = F.arrays_zip(*_ARRAYS, "lane", "failed")
    return aligned.select(*_SCALARS, F.posexplode(zipped)).select(*_columns())


def _lanes_of_jobs() -> Column:
    """Per job submitted the lane it is in; looked up before the rows are taken apart, or
    each of them would carry all lanes of its statement.
    """
    kind = ArrayType(LANE)
    lanes = F.from_json("lanes", kind, _STRICT)
    found = F.transform("lane_of", lambda place: F.get(lanes, place))
    return F.coalesce(found, F.array().cast(kind)).alias("lane")


def _failures() -> Column:
    failed = F.from_json("failed", FAILED, _STRICT)
    return F.coalesce(failed, F.array().cast(FAILED)).alias("failed")


def _columns() -> list[Column]:
    at_us = F.col("at_us")
    submits = F.col("event") == SUBMIT
    computed = {
        **{name: F.col(f"col.lane.{name}") for name in LANE.fieldNames()},
        "ordinal": F.col("pos"),
        # An instant: neither of these two looks at a zone.
        "at": F.timestamp_micros(at_us),
        "day": F.date_from_unix_date(units_since_epoch(at_us, DAY_US).cast("int")),
        "kind": F.when(submits, KIND_SUBMISSION).otherwise(KIND_TRANSITION),
        "job_no": F.col("col.job_nos"),
        # A job that was only submitted has been claimed no times.
        "attempt": F.when(submits, 0).otherwise(F.col("col.attempts")),
        "wait_us": F.col("col.wait_us"),
        "run_us": F.col("col.run_us"),
        "worker": F.col("col.workers"),
        "id": F.col("col.ids"),
        # Left out where no job of the statement has one.
        "correlation_id": F.when(submits, F.coalesce("col.correlations", F.lit(""))),
        "error_category": F.col("col.failed.category"),
        "error_code": F.col("col.failed.code"),
    }
    return [
        computed.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name)
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
