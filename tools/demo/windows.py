"""What there is to look at: tables, metrics, the rollup."""

import os
import subprocess
import sys
import urllib.request

from demo.install import ROOT, SYSTEM
from demo.kube import Kube
from demo.narrator import DemoFailed, check, say
from demo.store import Store
from queue_operator.crd.names import QUEUE_JOB, QUEUE_WORKER
from queue_operator.devcluster import ClusterInfo, progress_for
from queue_operator.devcluster.state import existing_folder
from queue_operator.domain.states import JobState
from queue_operator.pipeline.classes import prefetch_classes
from queue_operator.pipeline.session import prefetch_jars

PIPELINE_LIMIT_S = 300
# One hour of the demo: seven types in up to five states.
ROWS = 25
SHOWN = (
    "queueoperator_jobs{",
    "queueoperator_jobs_submitted_total",
    "queueoperator_job_attempts_total",
    "queueoperator_worker_slots",
    "queueoperator_leases_expired_total",
    "queueoperator_oldest_runnable_job_age_seconds",
)


def show_tables(kube: Kube) -> None:
    # In full: the short names may be another group's as well.
    say(kube.run("get", f"{QUEUE_JOB.crd},{QUEUE_WORKER.crd}"))


def show_metrics(cluster: ClusterInfo) -> None:
    with (
        Kube(cluster, SYSTEM).forwarded("svc/queue-operator-metrics", 9090) as address,
        urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer,
    ):
        lines = answer.read().decode().splitlines()
    shown = [line for line in lines if line.startswith(SHOWN) and not line.endswith(" 0.0")]
    check(
        "the metrics endpoint tells of the jobs",
        any("queueoperator_jobs" in line for line in shown),
    )
    say("\n".join(shown[:24]))


def prepare_spark() -> None:
    """Fetches the database driver and keeps Spark's classes ready, once per machine."""
    with progress_for(sys.stderr).step("fetching Spark's database driver, keeping its classes"):
        prefetch_jars()
        prefetch_classes()


class Rollup:
    """The Spark job, and a check of what it wrote."""

    def __init__(self, cluster: ClusterInfo) -> None:
        self._store = Store(cluster.postgres_dsn)
        # Goes with the cluster: a new one has a new history, and a lake keeps the old ones too.
        self._lake = existing_folder(cluster.name).path / "lake"
        self._dsn = cluster.postgres_dsn

    def run(self) -> None:
        command = [sys.executable, "-m", "queue_operator.cli.main", "pipeline", "run"]
        with progress_for(sys.stderr).step("events to Parquet, roll-ups back to Postgres"):
            finished = subprocess.run(
                [*command, "--lake", str(self._lake), f"--rows={ROWS}"],
                # Not an argument: those are for everybody on this machine to read.
                env=os.environ | {"QUEUE_OPERATOR_DATABASE__DSN": self._dsn},
                capture_output=True,
                text=True,
                cwd=ROOT,
                timeout=PIPELINE_LIMIT_S,
                check=False,
            )
        if finished.returncode:
            raise DemoFailed(f"the pipeline failed:\n{finished.stderr[-4000:]}")
        say(finished.stdout.strip())
        self._check()

    def _check(self) -> None:
        """The rollup in Postgres must count just what the final rows of the demo say."""
        rolled = self._store.query(
            "SELECT coalesce(sum(transitions), 0)::bigint AS n FROM rollup_hour"
            " WHERE type = 'noop' AND state = %s",
            JobState.COMPLETED.value,
        )[0]["n"]
        stored = self._store.query(
            "SELECT count(*) AS n FROM final JOIN job USING (job_no)"
            " JOIN lane ON lane.id = job.lane_id JOIN job_type t ON t.id = lane.type_id"
            " WHERE t.name = 'noop' AND final.state = %s",
            JobState.COMPLETED.value,
        )[0]["n"]
        check("the rollup in Postgres counts every completed job", rolled == stored, stored)
