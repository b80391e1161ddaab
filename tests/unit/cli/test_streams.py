"""Hearing of jobs: `wait`, `watch` and `logs --follow`."""

import asyncio
import json
from typing import Any

import pytest
from tests.unit.cli.typed import typed
from tests.unit.client.scripted import Answer, Script, serving
from tests.unit.client.test_flows import job
from tests.unit.client.test_streams import COMPLETED, END, EXPIRED, RUNNING, event, stream

from queue_operator.cli import tailing
from queue_operator.cli.tailing import News, Tail
from queue_operator.client import AsyncQueueClient
from queue_operator.client.models import AttemptLog, JobLog, LogLine

FAILED = Answer(200, job("a", "DEAD_LETTER"))
AT = "2030-01-01T00:00:00Z"


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


def test_watch_says_that_it_begins_anew() -> None:
    parts = [EXPIRED, stream(event("p1", "COMPLETED"), END)]
    with serving(RUNNING, streams=parts) as script:
        done = watched(script, "a", "--after", "old")
    assert done.exit_code == 0
    assert done.stderr == "warning: begin anew; what comes next is told from now on\n"


def line(text: str) -> dict[str, Any]:
    return {"at": AT, "level": "INFO", "message": text, "fields": {}}


def log(*attempts: tuple[int, int, str]) -> Answer:
    """Of each attempt: its number, how many lines are left out, and those that are not."""
    told = [
        {"attempt": number, "dropped": dropped, "lines": [line(one) for one in lines]}
        for number, dropped, lines in attempts
    ]
    return Answer(200, {"job_id": "a", "attempts": told})


def test_only_lines_that_are_new_are_told() -> None:
    tail = Tail()

    def told(dropped: int, texts: str) -> list[tuple[bool, int, str]]:
        lines = tuple(LogLine.model_validate(line(text)) for text in texts)
        attempt = AttemptLog(attempt=1, dropped=dropped, lines=lines)
        news = tail.news(JobLog(job_id="a", attempts=(attempt,)))
        return [(n.is_first, n.missed, "".join(one.message for one in n.lines)) for n in news]

    assert told(2, "cd") == [(True, 2, "cd")]
    assert told(0, "abcd") == []
    assert told(1, "bcdef") == [(False, 0, "ef")]
    assert told(9, "jk") == [(False, 3, "jk")]


async def test_a_log_is_followed_until_the_job_has_ended() -> None:
    logs = [log((1, 0, "a")), log((1, 0, "ab")), log((1, 0, "ab"), (2, 0, "c"))]
    parts = [stream(event("p1")), stream(event("p2", "COMPLETED"), END)]
    told = list[str]()

    def show(news: News) -> None:
        told.extend(f"{news.attempt.attempt}{one.message}" for one in news.lines)

    with serving(*logs, streams=parts) as script:
        async with AsyncQueueClient(script.url, sleep=lambda _: asyncio.sleep(0)) as queue:
            options = {"attempt": None, "lines": 5, "namespace": None, "look_s": 0.01}
            await tailing.follow(queue, "a", show, **options)  # type: ignore[arg-type]
    assert told == ["1a", "1b", "2c"]
    assert script.asked[0].path.endswith("lines=5")
    assert script.asked[1].path.endswith("lines=1000")


def test_a_log_that_is_followed_is_printed_by_attempt() -> None:
    logs = [log((1, 3, "a")), log((1, 5, "b"), (2, 0, "c"))]
    ended = stream(event("p1", "COMPLETED"), END)
    with serving(*logs, streams=[ended]) as script:
        done = typed("logs", "a", "--follow", server=script)
    assert done.stdout.splitlines() == [
        "attempt 1, 3 earlier lines left out",
        "2030-01-01 00:00:00.000000 INFO a",
        "2030-01-01 00:00:00.000000 INFO b",
        "attempt 2",
        "2030-01-01 00:00:00.000000 INFO c",
    ]
    assert done.stderr == "1 line left out\n"
    with serving(*logs, streams=[ended]) as script:
        done = typed("logs", "a", "--follow", "-o", "json", server=script)
    told = [json.loads(one) for one in done.stdout.splitlines()]
    assert [(one["attempt"], one["message"]) for one in told] == [(1, "a"), (1, "b"), (2, "c")]
