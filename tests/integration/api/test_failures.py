"""What failed, and why; what happened to a job."""

from datetime import datetime
from typing import Any

import pytest
from tests.integration.api.door import Door, check_error

from queue_operator.domain.job import Demand
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

BROKEN = ErrorInfo("no such user", ErrorCategory.PERMANENT, "E404", "trace", {"user": "ada"})


async def assigned(door: Door, job_id: str) -> str:
    """Claimed by a worker with a name and a host; gives the token."""
    demand = Demand(
        assignee_id="session", limit=1, namespace=door.namespace, worker_name="w1", host="h1"
    )
    [one] = await door.backend.claim([demand], lease_ttl_s=60.0)
    assert one.job_id == job_id
    return one.token


async def ended(door: Door, job_id: str, event: Event, error: ErrorInfo | None = None) -> None:
    token = await assigned(door, job_id)
    outcome = Outcome(job_id, event, door.namespace, token=token, result=b"", error=error)
    [answer] = await door.backend.settle([outcome])
    assert answer.error is None


NOW = {"strategy": "CONSTANT", "initial_delay": 0}


@proves(
    "external-api.FailureQuery.rule.2",
    "external-api.FailureDetails.rule.5",
    "external-api.FailureInfo.rule.9",
    "external-api.FailureInfo.rule.10",
)
async def test_the_newest_failure_is_told_and_every_attempt(door: Door) -> None:
    job_id = await door.submitted(backoff=NOW)
    await ended(door, job_id, Event.FAIL, ErrorInfo("slow", ErrorCategory.TIMEOUT))
    await ended(door, job_id, Event.EXHAUST, BROKEN)
    found = await door.told("GET", f"/v1/jobs/{job_id}/failure")
    failure = found.pop("failure")
    assert found == {
        "job_id": job_id,
        "type": "t",
        "state": "FAILED",
        "final_state": "FAILED",
        "total_attempts": 2,
    }
    assert datetime.fromisoformat(failure.pop("timestamp")).tzinfo is not None
    assert failure.pop("duration_ms") >= 0
    assert failure == {
        "attempt": 2,
        "category": "PERMANENT",
        "code": "E404",
        "message": "no such user",
        "stack_trace": "trace",
        "context": {"user": "ada"},
        "worker_id": "w1",
        "host": "h1",
    }
    told = await door.told("GET", f"/v1/jobs/{job_id}/failure", include_all_attempts="true")
    assert [(one["attempt"], one["result"]) for one in told["attempts"]] == [
        (1, "TIMEOUT"),
        (2, "FAILURE"),
    ]
    assert [one["failure"]["message"] for one in told["attempts"]] == ["slow", "no such user"]


@proves("external-api.FailureDetails.rule.3")
async def test_a_job_that_succeeded_at_last_shows_what_went_before(door: Door) -> None:
    job_id = await door.submitted(backoff=NOW)
    await ended(door, job_id, Event.FAIL, ErrorInfo("once"))
    await ended(door, job_id, Event.COMPLETE)
    found = await door.told("GET", f"/v1/jobs/{job_id}/failure", include_all_attempts="true")
    told = (found["state"], found["final_state"], found["failure"]["message"])
    assert told == ("COMPLETED", None, "once")
    assert [one["result"] for one in found["attempts"]] == ["FAILURE", "SUCCESS"]
    assert "failure" not in found["attempts"][1]


@proves("external-api.AttemptInfo.expect.4")
async def test_an_attempt_that_was_cancelled_and_one_that_runs(door: Door) -> None:
    job_id = await door.submitted(backoff=NOW)
    await ended(door, job_id, Event.FAIL, ErrorInfo("once"))
    token = await assigned(door, job_id)
    running = await door.told("GET", f"/v1/jobs/{job_id}/failure", include_all_attempts="true")
    assert (running["state"], running["final_state"]) == ("RUNNING", "RETRYING")
    assert running["attempts"][1]["result"] is None
    await door.told("POST", f"/v1/jobs/{job_id}/cancel")
    await door.backend.acknowledge_cancellation(job_id, True, namespace=door.namespace, token=token)
    told = await door.told("GET", f"/v1/jobs/{job_id}/failure", include_all_attempts="true")
    assert told["attempts"][1]["result"] == "CANCELLED"
    assert told["attempts"][1]["failure"]["message"]


@proves("external-api.FailureDetails.rule.3", "external-api.FailureDetails.rule.4")
async def test_attempts_that_a_retry_counts_anew_were_made_all_the_same(door: Door) -> None:
    job_id = await door.submitted(backoff=NOW)
    await ended(door, job_id, Event.FAIL, ErrorInfo("once"))
    # Nobody began these: a worker that shut down, and a stream that was closed.
    await ended(door, job_id, Event.HAND_BACK)
    await ended(door, job_id, Event.RELEASE)
    await ended(door, job_id, Event.EXHAUST, BROKEN)
    await door.told("POST", f"/v1/jobs/{job_id}/retry", {"reset_attempts": True})
    found = await door.told("GET", f"/v1/jobs/{job_id}/failure")
    page = await door.told("POST", "/v1/failures/search", {"states": ["RETRYING"]})
    for details in (found, *page["failures"]):
        assert (details["total_attempts"], details["final_state"]) == (2, "RETRYING")
    await ended(door, job_id, Event.EXHAUST, BROKEN)
    again = await door.told("GET", f"/v1/jobs/{job_id}/failure")
    assert (again["total_attempts"], again["final_state"]) == (3, "FAILED")


@proves("external-api.FailureQuery.rule.1")
async def test_a_job_that_never_failed_has_no_failure(door: Door) -> None:
    job_id = await door.submitted()
    error = check_error(await door.call("GET", f"/v1/jobs/{job_id}/failure"), 404, "NOT_FOUND")
    assert "never failed" in error["message"]
    assert [one["code"] for one in error["details"]] == ["NEVER_FAILED"]


async def spread(door: Door) -> dict[str, str]:
    jobs = {
        "permanent": await door.failed(BROKEN, type="a"),
        "used up": await door.failed(ErrorInfo("x", ErrorCategory.TIMEOUT, "E2"), type="b"),
    }
    job_id = await door.submitted(type="b", backoff={"strategy": "CONSTANT", "initial_delay": 3600})
    await door.claimed(job_id)
    await door.settled(job_id, Event.FAIL, ErrorInfo("x", ErrorCategory.SYSTEM, "E2"))
    await door.submitted(type="a")
    return {**jobs, "retrying": job_id}


@proves("external-api.FailureSearch.expect.1", "external-api.FailureSearch.expect.2")
@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, {"permanent", "used up", "retrying"}),
        ({"states": ["FAILED"]}, {"permanent"}),
        ({"states": ["DEAD_LETTER"]}, {"used up"}),
        ({"states": ["RETRYING"]}, {"retrying"}),
        ({"states": ["RETRYING", "FAILED"]}, {"permanent", "retrying"}),
        ({"failure_category": ["SYSTEM", "TIMEOUT"]}, {"used up", "retrying"}),
        ({"types": ["a"]}, {"permanent"}),
        ({"error_code": "E2"}, {"used up", "retrying"}),
        ({"error_code": "E2", "states": ["DEAD_LETTER"], "types": ["b"]}, {"used up"}),
        (
            {"time_range": {"after": "2020-01-01T00:00:00Z"}},
            {"permanent", "used up", "retrying"},
        ),
        ({"time_range": {"before": "2020-01-01T00:00:00Z"}}, set()),
    ],
)
async def test_failures_are_found(door: Door, body: dict[str, Any], names: set[str]) -> None:
    jobs = await spread(door)
    found = await door.told("POST", "/v1/failures/search", body)
    meant = {jobs[name] for name in names}
    assert {one["job_id"] for one in found["failures"]} == meant
    assert found["total_count"] == len(meant)


@proves("external-api.FailureSearchResult.rule.4", "external-api.FailureSearchResult.rule.5")
async def test_failures_are_told_newest_first_and_counted(door: Door) -> None:
    jobs = await spread(door)
    first = await door.told("POST", "/v1/failures/search", {"pagination": {"limit": 2}})
    assert [one["job_id"] for one in first["failures"]] == [jobs["retrying"], jobs["used up"]]
    assert first["by_category"] == {"PERMANENT": 1, "TIMEOUT": 1, "SYSTEM": 1}
    assert first["by_code"] == {"E404": 1, "E2": 2}
    assert first["by_type"] == {"a": 1, "b": 2}
    page = {"limit": 2, "cursor": first["next_cursor"]}
    second = await door.told("POST", "/v1/failures/search", {"pagination": page})
    [last] = second["failures"]
    assert (last["job_id"], second["next_cursor"]) == (jobs["permanent"], None)
    failure = last["failure"]
    assert (last["final_state"], failure["code"], failure["context"]) == (
        "FAILED",
        "E404",
        {"user": "ada"},
    )
    assert failure["duration_ms"] >= 0


@proves("external-api.FailureSearch.rule.5")
async def test_a_retry_does_not_change_when_a_job_failed(door: Door) -> None:
    jobs = await spread(door)
    before = await door.told("POST", "/v1/failures/search", {})
    times = {one["job_id"]: one["failure"]["timestamp"] for one in before["failures"]}
    await door.told("POST", f"/v1/jobs/{jobs['permanent']}/retry", {"delay": 3600})
    after = await door.told("POST", "/v1/failures/search", {})
    assert [one["job_id"] for one in after["failures"]] == list(times)
    assert {one["job_id"]: one["failure"]["timestamp"] for one in after["failures"]} == times
    late = {"time_range": {"after": times[jobs["permanent"]]}}
    found = await door.told("POST", "/v1/failures/search", late)
    assert {one["job_id"] for one in found["failures"]} == {jobs["used up"], jobs["retrying"]}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"states": ["COMPLETED"]}, "states[0]"),
        ({"failure_category": ["BAD"]}, "failure_category[0]"),
        ({"error_code": ""}, "error_code"),
        ({"error_code": "x" * 256}, "error_code"),
        ({"time_range": {"after": "x"}}, "time_range.after"),
        ({"time_range": {"after": "9999-01-01T00:00:00Z"}}, "time_range.after"),
        ({"time_range": {"before": "0001-01-02T00:00:00Z"}}, "time_range.before"),
        ({"types": ["x"] * 1001}, "types"),
        ({"pagination": {"limit": 0}}, "pagination.limit"),
        ({"pagination": {"cursor": "x"}}, "pagination.cursor"),
        ({"limit": 5}, "limit"),
    ],
)
async def test_a_faulty_search_is_named(door: Door, body: dict[str, Any], field: str) -> None:
    answer = await door.call("POST", "/v1/failures/search", body)
    error = check_error(answer, 400, "INVALID_REQUEST")
    assert [one["field"] for one in error["details"]] == [field]


@proves("external-api.JobQuery.rule.3", "external-api.StateTransition.rule.2")
async def test_the_history_is_told_as_it_was_seen_then(door: Door) -> None:
    parent = await door.submitted(delay=3600)
    job_id = await door.submitted(backoff=NOW, max_attempts=2)
    await ended(door, job_id, Event.FAIL, ErrorInfo("once"))
    await ended(door, job_id, Event.EXHAUST, BROKEN)
    await door.told("POST", f"/v1/jobs/{job_id}/retry")
    await door.told("POST", f"/v1/jobs/{job_id}/cancel", {"reason": "enough"})
    history = (await door.status(job_id, include_history="true"))["history"]
    assert [(one["from_state"], one["to_state"]) for one in history] == [
        (None, "SCHEDULED"),
        ("SCHEDULED", "RUNNING"),
        ("RUNNING", "RETRYING"),
        ("RETRYING", "RUNNING"),
        ("RUNNING", "FAILED"),
        ("FAILED", "RETRYING"),
        ("RETRYING", "CANCELLED"),
    ]
    times = [datetime.fromisoformat(one["timestamp"]) for one in history]
    assert times == sorted(times)
    assert history[0]["reason"] == "SUBMIT"
    assert history[-1]["reason"] == "enough"
    assert "history" not in await door.status(job_id)
    await door.told("POST", f"/v1/jobs/{parent}/cancel")
    delayed = (await door.status(parent, include_history="true"))["history"]
    assert [(one["from_state"], one["to_state"]) for one in delayed] == [
        (None, "DELAYED"),
        ("DELAYED", "CANCELLED"),
    ]
