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
    assert one == {"attempt": 1, "dropped": 0, "lines": [line]}
    assert [each["message"] for each in two["lines"]] == ["two", "\x00\N{SNOWMAN}"]
    assert (await api.get(f"/jobs/{job_id}/logs", attempt=2))["attempts"] == [two]
    assert (await api.get(f"/jobs/{job_id}/logs", attempt=7))["attempts"] == []


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
    assert await api.get(f"/jobs/{job_id}/logs") == {"job_id": job_id, "attempts": []}
    assert (await api.get("/jobs/missing/logs", status=404))["code"] == "NOT_FOUND"
    wrongs: dict[str, Any] = {"lines": "0", "attempt": "0"}
    assert set(await api.faults("GET", f"/jobs/{job_id}/logs", **wrongs)) == set(wrongs)
    for name, wrong in (("lines", "1001"), ("lines", "1_0"), ("attempt", "x")):
        given: dict[str, Any] = {name: wrong}
        assert list(await api.faults("GET", f"/jobs/{job_id}/logs", **given)) == [name]
