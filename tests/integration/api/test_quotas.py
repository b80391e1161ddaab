"""What a namespace may use, and what is said beyond it."""

from dataclasses import replace

import pytest
from tests.integration.api.door import Door, check_error

from queue_operator.queue.protocol import StreamSpec
from queue_operator.testing.clauses import proves

JOB = {"type": "t", "payload": 1}


@proves(
    "external-api.QuotaError.rule.1",
    "external-api.QuotaError.rule.2",
    "external-api.QuotaError.rule.3",
    "external-api.QuotaError.rule.4",
    "external-api.ErrorCodes.rule.4",
)
async def test_a_namespace_that_is_full_takes_no_more(door: Door) -> None:
    full = replace(door, namespace="few-waiting")
    for _ in range(3):
        await full.submitted()
    for path, body in (("/v1/jobs", JOB), ("/v1/jobs/batch", {"jobs": [JOB]})):
        answer = await full.call("POST", path, body)
        quota = answer.json().pop("quota")
        assert (quota["limit"], quota["current"], quota["maximum"]) == ("pending_jobs", 3, 3)
        assert quota["retry_after"].startswith("PT")
        assert int(answer.headers["retry-after"]) >= 1
        assert (answer.status_code, answer.json()["code"]) == (429, "QUOTA_EXCEEDED")
    mixed = await full.told("POST", "/v1/jobs/batch", {"jobs": [JOB, JOB], "atomic": False})
    assert [one["status"] for one in mixed["results"]] == ["REJECTED", "REJECTED"]
    error = mixed["results"][0]["error"]
    assert (error["code"], error["quota"]["limit"]) == ("QUOTA_EXCEEDED", "pending_jobs")
    await door.submitted()


@proves("external-api.QuotaError.rule.4")
async def test_a_batch_that_never_fits_is_not_told_to_come_again(door: Door) -> None:
    few = replace(door, namespace="few-at-once")
    answer = await few.call("POST", "/v1/jobs/batch", {"jobs": [JOB] * 4})
    error = answer.json()
    assert (answer.status_code, error["code"]) == (429, "QUOTA_EXCEEDED")
    assert "retry-after" not in answer.headers
    assert error["quota"] == {"limit": "pending_jobs", "current": 0, "maximum": 3}
    assert "4 jobs never fits into 3" in error["message"]


@pytest.mark.parametrize(
    ("namespace", "limit", "payload"),
    [("slow", "submissions_per_s", 1), ("small", "payload_bytes_per_s", "x" * 45)],
)
async def test_a_namespace_that_is_too_fast_is_told_when_to_go_on(
    door: Door, namespace: str, limit: str, payload: object
) -> None:
    fast = replace(door, namespace=namespace)
    for _ in range(2):
        await fast.submitted(payload=payload)
    answer = await fast.call("POST", "/v1/jobs", {"type": "t", "payload": payload})
    error = answer.json()
    assert (answer.status_code, error["quota"]["limit"]) == (429, limit)
    assert [one["field"] for one in error["details"]] == [limit]
    assert int(answer.headers["retry-after"]) > 1


async def test_a_repeat_is_answered_with_its_job_though_the_namespace_is_full(door: Door) -> None:
    full = replace(door, namespace="repeated")
    jobs = [{**JOB, "idempotency_key": key} for key in "abc"]
    stored = await full.told("POST", "/v1/jobs/batch", {"jobs": jobs})
    ids = [one["job_id"] for one in stored["results"]]
    # More often than a second submission for each would be paid for.
    for n in range(3):
        repeat = await full.call("POST", "/v1/jobs", jobs[n])
        told = repeat.json()
        assert (repeat.status_code, told["status"]) == (200, "DUPLICATE")
        assert told["existing_job_id"] == ids[n]
        for atomic in (True, False):
            told = await full.told("POST", "/v1/jobs/batch", {"jobs": jobs, "atomic": atomic})
            assert [one["existing_job_id"] for one in told["results"]] == ids
    some = {"jobs": [jobs[1], JOB, jobs[0]], "atomic": False}
    mixed = await full.told("POST", "/v1/jobs/batch", some)
    assert [one["status"] for one in mixed["results"]] == ["DUPLICATE", "REJECTED", "DUPLICATE"]
    whole = await full.call("POST", "/v1/jobs/batch", {"jobs": [*jobs, JOB]})
    assert (whole.status_code, whole.json()["code"]) == (429, "QUOTA_EXCEEDED")


@proves("external-api.QuotaError.expect.1")
async def test_a_quota_of_running_jobs_refuses_nobody(door: Door) -> None:
    busy = replace(door, namespace="one-running")
    first, second = await busy.submitted(), await busy.submitted()
    spec = StreamSpec(
        assignee_id="quota/w", capacity=5, namespace=busy.namespace, worker_name="quota-w"
    )
    stream = await busy.queue.open_stream(spec)
    push = await stream.next()
    assert push is not None
    assert [one.job_id for one in push.assignments] == [first]
    why = await busy.told("GET", f"/v1/jobs/{second}/why")
    assert (why["reason"], why["position"], why["free_slots"]) == ("QUOTA", 0, 4)
    await stream.close()
    assert check_error(await busy.call("GET", "/v1/jobs/none/why"), 404, "NOT_FOUND")
