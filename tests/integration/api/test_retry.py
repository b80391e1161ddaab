"""Trying again, and deleting."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.integration.api.door import Door, check_error

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

BROKEN = ErrorInfo("broken", ErrorCategory.PERMANENT, "E1")


@proves("external-api.RetryResult.expect.1", "external-api.RetryResult.rule.4")
@pytest.mark.parametrize("category", [ErrorCategory.PERMANENT, ErrorCategory.TEMPORARY])
async def test_a_failed_job_runs_again(door: Door, category: ErrorCategory) -> None:
    job_id = await door.failed(ErrorInfo("broken", category))
    result = await door.told("POST", f"/v1/jobs/{job_id}/retry")
    assert result.pop("scheduled_for") == (await door.status(job_id))["scheduled_for"]
    assert result == {"job_id": job_id, "status": "QUEUED", "new_state": "RETRYING"}
    await door.claimed(job_id)
    assert (await door.status(job_id))["attempt"] == 2


@proves("external-api.RetryRequest.rule.2", "external-api.RetryRequest.rule.3")
async def test_a_retry_counts_anew_under_another_priority(door: Door) -> None:
    job_id = await door.failed(BROKEN, max_attempts=1)
    body = {"reset_attempts": True, "priority": "CRITICAL"}
    await door.told("POST", f"/v1/jobs/{job_id}/retry", body)
    assert (await door.status(job_id))["priority"] == "CRITICAL"
    await door.claimed(job_id)
    assert (await door.status(job_id))["attempt"] == 1


@proves("external-api.RetryRequest.rule.4")
async def test_a_retry_can_wait(door: Door) -> None:
    job_id = await door.failed(BROKEN)
    result = await door.told("POST", f"/v1/jobs/{job_id}/retry", {"delay": "PT1H"})
    shown = await door.status(job_id)
    due = datetime.fromisoformat(result["scheduled_for"])
    assert due - datetime.fromisoformat(shown["updated_at"]) == timedelta(hours=1)
    why = await door.told("GET", f"/v1/jobs/{job_id}/why")
    assert (why["reason"], why["position"]) == ("BACKOFF", None)


async def test_a_job_that_waits_for_its_next_attempt_need_not(door: Door) -> None:
    job_id = await door.submitted(backoff={"strategy": "CONSTANT", "initial_delay": 3600})
    await door.claimed(job_id)
    await door.settled(job_id, Event.FAIL, ErrorInfo("broken"))
    assert (await door.told("POST", f"/v1/jobs/{job_id}/retry"))["status"] == "QUEUED"
    await door.claimed(job_id)


@proves("external-api.RetryResult.expect.2")
@pytest.mark.parametrize("fate", ["waiting", "running", "completed", "cancelled"])
async def test_what_cannot_be_retried_stays_as_it_is(door: Door, fate: str) -> None:
    job_id = await door.submitted()
    if fate in ("running", "completed"):
        await door.claimed(job_id)
    if fate == "completed":
        await door.settled(job_id, Event.COMPLETE)
    if fate == "cancelled":
        await door.told("POST", f"/v1/jobs/{job_id}/cancel")
    before = await door.stored(job_id)
    result = await door.told("POST", f"/v1/jobs/{job_id}/retry", {"reset_attempts": True})
    assert result["status"] == "NOT_RETRIABLE"
    assert result["new_state"] == (await door.status(job_id))["state"]
    assert result["new_state"] in result["message"]
    assert await door.stored(job_id) == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"delay": -1}, "delay"),
        ({"priority": "URGENT"}, "priority"),
        ({"reset_attempts": "yes"}, "reset_attempts"),
        ({"attempts": 3}, "attempts"),
    ],
)
async def test_a_malformed_retry_changes_nothing(
    door: Door, body: dict[str, Any], field: str
) -> None:
    job_id = await door.failed(BROKEN)
    answer = await door.call("POST", f"/v1/jobs/{job_id}/retry", body)
    error = check_error(answer, 400, "INVALID_REQUEST")
    assert [one["field"] for one in error["details"]] == [field]
    assert (await door.status(job_id))["state"] == "FAILED"


@proves("external-api.RetryRequest.rule.1")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/jobs/none/retry"),
        ("DELETE", "/v1/jobs/none"),
        ("GET", "/v1/jobs/none/why"),
        ("GET", "/v1/jobs/none/failure"),
    ],
)
async def test_a_missing_job_is_not_found(door: Door, method: str, path: str) -> None:
    check_error(await door.call(method, path), 404, "NOT_FOUND")


async def test_a_finished_job_can_be_deleted(door: Door) -> None:
    job_id = await door.failed(BROKEN, job_id="a/b?c")
    assert (await door.call("DELETE", "/v1/jobs/a%2Fb%3Fc")).status_code == 204
    check_error(await door.call("GET", "/v1/jobs/a%2Fb%3Fc"), 404, "NOT_FOUND")
    assert job_id == "a/b?c"


async def test_a_job_that_has_not_ended_cannot_be_deleted(door: Door) -> None:
    job_id = await door.submitted()
    check_error(await door.call("DELETE", f"/v1/jobs/{job_id}"), 409, "INVALID_REQUEST")
    assert (await door.status(job_id))["state"] == "SCHEDULED"


@pytest.mark.parametrize("job_id", ["a/why", "why", "a/failure", "batch", "cancel", "a//b", "%2F"])
async def test_an_id_that_looks_like_a_path_is_an_id(door: Door, job_id: str) -> None:
    await door.submitted(job_id=job_id)
    quoted = "".join(f"%{byte:02X}" for byte in job_id.encode())
    assert (await door.status(quoted))["job_id"] == job_id
    why = await door.told("GET", f"/v1/jobs/{quoted}/why")
    assert why["job_id"] == job_id
