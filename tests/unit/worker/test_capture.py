"""What a handler's libraries log is in the log of its job."""

import json
import logging
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.worker import saying
from tests.unit.worker.test_main import finish, start

from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import Worker, WorkerSettings
from queue_operator.worker.capture import Capture


@pytest.fixture(autouse=True)
def every_level(caplog: pytest.LogCaptureFixture) -> None:
    """As loggers of a program may be set, so that the worker's own setting decides."""
    caplog.set_level("DEBUG")


def lines_of(connection: Any, say: Any, type_: str, *job_ids: str) -> list[wire.LogLine]:
    """What was shipped by jobs of a type until all of them are settled."""
    connection.send(say.assigned(*(say.assignment(job, f"t-{job}", type_) for job in job_ids)))
    connection.settle(len(job_ids))
    return [
        line
        for message in connection.seen
        if message.WhichOneof("message") == "logs"
        for line in message.logs.lines
    ]


@pytest.mark.parametrize(
    ("handler", "runs_in"),
    [
        (saying.says, "thread"),
        (saying.says_on_the_loop, "loop"),
        (saying.says_in_a_thread, "loop"),
        (saying.says, "process"),
    ],
)
def test_lines_of_libraries_are_in_the_log_of_the_job_that_runs(
    settings: WorkerSettings,
    server: Any,
    run: Any,
    say: Any,
    handler: Callable[..., Any],
    runs_in: Any,
) -> None:
    worker = Worker(settings)
    worker.register("says", handler, runs_in=runs_in)
    run(worker)
    careful, failed, told = lines_of(server.accept(), say, "says", "a")
    assert {(line.job_id, line.token) for line in (careful, failed, told)} == {("a", "t-a")}
    assert (careful.level, careful.message) == ("WARNING", "careful 3")
    assert json.loads(careful.fields) == {"logger": "library", "user": "ada"}
    assert (failed.level, failed.message) == ("ERROR", "failed")
    trace = json.loads(failed.fields)["exception"]
    assert "saying.py" in trace
    assert trace.rstrip().endswith("ValueError: no such user")
    assert (told.level, told.message) == ("INFO", "from the context")


def test_an_exception_with_bytes_that_are_no_text_is_told_too(
    settings: WorkerSettings, server: Any, run: Any, say: Any
) -> None:
    worker = Worker(settings)
    worker.register("says", saying.says_what_is_no_text, runs_in="thread")
    run(worker)
    [failed] = lines_of(server.accept(), say, "says", "a")
    fields = json.loads(failed.fields)
    assert "ValueError: no such file: \N{REPLACEMENT CHARACTER}xxx" in fields["exception"]
    assert "saying.py" in fields["stack"]


def test_each_line_is_of_its_own_job(
    settings: WorkerSettings, server: Any, run: Any, say: Any
) -> None:
    worker = Worker(settings)
    worker.register("says", saying.says_its_job)
    run(worker)
    names = [f"job-{number}" for number in range(20)]
    lines = lines_of(server.accept(), say, "says", *names)
    assert sorted((line.job_id, line.message) for line in lines) == sorted(
        (name, f"of {name}") for name in names
    )


@pytest.mark.parametrize(
    ("level", "messages"),
    [
        ("debug", ["too low", "careful 3", "failed", "from the context"]),
        ("error", ["failed", "from the context"]),
        ("off", ["from the context"]),
    ],
)
def test_the_setting_says_from_which_level_on(
    settings: WorkerSettings, server: Any, run: Any, say: Any, level: str, messages: list[str]
) -> None:
    worker = Worker(replace(settings, capture_logs=level))
    worker.register("says", saying.says)
    run(worker)
    lines = lines_of(server.accept(), say, "says", "a")
    assert [line.message for line in lines] == messages


def test_what_is_logged_while_a_line_is_written_ends(
    settings: WorkerSettings, server: Any, run: Any, say: Any
) -> None:
    worker = Worker(settings)
    worker.register("asks", saying.asks_a_talker)
    run(worker)
    lines = lines_of(server.accept(), say, "asks", "a")
    assert [line.message for line in lines].count("talkative") == 1


def test_two_workers_of_a_program_keep_to_their_own_jobs(
    settings: WorkerSettings, server: Any, run: Any, say: Any
) -> None:
    for _ in range(2):
        worker = Worker(settings)
        worker.register("says", saying.says_its_job)
        run(worker)
    first, second = server.accept(), server.accept()
    assert [line.message for line in lines_of(first, say, "says", "a")] == ["of a"]
    assert [line.message for line in lines_of(second, say, "says", "b")] == ["of b"]


def test_a_worker_that_has_ended_leaves_logging_as_it_was(
    settings: WorkerSettings, server: Any, run: Any
) -> None:
    worker = Worker(settings)
    worker.register("says", saying.says)
    ended = run(worker)
    server.accept()
    assert any(isinstance(one, Capture) for one in logging.getLogger().handlers)
    worker.stop()
    assert ended.result() == 0
    assert not any(isinstance(one, Capture) for one in logging.getLogger().handlers)


def test_warnings_of_a_program_without_logging_still_go_to_standard_error(
    tmp_path: Path, server: Any, say: Any
) -> None:
    (tmp_path / "jobs.py").write_text(
        "import logging\n"
        "from queue_operator.worker import Worker\n"
        "worker = Worker()\n"
        "@worker.handler('says')\n"
        "def says(ctx):\n"
        "    logging.getLogger('mine').info('fine')\n"
        "    logging.getLogger('mine').warning('careful')\n"
    )
    process = start(
        tmp_path,
        "jobs:worker",
        "--log-format=none",
        QUEUE_OPERATOR_SERVER=f"127.0.0.1:{server.port}",
    )
    lines = lines_of(server.accept(), say, "says", "a")
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (0, "careful\n")
    # What the root logger's level holds back nobody hears.
    assert [line.message for line in lines] == ["careful"]
