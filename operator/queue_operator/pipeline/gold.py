"""Gold: hourly roll-ups, recomputed for the hours that a run touched."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from queue_operator.domain.histogram import MANTISSA_BITS, percentile
from queue_operator.pipeline.bronze import Written, hour_of
from queue_operator.pipeline.lake import Lake
from queue_operator.pipeline.schemas import EVENT_KEY, KIND_SUBMISSION
from queue_operator.pipeline.source import Connection, statement

UNKNOWN: Final = "(unknown)"
"""Namespace and type of a job whose submission never reached the lake."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR_S: Final = 3600
_PER_MILLE: Final = {"p50": 500, "p90": 900, "p99": 990}
_KEY: Final = ("hour", "namespace", "type", "state")


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one measure: count by histogram bucket, and the largest value, exact."""

    counts: Mapping[int, int]
    max_us: int | None

    def columns(self, prefix: str) -> dict[str, Any]:
        """The measure's columns of `rollup_hour`; null where nothing was measured."""
        percentiles = {
            f"{prefix}_{name}_us": self._percentile(per_mille)
            for name, per_mille in _PER_MILLE.items()
        }
        histogram = {str(bucket): self.counts[bucket] for bucket in sorted(self.counts)}
        return {
            **percentiles,
            f"{prefix}_max_us": self.max_us,
            f"{prefix}_histogram": json.dumps(histogram),
        }

    def _percentile(self, per_mille: int) -> int | None:
        """The histogram's, but never above the maximum, which is known exactly."""
        found = percentile(self.counts, per_mille)
        return found if found is None or self.max_us is None else min(found, self.max_us)


@dataclass(frozen=True, slots=True)
class Rollup:
    """One hour of one namespace, type and state that jobs went into."""

    hour: datetime
    namespace: str
    type: str
    state: str
    transitions: int
    queue_latency: Latency
    execution: Latency

    def columns(self) -> dict[str, Any]:
        return {
            "hour": self.hour,
            "namespace": self.namespace,
            "type": self.type,
            "state": self.state,
            "transitions": self.transitions,
            "rate_per_s": self.transitions / _HOUR_S,
            **self.queue_latency.columns("queue_latency"),
            **self.execution.columns("execution"),
        }


def bucket_of(value: Column) -> Column:
    """`domain.histogram.bucket_of` for a bigint column; null stays null.

    The binary exponent is the length of the number written in base 2: a logarithm would
    be a floating point number, and wrong next to a power of two.
    """
    width = 1 << MANTISSA_BITS
    bits = F.length(F.bin(value))
    shift = bits - (1 + MANTISSA_BITS)
    mantissa = F.call_function("shiftright", value, shift).bitwiseAND(F.lit(width - 1))
    logarithmic = (shift + 1) * width + mantissa
    return F.when(value < width, F.greatest(value, F.lit(0))).otherwise(logarithmic).cast("int")


def typed_events(lake: Lake, written: Written) -> DataFrame:
    """Every event of the touched hours once, with its job's namespace and type.

    Those come from the job's submission, wherever in the lake that is. A job number means
    one job within a generation only; an event that two generations have seen is the same
    job in both, so it does not matter which of the two is kept.
    """
    bronze = lake.read()
    touched = bronze.where(
        F.col("day").isin(written.days) & hour_of(F.col("at")).isin(list(written.hours))
    ).drop("namespace", "type")
    submissions = bronze.where(F.col("kind") == KIND_SUBMISSION).select(
        "generation", "job_no", "namespace", "type"
    )
    joined = touched.join(submissions, ["generation", "job_no"], "left")
    return joined.dropDuplicates([*EVENT_KEY])


def rollups(events: DataFrame) -> Iterator[Rollup]:
    """The roll-up of `typed_events`; histograms are counted in Spark, in two steps so that
    no group has more entries than there are buckets. A deletion leads into no state, and is
    counted nowhere.
    """
    measured = events.where(F.col("to_state").isNotNull()).select(
        hour_of(F.col("at")).alias("hour"),
        F.coalesce("namespace", F.lit(UNKNOWN)).alias("namespace"),
        F.coalesce("type", F.lit(UNKNOWN)).alias("type"),
        F.col("to_state").alias("state"),
        *("wait_us", "run_us"),
        bucket_of(F.col("wait_us")).alias("wait"),
        bucket_of(F.col("run_us")).alias("run"),
    )
    by_bucket = measured.groupBy(*_KEY, "wait", "run").agg(
        F.count("*").alias("jobs"),
        F.max("wait_us").alias("wait_us"),
        F.max("run_us").alias("run_us"),
    )
    grouped = by_bucket.groupBy(*_KEY).agg(
        F.sum("jobs").alias("transitions"),
        F.max("wait_us").alias("wait_us"),
        F.max("run_us").alias("run_us"),
        F.collect_list(F.struct("wait", "run", "jobs")).alias("buckets"),
    )
    for row in grouped.toLocalIterator():
        yield Rollup(
            hour=_EPOCH + timedelta(hours=row["hour"]),
            namespace=row["namespace"],
            type=row["type"],
            state=row["state"],
            transitions=row["transitions"],
            queue_latency=_latency(row["buckets"], "wait", row["wait_us"]),
            execution=_latency(row["buckets"], "run", row["run_us"]),
        )


def _latency(buckets: Iterable[Any], measure: str, max_us: int | None) -> Latency:
    counts: Counter[int] = Counter()
    for entry in buckets:
        if entry[measure] is not None:
            counts[entry[measure]] += entry["jobs"]
    # A clock set back gives negative durations, which the histogram counts as 0.
    return Latency(counts, None if max_us is None else max(max_us, 0))


def replace_hours(connection: Connection, hours: Iterable[datetime], rows: Iterable[Rollup]) -> int:
    """Stores the roll-ups of these hours in place of earlier ones, also of those whose group has
    vanished, as that of unknown jobs does once their submissions are there; the caller's
    transaction. Tells how many.
    """
    columns = [row.columns() for row in rows]
    with connection.cursor() as cursor:
        cursor.execute(statement("forget_rollups"), {"hours": list(hours)})
        cursor.executemany(statement("upsert_rollup"), columns)
    return len(columns)
