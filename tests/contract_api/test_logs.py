"""What handlers log, as a caller reads it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.contract_api.api import Api

from queue_operator.backends.protocol import JobLogs, LogLine, LogReport
from queue_operator.domain.job import Assignment
from queue_operator.domain.states import Event

pytestmark = pytest.mark.asyncio(loop_scope="session")

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def logged(api: Api, run: Assignment, *messages: str, fields: str = "{}") -> None:
    lines = [
        LogLine(number=n, at=NOON + timedelta(seconds=n), level="INFO", message=text, fields=fields)
        for n, text in enumerate(messages, start=1)
    ]
    assert isinstance(api.backend, JobLogs)
    report = LogReport(
        job_id=run.job_id, token=run.token, namespace=api.namespace, lines=tuple(lines)
    )
    await api.backend.append_logs([report])


async def test_lines_are_told_by_attempt(api: Api) -> None:
    job_id = await api.submitted(
        max_attempts=9, backoff={"strategy": "CONSTANT", "initial_delay": 0}
    )
    first = await api.start()
    await logged(api, first, "one", fields='{"to": ["a", 1]}')
    assert [one["attempt"] for one in (await api.get(f"/jobs/{job_id}/logs"))["attempts"]] == [1]
    await api.settle(first, Event.FAIL)
    await logged(api, await api.start(), "two", "\x00\N{SNOWMAN}")
    told = await api.get(f"/jobs/{job_id}/logs")
    assert told["job_id"] == job_id
    one, two = told["attempts"]
    at = "2026-01-01T12:00:01Z"
    line = {"at": at, "level": "INFO", "message": "one", "fields": {"to": ["a", 1]}}
    assert one == {"attempt": 1, "continued": False, "dropped": 0, "lines": [line]}
    assert [each["message"] for each in two["lines"]] == ["two", "\x00\N{SNOWMAN}"]
    assert (await api.get(f"/jobs/{job_id}/logs", attempt=2))["attempts"] == [two]
    assert (await api.get(f"/jobs/{job_id}/logs", attempt=7))["attempts"] == []


async def test_what_came_since_is_told_after_a_cursor(api: Api) -> None:
    job_id = await api.submitted(
        max_attempts=9, backoff={"strategy": "CONSTANT", "initial_delay": 0}
    )
    empty = await api.get(f"/jobs/{job_id}/logs")
    assert empty["next_cursor"] == ""
    first = await api.start()
    await logged(api, first, "one", "two")
    told = await api.get(f"/jobs/{job_id}/logs", cursor=empty["next_cursor"])
    assert [one["continued"] for one in told["attempts"]] == [False]
    same = await api.get(f"/jobs/{job_id}/logs", cursor=told["next_cursor"])
    assert same == {**told, "attempts": []}
    await logged(api, first, "one", "two", "three", "four")
    await api.settle(first, Event.FAIL)
    await logged(api, await api.start(), "again")
    more = await api.get(f"/jobs/{job_id}/logs", cursor=told["next_cursor"], lines=1)
    assert [(one["attempt"], one["continued"], one["dropped"]) for one in more["attempts"]] == [
        (1, True, 1),
        (2, False, 0),
    ]
    messages = [[line["message"] for line in one["lines"]] for one in more["attempts"]]
    assert messages == [["four"], ["again"]]


@pytest.mark.parametrize(
    "cursor", ["1", "1.", "1.1-", "x.1", "2147483648.1", "1.9223372036854775808", "1.1-1.2"]
)
async def test_a_cursor_that_is_none_is_refused(api: Api, cursor: str) -> None:
    job_id = await api.submitted()
    assert list(await api.faults("GET", f"/jobs/{job_id}/logs", cursor=cursor)) == ["cursor"]


async def test_the_newest_lines_are_told(api: Api) -> None:
    job_id = await api.submitted()
    await logged(api, await api.start(), *(f"line {n}" for n in range(1, 211)))
    [usual] = (await api.get(f"/jobs/{job_id}/logs"))["attempts"]
    assert (len(usual["lines"]), usual["dropped"]) == (200, 10)
    [few] = (await api.get(f"/jobs/{job_id}/logs", lines=2))["attempts"]
    assert [each["message"] for each in few["lines"]] == ["line 209", "line 210"]
    assert few["dropped"] == 208


async def test_what_is_no_object_is_told_all_the_same(api: Api) -> None:
    job_id = await api.submitted()
    await logged(api, await api.start(), "odd", fields="[1")
    [attempt] = (await api.get(f"/jobs/{job_id}/logs"))["attempts"]
    assert attempt["lines"][0]["fields"] == {"fields": "[1"}


async def test_a_job_without_lines_and_one_that_is_missing(api: Api) -> None:
    job_id = await api.submitted()
    assert await api.get(f"/jobs/{job_id}/logs") == {
        "job_id": job_id,
        "attempts": [],
        "next_cursor": "",
    }
    assert (await api.get("/jobs/missing/logs", status=404))["code"] == "NOT_FOUND"
    wrongs: dict[str, Any] = {"lines": "0", "attempt": "0"}
    assert set(await api.faults("GET", f"/jobs/{job_id}/logs", **wrongs)) == set(wrongs)
    for name, wrong in (("lines", "1001"), ("lines", "1_0"), ("attempt", "x")):
        given: dict[str, Any] = {name: wrong}
        assert list(await api.faults("GET", f"/jobs/{job_id}/logs", **given)) == [name]
