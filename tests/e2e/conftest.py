"""The demo, run once, with a Prometheus that watches it from its first moment."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.e2e.observer import Observer
from tests.e2e.sources import ApiRequests, Sources

from queue_operator.devcluster import ClusterInfo
from queue_operator.devcluster.state import existing_folder

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of `tools`, to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=TOOLS,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture(scope="session")
def observer(cluster: ClusterInfo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observer]:
    """A real Prometheus on this machine, which scrapes as the charts' monitors say."""
    observer = Observer(cluster, tmp_path_factory.mktemp("prometheus"))
    try:
        observer.await_ready()
        yield observer
    finally:
        observer.end()


@pytest.fixture(scope="session")
def asked_before(cluster: ClusterInfo) -> ApiRequests:
    """What the API server had been asked before the demo."""
    return Sources(cluster).api_requests()


@pytest.fixture(scope="session")
def no_history(cluster: ClusterInfo) -> None:
    """The counters of a new operator begin at 0, so the history of jobs must begin with them."""
    operator = ("--namespace=queue-system", "deployment/queue-operator")
    Sources(cluster).kubectl("delete", *operator, "--ignore-not-found", "--wait")
    with psycopg.connect(cluster.postgres_dsn) as connection:
        connection.execute("DROP SCHEMA IF EXISTS queue_operator CASCADE")
    # The lake goes with the history that it was made of.
    lake = existing_folder(cluster.name).path / "lake"
    if lake.exists():
        shutil.rmtree(lake)


@pytest.fixture(scope="session")
def demo(
    cluster: ClusterInfo, no_history: None, observer: Observer, asked_before: ApiRequests
) -> subprocess.CompletedProcess[str]:
    """`make demo`, whole."""
    assert observer.runs
    assert asked_before.series
    return run_python("-m", "demo", "--name", cluster.name)
