"""The command, as a process of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as wire

HANDLERS = """
import threading
from queue_operator.worker import Worker

worker = Worker()
empty = Worker()
other = object()

@worker.handler("where")
def where(ctx):
    ctx.log("info", "here", answer=42)
    return "here"

@worker.handler("fails")
def fails(ctx):
    raise ValueError("no")

@worker.handler("stuck")
def stuck(ctx):
    ctx.report_progress(1)
    threading.Event().wait()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(HANDLERS)
    (tmp_path / "broken.py").write_text("import no_such_library\n")
    return tmp_path


def start(folder: Path, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "queue_operator.worker.main", *arguments],
        cwd=folder,
        env=os.environ | {"QUEUE_OPERATOR_HEALTH_PORT": "0"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode, out + err


def test_sigterm_drains(folder: Path, server: Any, say: Any) -> None:
    process = start(
        folder,
        "jobs:worker",
        QUEUE_OPERATOR_SERVER=f"127.0.0.1:{server.port}",
        QUEUE_OPERATOR_WORKER_NAME="w1",
        QUEUE_OPERATOR_NAMESPACE="shop",
    )
    connection = server.accept()
    connection.send(say.assigned(say.assignment("a", "t1", "where")))
    assert connection.settle()[0].result == b'"here"'
    process.send_signal(signal.SIGTERM)
    connection.next("drain")
    status, output = finish(process)
    assert status == 0
    lines = [json.loads(line) for line in output.splitlines()]
    (line,) = [line for line in lines if line["message"] == "here"]
    assert (line["answer"], line["job_id"], line["level"]) == (42, "a", "info")
    # The namespace is the one that the server found.
    assert (line["process"], line["worker"], line["namespace"]) == ("worker", "w1", "default")


def test_a_second_signal_hands_back_what_never_ends(folder: Path, server: Any, say: Any) -> None:
    process = start(folder, "jobs:worker", QUEUE_OPERATOR_SERVER=f"127.0.0.1:{server.port}")
    connection = server.accept()
    connection.send(say.assigned(say.assignment("a", "t1", "stuck")))
    connection.next("progress")
    process.send_signal(signal.SIGTERM)
    connection.next("drain")
    process.send_signal(signal.SIGINT)
    assert connection.settle()[0].kind == wire.OUTCOME_KIND_HAND_BACK
    assert finish(process)[0] == 0


def test_a_worker_sent_away_exits_with_1(folder: Path, server: Any, say: Any) -> None:
    process = start(folder, "jobs:worker", QUEUE_OPERATOR_SERVER=f"127.0.0.1:{server.port}")
    server.accept().send(say.goodbye(reconnect=False))
    status, output = finish(process)
    assert status == 1
    assert "ended the session for good: a test" in output


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("jobs", "must be MODULE:WORKER"),
        ("jobs.py:worker", "'jobs.py:worker' names a file; give its module, as in jobs:worker"),
        ("./shop/jobs.py", "names a file; give its module, as in shop.jobs:worker"),
        ("absent:worker", "there is no module 'absent'"),
        ("jobs:wroker", "has no 'wroker'; its workers: jobs:worker, jobs:empty"),
        ("jobs:other", "is an object, not a queue_operator Worker"),
        ("jobs:empty", "has no handlers"),
        ("broken:worker", "No module named 'no_such_library'"),
    ],
)
def test_a_wrong_target_is_explained(folder: Path, target: str, fault: str) -> None:
    status, output = finish(start(folder, target))
    assert status == 2
    assert fault in output


def test_wrong_settings_are_explained(folder: Path) -> None:
    status, output = finish(start(folder, "jobs:worker", QUEUE_OPERATOR_CAPACITY="none"))
    assert status == 2
    assert "QUEUE_OPERATOR_CAPACITY" in output


def test_the_help_names_the_environment(folder: Path) -> None:
    status, output = finish(start(folder, "--help"))
    assert status == 0
    assert "QUEUE_OPERATOR_TOKEN_FILE" in output


@proves("external-api.WorkerProcess.expect.7")
@pytest.mark.parametrize("words", [("run", "jobs:worker"), ("jobs:worker",)])
def test_the_word_run_may_be_left_out(
    folder: Path, server: Any, say: Any, words: tuple[str, ...]
) -> None:
    process = start(folder, *words, QUEUE_OPERATOR_SERVER=f"127.0.0.1:{server.port}")
    assert [t.type for t in server.accept().hello.types] == ["where", "fails", "stuck"]
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--log-format", "text", "jobs:worker"),
        ("--log-level", "info", "run", "jobs:worker"),
        ("run", "jobs:worker", "--log-format=text"),
    ],
)
def test_options_stand_anywhere(folder: Path, server: Any, words: tuple[str, ...]) -> None:
    process = start(folder, *words, QUEUE_OPERATOR_SERVER=f"127.0.0.1:{server.port}")
    server.accept()
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 0


def test_a_failed_attempt_is_told_with_all_that_it_is_of(
    folder: Path, server: Any, say: Any
) -> None:
    process = start(
        folder,
        "jobs:worker",
        QUEUE_OPERATOR_SERVER=f"127.0.0.1:{server.port}",
        QUEUE_OPERATOR_WORKER_NAME="w1",
    )
    connection = server.accept()
    connection.send(say.assigned(say.assignment("a", "t1", "fails")))
    connection.settle()
    process.send_signal(signal.SIGTERM)
    _, output = finish(process)
    (line,) = [line for line in map(json.loads, output.splitlines()) if "failed" in line["message"]]
    assert [line[name] for name in ("worker", "namespace", "job_id", "job_type", "attempt")] == [
        "w1",
        "default",
        "a",
        "fails",
        1,
    ]


def test_the_environment_says_how_lines_are_written(folder: Path) -> None:
    (folder / "says.py").write_text("import logging\nlogging.getLogger('mine').debug('imported')\n")
    arguments = ("says:worker", "--log-level=debug")
    status, output = finish(start(folder, *arguments, QUEUE_OPERATOR_LOG_FORMAT="TEXT"))
    assert status == 2
    assert "DEBUG mine: imported" in output
    status, output = finish(start(folder, "says:worker", QUEUE_OPERATOR_LOG_LEVEL="debug"))
    first, *_ = output.splitlines()
    assert json.loads(first)["message"] == "imported"
    assert json.loads(first)["process"] == "worker"


def test_a_wrong_way_of_writing_lines_is_named(folder: Path) -> None:
    status, output = finish(start(folder, "jobs:worker", QUEUE_OPERATOR_LOG_FORMAT="xml"))
    assert status == 2
    assert "QUEUE_OPERATOR_LOG_FORMAT: 'xml' must be one of json, text, none" in output


@proves("external-api.WorkerProcess.expect.7")
@pytest.mark.parametrize(
    "words",
    [(), ("run",), ("run", "jobs:worker", "more"), ("run", "jobs:worker", "--reload", "no")],
)
def test_a_wrong_command_line_exits_with_2(folder: Path, words: tuple[str, ...]) -> None:
    status, output = finish(start(folder, *words))
    assert status == 2
    assert "queue-worker" in output


@proves("external-api.HandlerRegistration.expect.8", "external-api.WorkerProcess.expect.7")
def test_a_lifespan_that_fails_exits_with_1(folder: Path, server: Any) -> None:
    (folder / "late.py").write_text(
        "from queue_operator.worker import Worker\n"
        "def lifespan(worker):\n"
        "    raise RuntimeError('no database')\n"
        "    yield\n"
        "worker = Worker(lifespan=lifespan)\n"
        "worker.register('t', lambda ctx: None)\n"
    )
    process = start(folder, "late:worker", QUEUE_OPERATOR_SERVER=f"127.0.0.1:{server.port}")
    status, output = finish(process)
    assert status == 1
    assert "no database" in output
    assert server.connections.empty()


@pytest.mark.parametrize("place", ["thread", "process"])
def test_logging_can_be_left_to_the_module(folder: Path, server: Any, say: Any, place: str) -> None:
    (folder / "logs.py").write_text(
        "import logging\n"
        "from queue_operator.worker import Worker\n"
        "logging.basicConfig(filename='own.log', level='INFO', format='%(name)s %(message)s')\n"
        "worker = Worker()\n"
        f"@worker.handler('says', runs_in={place!r})\n"
        "def says(ctx):\n"
        "    logging.getLogger('mine').info('from the handler')\n"
        "    ctx.log('info', 'from the context')\n"
    )
    process = start(
        folder,
        "logs:worker",
        "--log-format=none",
        QUEUE_OPERATOR_SERVER=f"127.0.0.1:{server.port}",
    )
    connection = server.accept()
    connection.send(say.assigned(say.assignment("a", "t1", "says")))
    connection.settle()
    process.send_signal(signal.SIGTERM)
    status, output = finish(process)
    assert (status, output) == (0, "")
    lines = (folder / "own.log").read_text().splitlines()
    assert [line for line in lines if line.startswith(("mine", "queue_operator.job "))] == [
        "mine from the handler",
        "queue_operator.job from the context",
    ]
