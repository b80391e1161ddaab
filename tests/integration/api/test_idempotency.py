"""Repeats under one key, alone, in batches and all at once."""

import asyncio
from typing import Any

import pytest
from tests.integration.api.door import Door, check_error

from queue_operator.testing.clauses import proves


def keyed(key: str, **fields: Any) -> dict[str, Any]:
    return {"type": "t", "payload": {"a": 1, "b": [1.0]}, "idempotency_key": key, **fields}


@proves("external-api.SubmissionResult.expect.2", "external-api.SubmissionResult.rule.6")
async def test_a_repeat_is_answered_with_the_first_job(door: Door) -> None:
    first = await door.call("POST", "/v1/jobs", keyed("k"))
    assert (first.status_code, first.json()["status"]) == (201, "ACCEPTED")
    repeat = await door.call(
        "POST", "/v1/jobs", keyed("k", payload={"b": [1], "a": 1.0}, correlation_id="other")
    )
    assert (repeat.status_code, repeat.json()["status"]) == (200, "DUPLICATE")
    for field in ("job_id", "created_at", "scheduled_for", "state"):
        assert repeat.json()[field] == first.json()[field]
    assert repeat.json()["existing_job_id"] == first.json()["job_id"]
    assert (await door.told("GET", "/v1/stats"))["total"] == 1


async def test_a_repeat_tells_the_first_jobs_state_of_now(door: Door) -> None:
    job_id = await door.submitted(idempotency_key="k")
    await door.claimed(job_id)
    repeat = await door.told(
        "POST", "/v1/jobs", {"type": "t", "payload": 1, "idempotency_key": "k"}
    )
    assert (repeat["existing_job_id"], repeat["state"]) == (job_id, "RUNNING")


@proves("external-api.ErrorCodes.rule.3")
@pytest.mark.parametrize(
    "other",
    [
        {"payload": {"a": 2}},
        {"type": "u"},
        {"priority": "HIGH"},
        {"callback_url": "https://x.example/"},
    ],
)
async def test_a_key_of_other_content_is_a_conflict(door: Door, other: dict[str, Any]) -> None:
    first = await door.told("POST", "/v1/jobs", keyed("k"))
    answer = await door.call("POST", "/v1/jobs", keyed("k", **other))
    error = check_error(answer, 409, "DUPLICATE")
    assert [detail["field"] for detail in error["details"]] == ["idempotency_key"]
    assert first["job_id"] in error["message"]


@proves("external-api.BatchSubmission.expect.4", "external-api.BatchResult.rule.2")
async def test_a_key_twice_in_a_batch_is_as_if_in_sequence(door: Door) -> None:
    await door.told("POST", "/v1/jobs", keyed("old"))
    jobs = [keyed("new"), keyed("new"), keyed("old"), {"type": "t", "payload": None}]
    result = await door.told("POST", "/v1/jobs/batch", {"jobs": jobs})
    assert (result["accepted"], result["rejected"]) == (4, 0)
    statuses = [one["status"] for one in result["results"]]
    assert statuses == ["ACCEPTED", "DUPLICATE", "DUPLICATE", "ACCEPTED"]
    assert result["results"][1]["existing_job_id"] == result["results"][0]["job_id"]


async def test_a_conflict_in_a_batch_is_told_in_its_place(door: Door) -> None:
    await door.told("POST", "/v1/jobs", keyed("k"))
    jobs = [{"type": "t", "payload": 1}, keyed("k", type="other")]
    error = check_error(await door.call("POST", "/v1/jobs/batch", {"jobs": jobs}), 409, "DUPLICATE")
    assert [one["field"] for one in error["details"]] == ["jobs[1].idempotency_key"]
    result = await door.told("POST", "/v1/jobs/batch", {"jobs": jobs, "atomic": False})
    assert [one["status"] for one in result["results"]] == ["ACCEPTED", "REJECTED"]
    assert result["results"][1]["error"]["details"][0]["field"] == "idempotency_key"


async def test_every_conflict_of_a_batch_is_told_with_the_job_that_has_the_key(door: Door) -> None:
    first = [await door.submitted(idempotency_key=f"k{n}") for n in range(93)]
    await door.submitted(job_id="taken")
    jobs = [keyed(f"k{n}", type="other") for n in range(93)]
    error = check_error(await door.call("POST", "/v1/jobs/batch", {"jobs": jobs}), 409, "DUPLICATE")
    assert "(and 92 more)" in error["message"]
    assert [(one["field"], one["job_id"]) for one in error["details"]] == [
        (f"jobs[{n}].idempotency_key", job_id) for n, job_id in enumerate(first)
    ]
    mixed = [keyed("k7", type="other"), {"type": "t", "payload": 1, "job_id": "taken"}]
    answer = await door.call("POST", "/v1/jobs/batch", {"jobs": mixed})
    error = check_error(answer, 409, "DUPLICATE")
    assert [one["field"] for one in error["details"]] == [
        "jobs[0].idempotency_key",
        "jobs[1].job_id",
    ]


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_submission_twice_in_a_batch_is_as_if_sent_apart(door: Door, atomic: bool) -> None:
    same = keyed("k", job_id="mine")
    body = {"jobs": [same, same, keyed("k", job_id="mine", type="u")][: 2 + (not atomic)]}
    result = await door.told("POST", "/v1/jobs/batch", {**body, "atomic": atomic})
    statuses = [one["status"] for one in result["results"]]
    assert statuses == ["ACCEPTED", "DUPLICATE", "REJECTED"][: 2 + (not atomic)]
    assert [one["job_id"] for one in result["results"][:2]] == ["mine", "mine"]
    apart = await door.call("POST", "/v1/jobs", same)
    assert (apart.status_code, apart.json()["status"]) == (200, "DUPLICATE")


async def test_racing_repeats_store_one_job(door: Door) -> None:
    calls = [door.call("POST", "/v1/jobs", keyed("race")) for _ in range(20)]
    answers = await asyncio.gather(*calls)
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert (await door.told("GET", "/v1/stats"))["total"] == 1


async def test_callers_at_once_are_told_their_own_faults(door: Door) -> None:
    """They share a statement, but neither faults nor answers."""
    await door.submitted(job_id="taken")
    bodies = [
        {"type": "t", "payload": 1, "job_id": "taken"},
        {"type": "t", "payload": 1, "depends_on": ["missing"]},
        keyed("mine"),
        {"type": "t", "payload": 1, "job_id": "good"},
        {"type": "t", "payload": 1, "job_id": "good"},
        {"type": "t", "payload": 1, "delay": 60},
    ]
    answers = await asyncio.gather(*(door.call("POST", "/v1/jobs", body) for body in bodies))
    statuses = [answer.status_code for answer in answers]
    assert statuses[:3] == [409, 400, 201]
    assert sorted(statuses[3:5]) == [201, 409]
    assert answers[1].json()["details"][0]["field"] == "depends_on[0]"
    assert answers[5].json()["state"] == "DELAYED"
