"""Waiting for a job, and watching the queue."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console
from tests.unit.cli.typed import typed
from tests.unit.client.scripted import Answer, serving

from queue_operator.cli.connection import Remote
from queue_operator.cli.stats import _live, _repeat, _View
from queue_operator.client import QueueClient, RetryPolicy

NO_LATENCY = {"p50": None, "p90": None, "p99": None, "max": None}
STATS = {
    "since": "2030-01-01T11:55:00Z",
    "until": "2030-01-01T12:00:00Z",
    "pending": 1,
    "scheduled": 2000,
    "running": 3,
    "delayed": 4,
    "completed": 600,
    "failed": 6,
    "dead_letter": 0,
    "submission_rate": 2.5,
    "completion_rate": 2.0,
    "failure_rate": 0.02,
    "queue_latency": {"p50": "PT0.005S", "p90": "PT1S", "p99": "PT2M5S", "max": "PT3H"},
    "execution_time": NO_LATENCY,
    "by_type": {
        "idle": {"pending": 0, "running": 0, "completed": 1, "failed": 0},
        "busy": {"pending": 2000, "running": 3, "completed": 600, "failed": 4, "dead_letter": 2},
    },
    "total": 9,
    "total_retries": 0,
    "counts": {},
}
PAUSED = {"pauses": [{"namespace": "n", "type": "busy", "reason": "", "by": "me", "since": None}]}
SENTENCE = "Busy: all 8 slots of 2 workers are taken, and 2,000 jobs wait."
VERDICT = {"namespace": "n", "at": "2030-01-01T12:00:00Z", "level": "BUSY", "sentence": SENTENCE}
ANSWERS = Answer(200, STATS), Answer(200, VERDICT), Answer(200, PAUSED)
DOWN = Answer(503, {"code": "INTERNAL_ERROR", "message": "the store is away"})


def job(state: str, **others: Any) -> Answer:
    fields = {"job_id": "a", "namespace": "n", "type": "t", "attempt": 1, "priority": "NORMAL"}
    return Answer(200, {**fields, "state": state, **others})


def test_the_picture_of_the_queue() -> None:
    with serving(*ANSWERS) as script:
        done = typed("top", "--namespace", "n", server=script)
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["in", "queue", "5ms", "1s", "2m5s", "3h"] in rows
    assert ["execution", "-", "-", "-", "-"] in rows
    assert ["paused:", "busy"] in rows
    assert done.stdout.splitlines()[2] == SENTENCE
    # The busiest first; of the last five minutes two jobs a second.
    assert rows[-2:] == [
        ["busy", "2,000", "3", "600", "4", "2", "0", "2", "0.02"],
        ["idle", "0", "0", "1", "0", "0", "0", "0.00333", "0"],
    ]
    assert "2,000 ready, 4 delayed, 1 for other jobs" in done.stdout
    assert "time_range=PT5M" in script.asked[0].path
    assert "breakdown_by=TYPE" in script.asked[0].path


def test_as_json_each_look_is_a_line() -> None:
    with serving(Answer(200, STATS), Answer(200, VERDICT)) as script:
        done = typed("top", "-o", "json", "--count", "1", server=script)
    told = json.loads(done.stdout)
    assert told["by_type"]["busy"]["completed"] == 600
    assert told["verdict"]["sentence"] == SENTENCE


def test_looks_are_so_far_apart_and_end() -> None:
    looks, pauses = list[int](), list[float]()
    _repeat(3, 2.0, lambda: looks.append(1), pauses.append)
    assert (len(looks), pauses) == (3, [2.0, 2.0])


def test_ctrl_c_is_the_usual_end() -> None:
    def press(seconds: float) -> None:
        raise KeyboardInterrupt

    _repeat(None, 2.0, lambda: None, press)


def test_on_a_terminal_the_picture_is_drawn_anew_and_an_outage_is_part_of_it() -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=100, markup=False)
    with serving(*ANSWERS, DOWN) as script:
        remote = Remote(script.url, None, None, "table")
        with QueueClient(script.url, retry=RetryPolicy(attempts=1)) as queue:
            view = _View(remote, queue, timedelta(minutes=5))
            _live(view, 1, 1.0, console)
            first = drawn.getvalue()
            _live(view, 1, 1.0, console)
            second = drawn.getvalue().removeprefix(first)
    assert "busy" in first
    assert "away" not in first
    # The last numbers stay in view.
    assert "the store is away" in second
    assert "busy" in second


def test_an_outage_at_the_first_look_is_an_error() -> None:
    with serving(Answer(403, {"code": "FORBIDDEN", "message": "not you"})) as script:
        done = typed("top", server=script)
    assert done.exit_code == 1
    assert "error: not you" in done.stderr


@pytest.mark.parametrize(
    ("state", "exit_code"), [("COMPLETED", 0), ("FAILED", 1), ("DEAD_LETTER", 1), ("CANCELLED", 1)]
)
def test_waiting_ends_with_how_the_job_ended(state: str, exit_code: int) -> None:
    with serving(job("RUNNING"), job(state)) as script:
        done = typed("get", "a", "--wait", server=script)
    assert done.exit_code == exit_code
    assert f"\nstate      {state}\n" in done.stdout


def test_changes_are_printed_once() -> None:
    progress = {"percent": 50, "message": "half\x1b[2J", "updated_at": "2030-01-01T00:00:00Z"}
    running = job("RUNNING", progress=progress)
    with serving(job("RUNNING"), running, running, job("COMPLETED")) as script:
        done = typed("get", "a", "--watch", server=script)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:3] == [
        "RUNNING attempt 1",
        "RUNNING attempt 1: 50 % half\\x1b[2J",
        "COMPLETED attempt 1",
    ]


def test_changes_as_lines() -> None:
    with serving(job("RUNNING"), job("RUNNING"), job("FAILED")) as script:
        done = typed("get", "a", "--watch", "-o", "json", server=script)
    assert done.exit_code == 1
    states = [json.loads(line)["state"] for line in done.stdout.splitlines()]
    assert states == ["RUNNING", "FAILED"]


def test_a_wait_ends_after_the_time_that_was_given() -> None:
    with serving(job("RUNNING")) as script:
        done = typed("get", "a", "--wait", "--timeout", "0s", server=script)
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr == "error: job 'a' has not ended within 0 s: RUNNING\n"


def test_a_submission_is_waited_for() -> None:
    stored = Answer(201, {"job_id": "a", "status": "ACCEPTED", "state": "SCHEDULED"})
    with serving(stored, job("COMPLETED")) as script:
        done = typed("submit", "t", "1", "--wait", server=script)
    assert done.exit_code == 0
    assert "\nstate      COMPLETED\n" in done.stdout
