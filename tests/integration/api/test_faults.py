"""Faults that users of other queues reported, as they would show in the API."""

from typing import Any

import pytest
from tests.integration.api.door import Door, check_error
from tests.integration.api.phases import every_phase

from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

MIB = 1024 * 1024
EMPTY: list[Any] = [None, {}, [], "", 0, False]


async def test_no_empty_payload_is_taken_for_another(door: Door) -> None:
    for payload in EMPTY:
        job_id = await door.submitted(payload=payload)
        assert (await door.stored(job_id)).payload == str(
            {"None": "null", "False": "false", "": '""'}.get(str(payload), payload)
        ).encode()
    first = {"type": "t", "payload": EMPTY[0], "idempotency_key": "k"}
    assert (await door.call("POST", "/v1/jobs", first)).status_code == 201
    for payload in EMPTY[1:]:
        check_error(
            await door.call("POST", "/v1/jobs", {**first, "payload": payload}), 409, "DUPLICATE"
        )
    error = check_error(await door.call("POST", "/v1/jobs", {"type": "t"}), 400, "INVALID_REQUEST")
    assert error["details"][0]["field"] == "payload"


@pytest.mark.parametrize(
    ("size", "status"),
    [(256 * 1024, 201), (MIB, 201), (MIB + 1, 413), (4 * MIB, 413), (16 * MIB, 413)],
)
async def test_a_payload_is_stored_or_refused_by_its_size(
    door: Door, size: int, status: int
) -> None:
    answer = await door.call("POST", "/v1/jobs", {"type": "t", "payload": "x" * (size - 2)})
    assert answer.status_code == status
    if status == 413:
        assert check_error(answer, 413, "INVALID_REQUEST")["details"][0]["field"] in (
            "payload",
            "body",
        )


async def test_a_batch_may_be_larger_than_any_of_its_jobs(door: Door) -> None:
    jobs = [{"type": "t", "payload": "x" * (900 * 1024)} for _ in range(6)]
    result = await door.told("POST", "/v1/jobs/batch", {"jobs": jobs})
    assert result["accepted"] == 6


@pytest.mark.parametrize("count", [1001, 5000])
async def test_more_jobs_than_a_batch_may_have_are_refused(door: Door, count: int) -> None:
    body = {"jobs": [{"type": "t", "payload": n} for n in range(count)]}
    error = check_error(await door.call("POST", "/v1/jobs/batch", body), 400, "INVALID_REQUEST")
    assert error["details"][0]["field"] == "jobs"
    assert (await door.told("GET", "/v1/stats"))["total"] == 0


@proves("external-api.BatchSubmission.expect.1", "external-api.BatchSubmission.expect.2")
@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ({"type": ""}, "type"),
        ({"delay": "soon"}, "delay"),
        ({"depends_on": ["missing"]}, "depends_on[0]"),
    ],
)
async def test_one_bad_job_of_a_thousand(door: Door, fault: dict[str, Any], field: str) -> None:
    jobs = [{"type": "t", "payload": n, "idempotency_key": f"k{n}"} for n in range(1000)]
    broken = [*jobs[:500], {**jobs[500], **fault}, *jobs[501:]]
    error = check_error(
        await door.call("POST", "/v1/jobs/batch", {"jobs": broken}), 400, "INVALID_REQUEST"
    )
    assert [one["field"] for one in error["details"]] == [f"jobs[500].{field}"]
    assert (await door.told("GET", "/v1/stats"))["total"] == 0
    partial = await door.told("POST", "/v1/jobs/batch", {"jobs": broken, "atomic": False})
    assert (partial["accepted"], partial["rejected"]) == (999, 1)
    assert partial["results"][500]["error"]["details"][0]["field"] == field
    mended = await door.told("POST", "/v1/jobs/batch", {"jobs": jobs})
    statuses = [one["status"] for one in mended["results"]]
    assert (statuses.count("DUPLICATE"), statuses[500]) == (999, "ACCEPTED")
    assert (await door.told("GET", "/v1/stats"))["total"] == 1000


async def test_a_key_lives_as_long_as_its_job(door: Door) -> None:
    body = {"type": "t", "payload": 1, "idempotency_key": "k"}
    job_id = (await door.told("POST", "/v1/jobs", body))["job_id"]
    await door.claimed(job_id)
    assert (await door.told("POST", "/v1/jobs", body))["state"] == "RUNNING"
    await door.settled(job_id, Event.EXHAUST, ErrorInfo("x"))
    assert (await door.told("POST", "/v1/jobs", body))["state"] == "DEAD_LETTER"
    await door.told("POST", f"/v1/jobs/{job_id}/retry")
    assert (await door.told("POST", "/v1/jobs", body))["state"] == "RETRYING"
    await door.told("POST", f"/v1/jobs/{job_id}/cancel")
    assert (await door.told("POST", "/v1/jobs", body))["existing_job_id"] == job_id
    await door.told("DELETE", f"/v1/jobs/{job_id}")
    again = await door.call("POST", "/v1/jobs", body)
    assert (again.status_code, again.json()["status"]) == (201, "ACCEPTED")


async def test_a_parent_that_was_deleted_does_not_exist(door: Door) -> None:
    parent = await door.submitted()
    child = await door.submitted(depends_on=[parent], delay=3600)
    await door.claimed(parent)
    await door.settled(parent, Event.COMPLETE)
    await door.told("DELETE", f"/v1/jobs/{parent}")
    # Whoever was told of its end before goes on.
    assert (await door.status(child))["state"] == "DELAYED"
    body = {"type": "t", "payload": 1, "depends_on": [parent]}
    error = check_error(await door.call("POST", "/v1/jobs", body), 400, "INVALID_REQUEST")
    assert [one["field"] for one in error["details"]] == ["depends_on[0]"]


@proves("external-api.BatchCancellation.rule.5", "external-api.CancellationSemantics.rule.4")
async def test_a_dry_run_changes_nothing_whatever_the_state(door: Door) -> None:
    jobs = await every_phase(door)
    before = [await door.stored(job_id) for job_id in jobs.values()]
    events = await door.backend.read_events(limit=100_000)
    for path in ("cancel", "retry", "delete"):
        for chosen in ({"job_ids": [*jobs.values()]}, {"filter": {"all": True}}):
            body = {**chosen, "dry_run": True}
            assert (await door.told("POST", f"/v1/jobs/{path}", body))["dry_run"]
    assert [await door.stored(job_id) for job_id in jobs.values()] == before
    assert await door.backend.read_events(limit=100_000) == events


async def test_a_cancel_says_clearly_what_it_met(door: Door) -> None:
    jobs = await every_phase(door)
    statuses = {}
    for state, job_id in jobs.items():
        answer = await door.told("POST", f"/v1/jobs/{job_id}/cancel")
        assert answer["previous_state"] == state
        statuses[state] = answer["status"]
    at_once = dict.fromkeys(("PENDING", "DELAYED", "SCHEDULED", "RETRYING"), "CANCELLED")
    ended = dict.fromkeys(("COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED"), "ALREADY_COMPLETE")
    assert statuses == {**at_once, **ended, "RUNNING": "CANCEL_REQUESTED"}
    check_error(await door.call("POST", "/v1/jobs/missing/cancel"), 404, "NOT_FOUND")
    # Nobody listens, and nothing of it starts all the same.
    assert await door.backend.dequeue_jobs("late", (), 10, namespace=door.namespace) == []
