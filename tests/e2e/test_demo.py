"""`make demo`, whole: it checks every line it prints, and ends with 0 only if all was so."""

import subprocess

from tests.e2e.conftest import run_python

PROMISES = (
    "hello is COMPLETED on the API server and in Postgres",
    "flaky failed twice and completed after its backoff",
    "broken is DEAD_LETTER on the API server and in Postgres",
    "long was cancelled while it ran",
    "where ran on a worker of pool b, and nowhere else",
    "SIGKILL for the container that held survivor",
    "the killed session lost the job",
    "survivor completed in another session, under a new token",
    "2000 jobs submitted and completed, each once",
    "the metrics endpoint tells of the jobs",
    "the rollup in Postgres counts every completed job",
)
BROKEN_PROMISE = """
from demo.narrator import DemoFailed, check, give_up
try:
    check("flaky [at last] is done", False, ["FAIL"])
except DemoFailed as failure:
    give_up(failure, "look at [it]")
"""


def test_the_demo_keeps_every_promise(demo: subprocess.CompletedProcess[str]) -> None:
    assert demo.returncode == 0, demo.stdout[-4000:] + demo.stderr[-2000:]
    kept = [line for line in demo.stdout.splitlines() if line.startswith("✓")]
    for promise in PROMISES:
        assert any(promise in line for line in kept), promise


def test_a_broken_promise_says_what_was_seen_and_what_to_do() -> None:
    finished = run_python("-c", BROKEN_PROMISE)
    assert finished.stdout.splitlines() == [
        "✘ not so: flaky [at last] is done",
        "  seen instead: ['FAIL']",
        "look at [it]",
    ]


def test_a_name_that_no_cluster_can_have_ends_it_with_a_message() -> None:
    finished = run_python("-m", "demo", "--name", "No/Cluster")
    assert finished.returncode == 1
    assert "'No/Cluster' is not a cluster name" in finished.stdout
    assert "Traceback" not in finished.stderr
