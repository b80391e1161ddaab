"""Keeps the classes that a run loads in one file that Java maps at its start.

A rehearsal in a process of its own takes the pipeline's steps with a few made-up events,
without a database, and leaves the archive when its Java ends.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from queue_operator.domain.states import Event, JobState
from queue_operator.pipeline import bronze, gold
from queue_operator.pipeline.errors import SparkFailed
from queue_operator.pipeline.lake import Lake
from queue_operator.pipeline.schemas import SUBMIT
from queue_operator.pipeline.session import (
    build_session,
    check_account,
    class_archive,
    prefetch_jars,
)

REHEARSAL_LIMIT_S: Final = 300
_COLUMNS: Final = (
    "seq bigint, at_us bigint, schema_version smallint, event string, from_state string, "
    "to_state string, job_nos array<bigint>, attempts array<int>, wait_us array<bigint>, "
    "run_us array<bigint>, workers array<string>, failed string, ids array<string>, "
    "correlations array<string>, lane_of array<int>, lanes string"
)


def prefetch_classes() -> Path:
    """The class archive, made at the first call, which takes about half a minute.

    Raises JavaMissing, NoAccount, NoCacheFolder, DriverMissing and SparkFailed.
    """
    archive = class_archive()
    if archive.exists():
        return archive
    check_account()
    prefetch_jars()
    partial = archive.with_suffix(f".{os.getpid()}.partial")
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(partial)],
            capture_output=True,
            text=True,
            timeout=REHEARSAL_LIMIT_S,
            check=False,
        )
        if done.returncode or not partial.exists():
            raise SparkFailed(done.stderr.strip())
        partial.rename(archive)
    finally:
        partial.unlink(missing_ok=True)
    return archive


def rehearse(archive: Path) -> None:
    """Runs the steps, ends Java and waits until it has written `archive`."""
    spark = build_session(
        "local[2]", java_options=[f'"-XX:ArchiveClassesAtExit={archive}"', "-Xlog:cds=off"]
    )
    # PySpark keeps its Java process running until Python ends, and waits for neither.
    gateway: Any = spark.sparkContext._gateway
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(spark, folder)
        lake.identity()
        written = bronze.ingest(lake, _events(spark), 1, "rehearsal", parallel=False)
        list(gold.rollups(gold.typed_events(lake, written)))
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _events(spark: SparkSession) -> DataFrame:
    pending, running = JobState.INITIAL_PENDING.value, JobState.RUNNING.value
    lanes = '[{"namespace": "b", "type": "c", "priority": "d", "tags": []}]'
    none = [None] * 5
    rows = [
        (1, 0, 1, SUBMIT, None, pending, [1], *none, ["a"], None, [0], lanes),
        (2, 1, 1, Event.CLAIM.value, pending, running, [1], [1], [9], None, ["w"], *none),
    ]
    return spark.createDataFrame(rows, _COLUMNS)


if __name__ == "__main__":
    rehearse(Path(sys.argv[1]))
