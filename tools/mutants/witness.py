"""A pytest plugin in the mutant's process: makes sure that the copy is tested, and writes down
what failed, so that a mistake in the mutant does not pass for one that was noticed.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import queue_operator

_failed: list[str] = []
_broken: list[str] = []
_passed: list[str] = []


def pytest_configure() -> None:
    copy = Path(os.environ["MUTANT_COPY"]).resolve()
    imported = Path(queue_operator.__file__ or "").resolve()
    if not imported.is_relative_to(copy):
        raise pytest.UsageError(f"{imported} is not of the copy {copy}")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _broken.append(str(report.longrepr)[-500:])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    outcome = yield
    report = outcome.get_result()
    if report.passed and report.when == "call":
        _passed.append(item.nodeid)
    if call.excinfo is not None and report.failed:
        kinds = {kind.__name__ for kind in call.excinfo.type.__mro__}
        noticed = report.when != "setup" and kinds & {
            "AssertionError",
            "Failed",
            "QueueError",
            "ValueError",
        }
        told = f"{item.nodeid}: {call.excinfo.exconly()[:300]}"
        (_failed if noticed else _broken).append(told)


def pytest_sessionfinish() -> None:
    told = {"passed": _passed, "failed": _failed, "broken": _broken}
    Path(os.environ["MUTANT_REPORT"]).write_text(json.dumps(told))
