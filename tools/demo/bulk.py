"""Two thousand jobs through the REST door."""

import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.install import SYSTEM
from demo.kube import Kube
from demo.narrator import check, console, say
from demo.store import Store
from queue_operator.client import QueueClient, Submission
from queue_operator.devcluster import ClusterInfo
from queue_operator.domain.states import JobState

JOBS = 2000
BATCH = 500


def run_bulk(cluster: ClusterInfo, kube: Kube) -> None:
    """Submits, watches them finish, and counts in Postgres."""
    token = submitter_token(kube)
    run = str(time.time_ns())
    with Kube(cluster, SYSTEM).forwarded("svc/queue-operator", 8080) as address:
        client = QueueClient(f"http://{address}", token)
        with client, _bar() as bar:
            started = time.monotonic()
            _submit(client, bar, run, kube.namespace)
            submitted_s = time.monotonic() - started
            _await_all(Store(cluster.postgres_dsn), bar, run)
            finished_s = time.monotonic() - started
    _check_each(Store(cluster.postgres_dsn), run)
    say(
        f"submitted in {submitted_s:.2f} s ({JOBS / submitted_s:,.0f}/s), "
        f"all done after {finished_s:.2f} s ({JOBS / finished_s:,.0f} jobs/s)"
    )


def submitter_token(kube: Kube) -> str:
    """A token for a service account that may create QueueJobs in the namespace."""
    if "submitter" not in kube.run("get", "serviceaccounts", "--output=name"):
        kube.run("create", "serviceaccount", "submitter")
        kube.run(
            "create",
            "rolebinding",
            "submitter",
            "--clusterrole=edit",
            f"--serviceaccount={kube.namespace}:submitter",
        )
    return kube.run("create", "token", "submitter", "--audience=queue-operator").strip()


def _submit(client: QueueClient, bar: Progress, run: str, namespace: str) -> None:
    task = bar.add_task("submitted", total=JOBS)
    for first in range(0, JOBS, BATCH):
        batch = [
            Submission(type="noop", payload={"n": n}, tags={"pool": "a"}, correlation_id=run)
            for n in range(first, first + BATCH)
        ]
        result = client.submit_batch(batch, namespace=namespace)
        bar.advance(task, result.accepted)


def _await_all(store: Store, bar: Progress, run: str) -> None:
    task = bar.add_task("completed", total=JOBS)
    give_up_at = time.monotonic() + 120
    while (done := _completed(store, run)) < JOBS and time.monotonic() < give_up_at:
        bar.update(task, completed=done)
        time.sleep(0.1)
    bar.update(task, completed=done)


def _completed(store: Store, run: str) -> int:
    rows = store.query(
        "SELECT count(*) AS n FROM final f JOIN job j USING (job_no)"
        " WHERE j.correlation_id = %s AND f.state = %s",
        run,
        JobState.COMPLETED.value,
    )
    return int(rows[0]["n"])


def _check_each(store: Store, run: str) -> None:
    (row,) = store.query(
        "SELECT count(*) AS stored, count(*) FILTER (WHERE f.state = %s) AS completed,"
        " count(*) FILTER (WHERE f.lease_version > 1) AS again"
        " FROM job j LEFT JOIN final f USING (job_no) WHERE j.correlation_id = %s",
        JobState.COMPLETED.value,
        run,
    )
    seen = f"{row['stored']} stored, {row['completed']} completed, {row['again']} claimed again"
    kept = row["stored"] == row["completed"] == JOBS
    check(f"{JOBS} jobs submitted and completed, each once", kept, seen)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
