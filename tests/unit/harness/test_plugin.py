"""The fixture, as a project that installed the extra has it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from queue_operator.testing.clauses import proves

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
TESTS = """
import pytest
from queue_operator.worker import Worker

worker = Worker()

@worker.handler("hello")
async def hello(ctx, payload):
    return f"Hello, {payload}!"

def test_greets(worker_harness):
    harness = worker_harness(worker, check_finished=True)
    job_id = harness.submit("hello", "Ada")
    harness.run_until_idle()
    assert harness.result(job_id) == "Hello, Ada!"

def test_forgets(worker_harness):
    worker_harness(worker).submit("hello", "Ada")

def test_leaves(worker_harness):
    worker_harness(worker, check_finished=True).submit("hello", "Ada", job_id="left")
"""


@pytest.fixture
def outcome(tmp_path: Path) -> str:
    """What pytest says of a project with no configuration."""
    plugins = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]["pytest11"]
    (tmp_path / "test_handlers.py").write_text(TESTS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", plugins["queue_operator"], "-q"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout


@proves("external-api.WorkerProcess.expect.11")
def test_it_needs_no_configuration_and_tells_of_unfinished_jobs(outcome: str) -> None:
    assert "3 passed, 1 error" in outcome
    assert "ERROR test_handlers.py::test_leaves" in outcome
    assert "jobs that have not ended: left (hello) is INITIAL_PENDING" in outcome
