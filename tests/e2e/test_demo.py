"""`make demo`, whole: it checks every line it prints, and ends with 0 only if all was so."""

import subprocess
import sys
from pathlib import Path

from queue_operator.devcluster import ClusterInfo

ROOT = Path(__file__).resolve().parents[2]

PROMISES = (
    "hello is COMPLETED on the API server and in Postgres",
    "flaky failed twice and completed after its backoff",
    "broken is DEAD_LETTER on the API server and in Postgres",
    "long was cancelled while it ran",
    "where ran on a worker of pool b, and nowhere else",
    "SIGKILL for the container that held survivor",
    "survivor completed in another session, under a new token",
    "2000 jobs submitted and completed, each once",
    "the metrics endpoint tells of the jobs",
    "the rollup in Postgres counts every completed job",
)


def test_the_demo_keeps_every_promise(cluster: ClusterInfo) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "demo", "--name", cluster.name],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-2000:]
    kept = [line for line in finished.stdout.splitlines() if line.startswith("✓")]
    for promise in PROMISES:
        assert any(promise in line for line in kept), promise
