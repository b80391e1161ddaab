"""`--reload`, with real processes and files."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queue_operator.testing.clauses import proves
from queue_operator.worker import reload

PATIENCE_S = 30.0
WORKER = """
from queue_operator.worker import Worker
from answers import ANSWER

worker = Worker()

@worker.handler("ask")
def ask(ctx):
    return ANSWER

@worker.handler("long")
def long(ctx):
    ctx.report_progress(1)
    ctx.cancelled.wait()
"""


class Reloading:
    """`queue-worker run --reload`, read line by line."""

    def __init__(self, folder: Path, port: int, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "queue_operator.worker.main", *arguments],
            cwd=folder,
            env=os.environ
            | {
                "QUEUE_OPERATOR_HEALTH_PORT": "0",
                "QUEUE_OPERATOR_SERVER": f"127.0.0.1:{port}",
                "QUEUE_OPERATOR_GRACE_S": "0",
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        self._killer = threading.Timer(PATIENCE_S, self.process.kill)
        self._killer.start()

    def says(self, part: str) -> str:
        """Waits for a line with that."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if part in line:
                return line
        raise AssertionError(f"it ended before it said {part!r}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stderr is not None
        self.process.stderr.read()
        return self.process.wait()

    def close(self) -> None:
        self._killer.cancel()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(WORKER)
    (tmp_path / "answers.py").write_text("ANSWER = 1\n")
    return tmp_path


@pytest.fixture
def reloading(folder: Path, server: Any) -> Iterator[Reloading]:
    running = Reloading(folder, server.port, "run", "--reload", "jobs:worker")
    yield running
    running.close()


def asked(connection: Any, say: Any) -> object:
    connection.send(say.assigned(say.assignment("a", "t", "ask")))
    return json.loads(connection.settle(1)[0].result)


@proves("external-api.WorkerProcess.expect.8")
def test_a_change_hands_jobs_back_and_runs_the_new_code(
    folder: Path, server: Any, say: Any, reloading: Reloading
) -> None:
    connection = server.accept()
    assert asked(connection, say) == 1
    connection.send(say.assigned(say.assignment("b", "t", "long")))
    connection.next("progress")
    # As long as before and within the same second: only the contents tell.
    (folder / "answers.py").write_text("ANSWER = 2\n")
    assert "answers.py" in reloading.says("changed: ")
    assert connection.settle(1)[0].job_id == "b"
    connection = server.accept()
    assert asked(connection, say) == 2
    assert reloading.stop() == 0


@proves("external-api.WorkerProcess.expect.8")
def test_code_that_is_broken_waits_for_the_next_change(
    folder: Path, server: Any, say: Any, reloading: Reloading
) -> None:
    server.accept()
    (folder / "answers.py").write_text("ANSWER = = 2\n")
    reloading.says("SyntaxError")
    reloading.says("ended with status 2: waiting for a change")
    (folder / "answers.py").write_text("ANSWER = 33\n")
    assert asked(server.accept(), say) == 33
    assert reloading.stop(signal.SIGINT) == 0


@proves("external-api.WorkerProcess.expect.7", "external-api.WorkerProcess.expect.8")
def test_the_status_of_the_worker_is_passed_on(folder: Path, server: Any) -> None:
    (folder / "answers.py").unlink()
    running = Reloading(folder, server.port, "run", "jobs:worker", "--reload", str(folder))
    try:
        running.says("ended with status 2: waiting for a change")
        assert running.stop() == 2
    finally:
        running.close()


def test_what_is_watched(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", "c.txt", ".git/d.py", "__pycache__/e.py", "venv/lib/f.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    assert set(reload.snapshot(tmp_path)) == {tmp_path / "a.py", tmp_path / "sub" / "b.py"}
