"""A worker's own script, which the processes of its handlers import."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from queue_operator.wire.v1 import worker_pb2 as wire

SCRIPT = """
import threading
from queue_operator.worker import Worker

worker = Worker()

@worker.handler("compute", runs_in="process")
def compute(ctx):
    return f"computed in {__name__}"

"""
GUARDED = SCRIPT + 'if __name__ == "__main__":\n    worker.run()\n'


@contextmanager
def running(script: Path, server: Any, **environment: str) -> "Iterator[subprocess.Popen[str]]":
    worker = subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ
        | {
            "QUEUE_OPERATOR_HEALTH_PORT": "0",
            "QUEUE_OPERATOR_GRACE_S": "0",
            "QUEUE_OPERATOR_SERVER": f"127.0.0.1:{server.port}",
        }
        | environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield worker
        worker.terminate()
        _, said = worker.communicate(timeout=30)
        assert worker.returncode == 0, said
        assert "Traceback" not in said
    finally:
        worker.kill()
        worker.wait()


def outcome_of(script: Path, server: Any, say: Any, **environment: str) -> wire.Outcome:
    with running(script, server, **environment):
        connection = server.accept()
        connection.send(say.assigned(say.assignment("a", "t", "compute")))
        outcome: wire.Outcome = connection.settle(1)[0]
        # The child never was a worker of its own.
        assert server.connections.empty()
        return outcome


def test_a_script_with_a_guard_has_its_handlers_run(tmp_path: Path, server: Any, say: Any) -> None:
    script = tmp_path / "app.py"
    script.write_text(GUARDED)
    assert outcome_of(script, server, say).result == b'"computed in __mp_main__"'


def test_one_without_is_told_what_to_write(tmp_path: Path, server: Any, say: Any) -> None:
    script = tmp_path / "app.py"
    script.write_text(f"{SCRIPT}worker.run()\n")
    error = outcome_of(script, server, say).error
    assert (error.code, error.category) == ("NO_MAIN_GUARD", wire.ERROR_CATEGORY_SYSTEM)
    assert 'put worker.run() under `if __name__ == "__main__":`' in error.message
    assert error.stack_trace == ""


@pytest.mark.parametrize(
    ("instead", "start_s", "told"),
    [
        ("threading.Event().wait()", "0.5", "was not there within 0.5 s"),
        ("raise SystemExit(3)", "20", "ended before it could begin: exit status 3"),
    ],
)
def test_a_child_that_does_not_come_up_fails_its_job(
    tmp_path: Path, server: Any, say: Any, instead: str, start_s: str, told: str
) -> None:
    script = tmp_path / "app.py"
    script.write_text(f"{GUARDED}else:\n    {instead}\n")
    outcome = outcome_of(script, server, say, QUEUE_OPERATOR_PROCESS_START_S=start_s)
    assert (outcome.error.code, outcome.error.category) == (
        "PROCESS_NOT_STARTED",
        wire.ERROR_CATEGORY_SYSTEM,
    )
    assert told in outcome.error.message
