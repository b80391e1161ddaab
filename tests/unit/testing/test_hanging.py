"""A run that hangs when its tests are over ends within minutes, here moments, and says where."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
CONFTEST: Final = "from tests.hanging import *\n"
DEAF: Final = """
import asyncio

async def deaf():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue

async def test_leaks():
    leaked = asyncio.create_task(deaf(), name="a pool that nobody closed")
    await asyncio.sleep(0)
    assert leaked.done(), "why it failed"

def test_next():
    pass
"""
STUBBORN: Final = """
import threading

def stubborn():
    threading.Event().wait()

def test_leaves_a_thread():
    threading.Thread(target=stubborn).start()
"""
SLOW: Final = """
import threading

def test_takes_long():
    threading.Event().wait(3)
"""


def run(folder: Path, test: str, **bounds: str) -> "subprocess.CompletedProcess[str]":
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}", **bounds}
    return subprocess.run(
        [*command, "--rootdir", folder, folder],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_loop_that_cannot_close_ends_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, DEAF, QUEUE_OPERATOR_TEST_ENDS_S="2")
    assert done.returncode == 3
    assert "why it failed" in done.stdout
    said = done.stderr
    assert "test_leaks is over, and has not been put away after 2 s. All threads:" in said
    assert "in pytest_runtest_teardown" in said
    assert "a pool that nobody closed, cancelled " in said
    assert 'test_it.py", line 7, in deaf' in said


def test_a_thread_that_does_not_end_ends_with_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, STUBBORN, QUEUE_OPERATOR_TEST_ENDS_S="2")
    assert done.returncode == 3
    assert "1 passed" in done.stdout
    assert "all tests are over, and the process has not ended after 2 s" in done.stderr
    assert "in stubborn" in done.stderr


def test_a_test_that_takes_long_says_where_it_stands_and_goes_on(tmp_path: Path) -> None:
    done = run(tmp_path, SLOW, QUEUE_OPERATOR_TEST_SHOWN_S="0.5")
    assert done.returncode == 0
    assert "1 passed" in done.stdout
    assert "test_takes_long still runs after 0.5 s. All threads:" in done.stderr
    assert "in test_takes_long" in done.stderr


@pytest.mark.parametrize("hook", ["call", "teardown"])
def test_all_runs_are_watched(request: pytest.FixtureRequest, hook: str) -> None:
    hooks = getattr(request.config.hook, f"pytest_runtest_{hook}").get_hookimpls()
    assert "tests.hanging" in {one.function.__module__ for one in hooks}
