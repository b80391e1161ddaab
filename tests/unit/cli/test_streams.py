"""Hearing of jobs: `wait` and `watch`."""

import errno
import json
from typing import Any

import pytest
from tests.unit.cli.typed import typed
from tests.unit.client.scripted import Answer, Script, serving
from tests.unit.client.test_flows import job
from tests.unit.client.test_streams import COMPLETED, END, EXPIRED, RUNNING, event, stream

FAILED = Answer(200, job("a", "DEAD_LETTER"))


@pytest.mark.parametrize(("answer", "code"), [(COMPLETED, 0), (FAILED, 1)])
def test_wait_ends_as_the_job_does(answer: Answer, code: int) -> None:
    parts = [stream(event("p1"), event("p2", "COMPLETED"), END)]
    with serving(RUNNING, answer, streams=parts) as script:
        done = typed("wait", "a", "a", server=script)
    assert (done.exit_code, done.stdout) == (code, f"a {answer.body['state']}\n")
    assert len(script.listened) == 1


def test_wait_prints_each_job_on_a_line() -> None:
    with serving(COMPLETED) as script:
        done = typed("wait", "a", "b", "-o", "json", server=script)
    assert [json.loads(line)["state"] for line in done.stdout.splitlines()] == ["COMPLETED"] * 2
    assert len(script.asked) == 2


def test_wait_gives_up_after_the_time_that_was_given() -> None:
    with serving(RUNNING) as script:
        done = typed("wait", "a", "--timeout", "50ms", server=script)
    assert done.exit_code == 3
    assert "'a' has not ended within 0.05 s: RUNNING" in done.stderr


def test_wait_tells_what_is_wrong_before_what_is_not_over() -> None:
    missing = Answer(404, {"code": "NOT_FOUND", "message": "there is no job 'b'"})
    with serving(missing) as script:
        done = typed("wait", "a", "b", "--timeout", "1m", server=script)
    assert done.exit_code == 1
    assert "there is no job 'b'" in done.stderr


def test_wait_ends_when_nobody_reads_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*given: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("queue_operator.cli.rendering.print_line", closed)
    # One has ended, and the other never does.
    with serving(COMPLETED, RUNNING, streams=[stream(event("p1"))]) as script:
        done = typed("wait", "a", "b", "-o", "json", server=script)
    assert done.exit_code == 1
    assert "Traceback" not in done.stderr


def watched(script: Script, *arguments: str) -> Any:
    return typed("watch", *arguments, server=script)


def test_watch_prints_a_line_for_each_event() -> None:
    parts = [stream(event("p1"), event("p2", "COMPLETED", event="COMPLETE"), END)]
    with serving(RUNNING, streams=parts) as script:
        done = watched(script, "a")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "2030-01-01 00:00:00.000000 a t RUNNING attempt 1 CLAIM",
        "2030-01-01 00:00:00.000000 a t COMPLETED attempt 1 COMPLETE",
    ]


def test_watch_prints_documents_that_tell_where_to_go_on() -> None:
    parts = [stream(event("p1"), END)]
    with serving(RUNNING, streams=parts) as script:
        filters = ("--type", "t", "--state", "running", "--tag", "k=v", "--after", "p0")
        done = watched(script, *filters, "-o", "json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["job_id"], told["position"]) == (0, "a", "p1")
    [asked] = script.listened
    assert asked.path == "/v1/events?type=t&status=RUNNING&tag=k%3Dv"
    assert asked.headers["last-event-id"] == "p0"


def test_watch_ends_as_the_job_does() -> None:
    with serving(RUNNING, streams=[stream(event("p1", "DEAD_LETTER"), END)]) as script:
        assert watched(script, "a").exit_code == 1
    with serving(RUNNING, streams=[stream(event("p1"))]) as script:
        done = watched(script, "a", "--timeout", "50ms")
    assert (done.exit_code, done.stderr.strip()) == (
        3,
        "error: job 'a' has not ended within 0.05 s",
    )


@pytest.mark.parametrize(("answer", "code"), [(COMPLETED, 0), (FAILED, 1)])
def test_watch_of_what_ended_before_its_position_ends_as_the_job_did(
    answer: Answer, code: int
) -> None:
    with serving(answer, streams=[stream(END)]) as script:
        done = watched(script, "a", "--after", "p2")
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", "")


def test_watch_of_a_job_that_is_deleted_says_so() -> None:
    missing = Answer(404, {"code": "NOT_FOUND", "message": "there is no job 'a'"})
    with serving(missing, streams=[stream(event("p1"), END)]) as script:
        done = watched(script, "a")
    assert done.exit_code == 1
    assert "there is no job 'a'" in done.stderr


@pytest.mark.parametrize(("command", "code"), [(("a",), 130), (("--type", "t"), 0)])
def test_ctrl_c_does_not_say_that_the_job_completed(
    command: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("queue_operator.cli.watch._line", press)
    with serving(RUNNING, streams=[stream(event("p1"))]) as script:
        done = watched(script, *command)
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", "")


def test_watch_says_that_it_begins_anew() -> None:
    parts = [EXPIRED, stream(event("p1", "COMPLETED"), END)]
    with serving(RUNNING, streams=parts) as script:
        done = watched(script, "a", "--after", "old")
    assert done.exit_code == 0
    assert done.stderr == "warning: begin anew; what comes next is told from now on\n"
