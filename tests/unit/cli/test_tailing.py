"""`logs --follow`."""

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

from tests.unit.cli.typed import typed
from tests.unit.client.scripted import Answer, Script, serving
from tests.unit.client.test_flows import DOWN
from tests.unit.client.test_streams import AT, END, event, stream

from queue_operator.cli.tailing import Tail, Wanted
from queue_operator.client import AsyncQueueClient, RetryPolicy
from queue_operator.client.models import AttemptLog

RUNNING = stream(event("p1"))
ENDED = stream(event("p2", "COMPLETED"), END)
LATER = datetime.fromisoformat(AT) + timedelta(days=1)


def attempt(number: int, lines: str, *, dropped: int = 0, continued: bool = False) -> Any:
    told = [{"at": AT, "level": "INFO", "message": one, "fields": {}} for one in lines]
    return {"attempt": number, "dropped": dropped, "continued": continued, "lines": told}


def log(cursor: str, *attempts: Any) -> Answer:
    return Answer(200, {"job_id": "a", "attempts": list(attempts), "next_cursor": cursor})


async def tailed(script: Script, **wanted: Any) -> list[str]:
    """What is shown, each line behind the number of its attempt."""
    told = list[str]()

    def show(one: AttemptLog) -> None:
        told.extend(f"{one.attempt}{line.message}" for line in one.lines)

    how = RetryPolicy(attempts=1, rng=lambda: 0.0)
    async with AsyncQueueClient(script.url, retry=how, sleep=lambda _: asyncio.sleep(0)) as queue:
        tail = Tail(queue, Wanted(job_id="a", **wanted), show, look_s=0.01, now=lambda: LATER)
        await tail.follow()
    return told


async def test_each_look_asks_for_what_is_new_until_nothing_more_comes() -> None:
    logs = [
        log("1.1", attempt(1, "a")),
        log("1.2", attempt(1, "b", continued=True)),
        log("1.2-2.1", attempt(2, "c")),
        log("1.2-2.2", attempt(2, "d", continued=True)),
        log("1.2-2.2"),
    ]
    with serving(*logs, streams=[RUNNING, ENDED]) as script:
        told = await tailed(script, lines=5)
    assert told == ["1a", "1b", "2c", "2d"]
    first, *rest = [asked.path for asked in script.asked]
    assert first == "/v1/jobs/a/logs?lines=5"
    cursors = ["1.1", "1.2", "1.2-2.1", "1.2-2.2"]
    assert rest[:4] == [f"/v1/jobs/a/logs?lines=1000&cursor={one}" for one in cursors]
    assert len(set(rest)) == 4


async def test_of_a_job_that_ended_long_ago_the_log_is_not_read_again_and_again() -> None:
    with serving(log("1.1", attempt(1, "a")), log("1.1"), streams=[ENDED]) as script:
        assert await tailed(script, attempt=1) == ["1a"]
    assert 2 <= len(script.asked) <= 3
    assert all("attempt=1" in asked.path for asked in script.asked)


async def test_a_handler_that_logs_for_ever_is_left() -> None:
    more = log("1.1", attempt(1, "a", continued=True))
    with serving(more, streams=[RUNNING, ENDED]) as script:
        told = await tailed(script)
    assert 10 < len(told) == len(script.asked)


async def test_a_server_that_is_away_for_a_while_is_waited_for() -> None:
    logs = [log("1.1", attempt(1, "a")), DOWN, log("1.2", attempt(1, "b", continued=True))]
    with serving(*logs, log("1.2"), streams=[RUNNING, DOWN, ENDED]) as script:
        assert await tailed(script) == ["1a", "1b"]


def test_a_log_that_is_followed_is_printed_by_attempt() -> None:
    logs = [
        log("1.4", attempt(1, "a", dropped=3)),
        log("1.6-2.1", attempt(1, "b", dropped=1, continued=True), attempt(2, "c")),
        log("1.6-2.1"),
    ]
    with serving(*logs, streams=[ENDED]) as script:
        done = typed("logs", "a", "--follow", server=script)
    assert done.stdout.splitlines() == [
        "attempt 1, 3 earlier lines left out",
        "2030-01-01 00:00:00.000000 INFO a",
        "2030-01-01 00:00:00.000000 INFO b",
        "attempt 2",
        "2030-01-01 00:00:00.000000 INFO c",
    ]
    assert done.stderr == "1 line left out\n"
    with serving(*logs, streams=[ENDED]) as script:
        done = typed("logs", "a", "--follow", "-o", "json", server=script)
    told = [json.loads(one) for one in done.stdout.splitlines()]
    assert [(one["attempt"], one["message"]) for one in told] == [(1, "a"), (1, "b"), (2, "c")]


def test_a_server_that_does_not_tell_what_is_new_is_named() -> None:
    with serving(log("", attempt(1, "a")), streams=[ENDED]) as script:
        done = typed("logs", "a", "--follow", server=script)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "the server is older" in done.stderr
