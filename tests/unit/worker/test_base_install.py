"""The worker without what only the server needs."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
BLOCKED = """
import sys

allowed = set(sys.argv[1].split(","))

class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        # Python's own, and not in the list of its modules.
        if top not in allowed and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"the base install has no {name}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def needed(names: list[str]) -> set[str]:
    """These distributions and all that they need, without extras."""
    found: set[str] = set()
    while names:
        name = names.pop().lower().replace("_", "-")
        if name not in found:
            found.add(name)
            wanted = [Requirement(text) for text in requires(name) or ()]
            names += [one.name for one in wanted if not one.marker or one.marker.evaluate()]
    return found


def importable(extras: list[str]) -> str:
    """The modules that an install with these extras brings, and those of Python."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    texts = [*project["dependencies"]]
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    distributions = needed([Requirement(text).name for text in texts])
    modules = {
        module
        for module, names in packages_distributions().items()
        if any(name.lower().replace("_", "-") in distributions for name in names)
    }
    return ",".join({"queue_operator", "handlers", *modules, *sys.stdlib_module_names})


def run(folder: Path, program: str, extras: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + program, importable(extras)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


IMPORTS_ALL = """
import importlib, pathlib, queue_operator.worker
folder = pathlib.Path(queue_operator.worker.__file__).parent
for path in sorted(folder.glob("*.py")):
    importlib.import_module(f"queue_operator.worker.{path.stem}")
from queue_operator.worker import Worker
from queue_operator.worker.testing import run_handler
worker = Worker()
worker.register("t", lambda ctx, payload: payload)
assert run_handler(worker, "t", [1]) == [1]
"""
RUNS_HARNESS = """
from queue_operator.harness import WorkerHarness
from queue_operator.worker import Worker
worker = Worker()
worker.register("t", lambda ctx, payload: payload)
with WorkerHarness(worker) as harness:
    job_id = harness.submit("t", [1])
    harness.run_until_idle()
    assert harness.result(job_id) == [1]
"""
PLUGIN_IS_LIGHT = """
import queue_operator.harness.plugin
assert "grpc" not in sys.modules and "pydantic" not in sys.modules
"""


ASKED_FOR_METRICS = """
import logging
from queue_operator.worker.figures import figures_of
from queue_operator.worker.settings import WorkerSettings
logging.basicConfig(format="%(message)s")
assert figures_of(WorkerSettings(), lambda: None) is None
assert figures_of(WorkerSettings(metrics_port=9091), lambda: None) is None
assert "prometheus_client" not in sys.modules
"""
HAS_METRICS = """
import urllib.request
from queue_operator.worker.figures import Standing, figures_of
from queue_operator.worker.settings import WorkerSettings
stands = Standing(connected=True, busy=1, free=2, handlers=3, unsent=4, stuck=5)
figures = figures_of(WorkerSettings(), lambda: stands)
stop = figures.serve(0)
stop()
from prometheus_client import generate_latest
assert b"queueworker_outcomes_unsent 4.0" in generate_latest(figures.registry)
"""


@pytest.mark.parametrize(
    ("program", "extras"),
    [
        (IMPORTS_ALL, []),
        (HAS_METRICS, ["metrics"]),
        (RUNS_HARNESS, ["harness"]),
        (PLUGIN_IS_LIGHT, ["harness"]),
    ],
)
def test_it_imports_and_runs(tmp_path: Path, program: str, extras: list[str]) -> None:
    result = run(tmp_path, program, extras)
    assert result.returncode == 0, result.stderr


def test_without_the_extra_there_are_no_metrics_and_who_asks_is_told(tmp_path: Path) -> None:
    result = run(tmp_path, ASKED_FOR_METRICS, [])
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert line == (
        "no metrics on port 9091: they need prometheus-client, which is not installed: "
        "pip install 'queue-operator[metrics]', or set QUEUE_OPERATOR_METRICS_PORT to 0"
    )


@pytest.mark.parametrize("module", ["pydantic_settings", "kopf", "psycopg", "fastapi", "pytest"])
def test_the_rest_is_really_blocked(tmp_path: Path, module: str) -> None:
    result = run(tmp_path, f"import {module}", [])
    assert f"the base install has no {module}" in result.stderr
