"""The numbers in `rollup_hour` are those one gets by counting the events by hand."""

import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.pipeline.stage import Row, Stage

from queue_operator.domain.histogram import bucket_of as bucket_in_python
from queue_operator.domain.states import JobState
from queue_operator.pipeline import gold
from queue_operator.pipeline.bronze import hour_of

# PySpark leaves the socket open over which it fetched a result.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

VECTORS = json.loads(
    (Path(__file__).resolve().parents[1] / "vectors" / "histogram.json").read_text()
)
HOUR = datetime(2026, 3, 1, 10, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def nearest_rank(values: Sequence[int], percent: int) -> int:
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1]


def test_buckets_in_spark_are_those_of_the_vectors(spark: SparkSession) -> None:
    values = [(vector["value_us"], vector["bucket"]) for vector in VECTORS["buckets"]]
    frame = spark.createDataFrame(values, "value bigint, wanted int")
    found = frame.withColumn("found", gold.bucket_of(F.col("value"))).collect()
    assert [row["found"] for row in found] == [row["wanted"] for row in found]


def test_no_value_has_no_bucket(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(None,)], "value bigint")
    assert frame.select(gold.bucket_of(F.col("value"))).collect()[0][0] is None


def test_counts_rates_and_percentiles(stage: Stage) -> None:
    draw = random.Random(7)  # noqa: S311
    numbers = {name: stage.events.submit(200, type=name) for name in ("mail", "report")}
    waits = {name: [int(draw.lognormvariate(10, 2)) for _ in range(200)] for name in numbers}
    runs = {name: [int(draw.lognormvariate(14, 1)) for _ in range(200)] for name in numbers}
    for name in numbers:
        stage.events.claim(numbers[name], waits[name])
        stage.events.complete(numbers[name][:150], runs[name][:150])
        stage.events.fail(numbers[name][150:], runs[name][150:])
    report = stage.run()
    rollup = stage.rollup()

    assert (report.events, report.bronze_rows, report.rollup_rows) == (8, 1200, 8)
    assert report.hours == (HOUR,)
    for name in numbers:
        running = rollup[name, JobState.RUNNING]
        assert running["transitions"] == 200
        assert running["rate_per_s"] == pytest.approx(200 / 3600)
        check_measure(running, "queue_latency", waits[name])
        check_nothing_measured(running, "execution")
        check_measure(rollup[name, JobState.COMPLETED], "execution", runs[name][:150])
        check_measure(rollup[name, JobState.FAILED_RETRY], "execution", runs[name][150:])
        assert rollup[name, JobState.INITIAL_PENDING]["transitions"] == 200


def test_a_group_that_vanishes_is_not_counted_beside_the_one_that_took_its_place(
    stage: Stage,
) -> None:
    # The job's claim is there before its submission.
    stage.events.claim([1], [1000])
    stage.run()
    assert {key: row["transitions"] for key, row in stage.rollup().items()} == {
        (gold.UNKNOWN, JobState.RUNNING): 1
    }
    assert stage.events.submit(1, type="mail") == [1]
    stage.run()
    assert {key: row["transitions"] for key, row in stage.rollup().items()} == {
        ("mail", JobState.RUNNING): 1,
        ("mail", JobState.INITIAL_PENDING): 1,
    }


def check_measure(row: Row, prefix: str, values: Sequence[int]) -> None:
    for percent in (50, 90, 99):
        exact = nearest_rank(values, percent)
        assert abs(row[f"{prefix}_p{percent}_us"] - exact) <= exact / 64
    assert row[f"{prefix}_max_us"] == max(values)
    buckets: dict[str, int] = {}
    for value in values:
        key = str(bucket_in_python(value))
        buckets[key] = buckets.get(key, 0) + 1
    assert row[f"{prefix}_histogram"] == buckets


def check_nothing_measured(row: Row, prefix: str) -> None:
    assert row[f"{prefix}_histogram"] == {}
    assert all(row[f"{prefix}_{name}_us"] is None for name in ("p50", "p90", "p99", "max"))


def test_an_hour_is_recomputed_as_a_whole(stage: Stage) -> None:
    first = stage.events.submit(1)
    stage.events.claim(first, [1000])
    stage.run()
    second = stage.events.submit(1)
    stage.events.claim(second, [9000])
    stage.run()
    row = stage.rollup()["mail", JobState.RUNNING]
    assert (row["transitions"], row["queue_latency_max_us"]) == (2, 9000)
    check_measure(row, "queue_latency", [1000, 9000])


def test_other_hours_are_left_alone(stage: Stage) -> None:
    stage.events.submit(1, at=HOUR)
    stage.run()
    stage.events.connection.execute("UPDATE queue_operator.rollup_hour SET written_at = 'epoch'")
    stage.events.submit(1, at=HOUR + timedelta(hours=5))
    assert stage.run().hours == (HOUR + timedelta(hours=5),)
    rows = stage.query("SELECT written_at FROM queue_operator.rollup_hour ORDER BY hour")
    assert rows[0]["written_at"] == EPOCH
    assert rows[1]["written_at"] > HOUR


def test_the_type_comes_from_a_submission_of_an_earlier_day(stage: Stage) -> None:
    numbers = stage.events.submit(2, type="report", at=HOUR - timedelta(days=3))
    stage.run()
    stage.events.claim(numbers, [5, 6])
    stage.events.claim([999_999], [7])
    stage.run()
    rows = stage.query(
        "SELECT type, transitions FROM queue_operator.rollup_hour "
        "WHERE hour = '2026-03-01 10:00+00' ORDER BY type"
    )
    assert [tuple(row.values()) for row in rows] == [(gold.UNKNOWN, 1), ("report", 2)]


def test_what_was_submitted_is_in_the_lake(stage: Stage) -> None:
    numbers = stage.events.submit(1)
    stage.events.claim(numbers, [5])
    stage.events.fail([*numbers, *numbers], [8, 9])
    stage.run()
    rows = stage.lake.read().orderBy("seq", "ordinal").collect()
    submitted, claimed, failed, other = rows
    assert (submitted.id, submitted.type, submitted.tags) == ("job-1", "mail", ["a", "b"])
    assert (submitted.kind, submitted.priority, submitted.from_state) == (
        "submission",
        "NORMAL",
        None,
    )
    assert (claimed.worker, claimed.wait_us, claimed.run_us, claimed.id) == (
        "worker-1",
        5,
        None,
        None,
    )
    assert (failed.error_category, failed.run_us) == (None, 8)
    assert (other.error_category, other.error_code, other.ordinal) == ("USER", "E1", 1)


INSTANTS = [
    "2026-03-08T02:30:00-05:00",
    "2026-11-01T01:30:00-04:00",
    "2026-11-01T01:30:00-05:00",
    "1969-12-31T23:59:59.999999+00:00",
    "1883-11-18T12:03:57.999999+00:00",
    "9999-12-31T23:59:59.999999+00:00",
    "2026-06-30T23:30:00.000001+00:00",
]


@pytest.fixture
def foreign_zones(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """New York in Spark and Python, Kolkata in the JVM and the database."""
    jvm: Any = stage.spark._jvm
    zones = jvm.java.util.TimeZone
    before = zones.getDefault()
    database = stage.events.connection.info.dbname
    stage.events.connection.execute(f"ALTER DATABASE {database} SET timezone = 'Asia/Kolkata'")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    stage.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    zones.setDefault(zones.getTimeZone("Asia/Kolkata"))
    yield
    zones.setDefault(before)
    stage.spark.conf.set("spark.sql.session.timeZone", "UTC")
    monkeypatch.undo()
    os.environ.setdefault("TZ", "UTC")
    time.tzset()


@pytest.mark.usefixtures("foreign_zones")
def test_no_zone_setting_moves_an_instant(stage: Stage) -> None:
    instants = [datetime.fromisoformat(text) for text in INSTANTS]
    for instant in instants:
        stage.events.submit(1, at=instant)
    report = stage.run()

    stored = stage.lake.read().select("seq", F.unix_micros("at").alias("us"), "day").collect()
    by_seq = {row["seq"]: row for row in stored}
    wanted = [(instant - EPOCH) // timedelta(microseconds=1) for instant in instants]
    assert [by_seq[seq]["us"] for seq in sorted(by_seq)] == wanted
    days = [instant.astimezone(UTC).date() for instant in instants]
    assert [by_seq[seq]["day"] for seq in sorted(by_seq)] == days

    hours = sorted(
        instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0) for instant in instants
    )
    assert list(report.hours) == hours
    rows = stage.query(
        "SELECT extract(epoch FROM hour)::bigint AS s FROM queue_operator.rollup_hour ORDER BY 1"
    )
    assert [row["s"] for row in rows] == [int(hour.timestamp()) for hour in hours]


def test_hours_before_1970_round_down(spark: SparkSession) -> None:
    frame = spark.sql("SELECT timestamp_micros(-1) AS at")
    assert frame.select(hour_of(F.col("at"))).collect()[0][0] == -1
