"""What a cancel answers, by the state it meets."""

from typing import Any

import pytest
from tests.integration.api.door import Door, check_error

from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState


async def cancelled(door: Door, job_id: str, **body: Any) -> tuple[str, str]:
    answer = await door.call("POST", f"/v1/jobs/{job_id}/cancel", body or None)
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert set(result) == {"job_id", "status", "previous_state", "message"}
    assert result["job_id"] == job_id
    return result["status"], result["previous_state"]


async def settled(
    door: Door, job_id: str, event: Event, category: ErrorCategory | None = None
) -> Job:
    """Ends the running attempt of the job."""
    error = None if category is None else ErrorInfo("broken", category)
    outcome = Outcome(job_id, event, door.namespace, result=b"", error=error)
    (answer,) = await door.backend.settle([outcome])
    assert answer.error is None, answer.error
    return await door.stored(job_id)


async def test_a_waiting_job_is_cancelled_at_once(door: Door) -> None:
    job_id = await door.submitted()
    assert await cancelled(door, job_id, reason="not needed") == ("CANCELLED", "SCHEDULED")
    assert (await door.status(job_id))["state"] == "CANCELLED"
    assert (await door.stored(job_id)).state is JobState.UNSCHEDULED


async def test_a_delayed_job_is_cancelled_at_once(door: Door) -> None:
    job_id = await door.submitted(delay=3600)
    assert await cancelled(door, job_id) == ("CANCELLED", "DELAYED")


async def test_a_running_job_is_asked_to_stop(door: Door) -> None:
    job_id = await door.submitted()
    await door.claimed(job_id)
    assert await cancelled(door, job_id, reason="too slow") == ("CANCEL_REQUESTED", "RUNNING")
    shown = await door.status(job_id)
    assert (shown["state"], shown["cancel_requested"]) == ("RUNNING", True)
    assert shown["reason"] == "too slow"
    assert await cancelled(door, job_id, force=True) == ("CANCEL_REQUESTED", "RUNNING")


async def test_a_job_between_attempts_is_cancelled_at_once(door: Door) -> None:
    job_id = await door.submitted(backoff={"strategy": "CONSTANT", "initial_delay": 3600})
    await door.claimed(job_id)
    job = await settled(door, job_id, Event.FAIL, ErrorCategory.TEMPORARY)
    assert job.state is JobState.FAILED_RETRY
    assert (await door.status(job_id))["state"] == "RETRYING"
    assert await cancelled(door, job_id) == ("CANCELLED", "RETRYING")
    assert (await door.stored(job_id)).state is JobState.STOPPED


@pytest.mark.parametrize(
    ("event", "category", "state"),
    [
        (Event.COMPLETE, None, "COMPLETED"),
        (Event.EXHAUST, ErrorCategory.TEMPORARY, "DEAD_LETTER"),
        (Event.EXHAUST, ErrorCategory.PERMANENT, "FAILED"),
        (Event.STOP, ErrorCategory.TEMPORARY, "CANCELLED"),
    ],
)
async def test_a_finished_job_stays_as_it_is(
    door: Door, event: Event, category: ErrorCategory | None, state: str
) -> None:
    job_id = await door.submitted()
    await door.claimed(job_id)
    before = await settled(door, job_id, event, category)
    assert await cancelled(door, job_id, force=True) == ("ALREADY_COMPLETE", state)
    assert await door.stored(job_id) == before


async def test_a_job_cancelled_twice(door: Door) -> None:
    job_id = await door.submitted()
    await cancelled(door, job_id)
    assert await cancelled(door, job_id) == ("ALREADY_COMPLETE", "CANCELLED")


async def test_a_missing_job_is_not_found(door: Door) -> None:
    check_error(await door.call("POST", "/v1/jobs/nope/cancel", {}), 404, "NOT_FOUND")


async def test_a_job_of_another_namespace_is_not_found(door: Door) -> None:
    job_id = await door.submitted()
    answer = await door.call("POST", f"/v1/jobs/{job_id}/cancel", {}, namespace="elsewhere")
    check_error(answer, 404, "NOT_FOUND")
    assert (await door.stored(job_id)).state is JobState.INITIAL_PENDING


@pytest.mark.parametrize(
    "body",
    [
        {"force": "yes"},
        {"force": 1},
        {"why": "x"},
        [],
        {"reason": 1},
        {"reason": "a\0b"},
        {"reason": "x" * 1025},
    ],
)
async def test_a_malformed_request_cancels_nothing(door: Door, body: Any) -> None:
    job_id = await door.submitted()
    answer = await door.call("POST", f"/v1/jobs/{job_id}/cancel", body)
    check_error(answer, 400, "INVALID_REQUEST")
    assert (await door.stored(job_id)).state is JobState.INITIAL_PENDING


@pytest.mark.parametrize(
    ("result", "content_type", "shown"),
    [
        (b'{"sent": true}', "application/json", {"output": {"sent": True}}),
        (b"null", "application/json", {"output": None}),
        # Large enough to be rendered beside the event loop.
        (b'"%s"' % (b"x" * 300_000), "application/json", {"output": "x" * 300_000}),
        (b"\x00\xff", "application/octet-stream", {"output_base64": "AP8="}),
    ],
    ids=["json", "null", "large", "bytes"],
)
async def test_a_result_is_shown_when_asked_for(
    door: Door, result: bytes, content_type: str, shown: dict[str, Any]
) -> None:
    job_id = await door.submitted()
    await door.claimed(job_id)
    await door.backend.settle(
        [
            Outcome(
                job_id,
                Event.COMPLETE,
                door.namespace,
                result=result,
                result_content_type=content_type,
            )
        ]
    )
    assert "result" not in await door.status(job_id)
    found = (await door.status(job_id, include_result="true"))["result"]
    assert found.pop("duration_ms") >= 0
    assert found == {"status": "SUCCESS", "attempt": 1, **shown}


async def test_a_failure_is_shown_with_its_error(door: Door) -> None:
    job_id = await door.submitted()
    await door.claimed(job_id)
    await settled(door, job_id, Event.EXHAUST, ErrorCategory.PERMANENT)
    shown = await door.status(job_id, include_result="true")
    assert shown["state"] == "FAILED"
    assert shown["result"]["status"] == "FAILURE"
    assert shown["result"]["error"]["category"] == "PERMANENT"
    assert shown["result"]["error"]["message"] == "broken"
