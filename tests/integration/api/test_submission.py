"""Jobs in, alone and in batches."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.api.door import Door, check_error

from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import BackoffStrategy, backoff_of
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves


def submission(**fields: Any) -> dict[str, Any]:
    return {"type": "t", "payload": 1, **fields}


async def test_a_job_is_stored_as_it_was_given(door: Door) -> None:
    answer = await door.call(
        "POST",
        "/v1/jobs",
        submission(
            job_id="mine",
            payload={"text": "é\x00", "big": 2**64, "nothing": None},
            priority="HIGH",
            timeout="PT1M",
            max_attempts=7,
            backoff={"strategy": "CONSTANT", "initial_delay": 2},
            tags={"region": "eu", "urgent": ""},
            correlation_id="trace",
        ),
    )
    assert answer.status_code == 201
    assert answer.json()["job_id"] == "mine"
    assert answer.json()["status"] == "ACCEPTED"
    assert answer.json()["state"] == "SCHEDULED"
    job = await door.stored("mine")
    assert job.payload == '{"text":"é\\u0000","big":18446744073709551616,"nothing":null}'.encode()
    assert job.content_type == "application/json"
    assert (job.namespace, job.type, job.priority) == (door.namespace, "t", Priority.HIGH)
    assert (job.timeout_s, job.max_attempts, job.correlation_id) == (60.0, 7, "trace")
    assert job.backoff == backoff_of(BackoffStrategy.CONSTANT, initial_delay_s=2.0)
    assert job.tags == {"region=eu", "urgent"}
    shown = await door.status("mine")
    assert shown["tags"] == {"region": "eu", "urgent": ""}
    assert shown["priority"] == "HIGH"
    assert shown["created_at"] == answer.json()["created_at"]


async def test_bytes_arrive_as_they_are(door: Door) -> None:
    raw = bytes(range(256))
    given = {"type": "t", "payload_base64": base64.b64encode(raw).decode()}
    answer = await door.call("POST", "/v1/jobs", given)
    job = await door.stored(answer.json()["job_id"])
    assert (job.payload, job.content_type) == (raw, "application/octet-stream")


async def test_what_was_left_out_is_resolved_later(door: Door) -> None:
    job = await door.stored(await door.submitted())
    assert (job.max_attempts, job.timeout_s, job.backoff) == (0, None, None)


async def test_a_delay_counts_from_the_submission(door: Door) -> None:
    answer = (await door.call("POST", "/v1/jobs", submission(delay="PT5M"))).json()
    assert answer["state"] == "DELAYED"
    created = datetime.fromisoformat(answer["created_at"])
    assert datetime.fromisoformat(answer["scheduled_for"]) - created == timedelta(minutes=5)
    assert (await door.status(answer["job_id"]))["state"] == "DELAYED"


async def test_a_job_can_wait_for_a_time(door: Door) -> None:
    due = datetime.now(UTC) + timedelta(days=1)
    answer = await door.call("POST", "/v1/jobs", submission(scheduled_at=due.isoformat()))
    assert datetime.fromisoformat(answer.json()["scheduled_for"]) == due


@proves("external-api.ErrorCodes.rule.3")
async def test_an_id_that_is_taken_is_a_duplicate(door: Door) -> None:
    await door.submitted(job_id="mine", payload="first")
    answer = await door.call("POST", "/v1/jobs", submission(job_id="mine"))
    error = check_error(answer, 409, "DUPLICATE")
    assert [detail["field"] for detail in error["details"]] == ["job_id"]
    assert (await door.stored("mine")).payload == b'"first"'


async def test_racing_submissions_of_one_id_store_one_job(door: Door) -> None:
    calls = [door.call("POST", "/v1/jobs", submission(job_id="race")) for _ in range(10)]
    statuses = sorted([answer.status_code for answer in await asyncio.gather(*calls)])
    assert statuses == [201] + [409] * 9


async def test_the_same_id_in_another_namespace_is_another_job(door: Door) -> None:
    await door.submitted(job_id="mine")
    answer = await door.call(
        "POST", "/v1/jobs", submission(job_id="mine"), namespace=f"{door.namespace}-2"
    )
    assert answer.status_code == 201


@pytest.mark.parametrize("job_id", ["a/b", "batch", "ü", "a?b#c", "x" * 255, "cancel"])
async def test_any_id_can_be_looked_up(door: Door, job_id: str) -> None:
    await door.submitted(job_id=job_id)
    quoted = "".join(f"%{byte:02X}" for byte in job_id.encode())
    assert (await door.status(quoted))["job_id"] == job_id


async def test_a_batch_is_stored_whole(door: Door) -> None:
    jobs = [submission(job_id=f"j{n}", delay=n) for n in range(1000)]
    answer = await door.call("POST", "/v1/jobs/batch", {"jobs": jobs})
    assert answer.status_code == 201
    result = answer.json()
    assert (result["total"], result["accepted"], result["rejected"]) == (1000, 1000, 0)
    assert [item["job_id"] for item in result["results"]] == [job["job_id"] for job in jobs]
    for n in (0, 1, 999):
        shown = await door.status(f"j{n}")
        assert shown["created_at"] == result["results"][n]["created_at"]
        assert shown["scheduled_for"] == result["results"][n]["scheduled_for"]


async def test_an_atomic_batch_with_a_taken_id_stores_nothing(door: Door) -> None:
    await door.submitted(job_id="taken")
    jobs = [submission(job_id="new"), submission(job_id="taken")]
    error = check_error(await door.call("POST", "/v1/jobs/batch", {"jobs": jobs}), 409, "DUPLICATE")
    assert [detail["field"] for detail in error["details"]] == ["jobs[1].job_id"]
    with pytest.raises(JobNotFound):
        await door.stored("new")


async def test_an_atomic_batch_with_faults_names_them_all_and_stores_nothing(door: Door) -> None:
    jobs = [submission(job_id="new"), submission(max_attempts=0), submission(typo=1)]
    error = check_error(
        await door.call("POST", "/v1/jobs/batch", {"jobs": jobs}), 400, "INVALID_REQUEST"
    )
    fields = [detail["field"] for detail in error["details"]]
    assert fields == ["jobs[1].max_attempts", "jobs[2].typo"]
    with pytest.raises(JobNotFound):
        await door.stored("new")


async def test_a_batch_that_is_not_atomic_stores_what_it_can(door: Door) -> None:
    await door.submitted(job_id="taken")
    jobs = [
        submission(job_id="good"),
        submission(job_id="taken"),
        submission(job_id="good"),
        submission(depends_on=["x"]),
        "no job",
        submission(payload="x" * 1024 * 1024),
    ]
    answer = await door.call("POST", "/v1/jobs/batch", {"jobs": jobs, "atomic": False})
    assert answer.status_code == 200
    result = answer.json()
    assert (result["total"], result["accepted"], result["rejected"]) == (6, 1, 5)
    assert [item["status"] for item in result["results"]] == ["ACCEPTED"] + ["REJECTED"] * 5
    codes = [item["error"]["code"] for item in result["results"][1:]]
    assert codes == ["DUPLICATE", "DUPLICATE"] + ["INVALID_REQUEST"] * 3
    assert result["results"][3]["error"]["details"][0]["field"] == "depends_on[0]"
    assert (await door.stored("good")).state is JobState.INITIAL_PENDING


async def test_each_job_of_a_batch_is_told_all_its_faults(door: Door) -> None:
    body = {"jobs": [submission(x=1, priority="BAD")], "atomic": False}
    [result] = (await door.told("POST", "/v1/jobs/batch", body))["results"]
    told = {(one["field"], one["code"]) for one in result["error"]["details"]}
    assert told == {("x", "UNKNOWN_FIELD"), ("priority", "ENUM")}


async def test_a_batch_with_nothing_good_stores_nothing(door: Door) -> None:
    body = {"jobs": [submission(x=1)], "atomic": False}
    answer = await door.call("POST", "/v1/jobs/batch", body)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 0)
    assert (await door.call("GET", "/v1/stats")).json()["total"] == 0


async def test_statistics_count_by_state_and_tag(door: Door) -> None:
    await door.submitted(tags={"region": "eu"})
    await door.claimed(
        (await door.call("POST", "/v1/jobs", submission(priority="CRITICAL"))).json()["job_id"]
    )
    shown = (await door.call("GET", "/v1/stats")).json()
    assert (shown["total"], shown["running"]) == (2, 1)
    assert shown["counts"][JobState.INITIAL_PENDING] == 1
    tagged = (await door.call("GET", "/v1/stats", tag="region=eu")).json()
    assert (tagged["total"], tagged["counts"][JobState.RUNNING]) == (1, 0)
