"""Submitting many jobs at once."""

from typing import Any

import pytest
from tests.contract_api.api import Api

from queue_operator.testing.clauses import proves

pytestmark = pytest.mark.asyncio(loop_scope="session")


def jobs(*ids: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"type": "t", "payload": 1, "job_id": job_id, **fields} for job_id in ids]


async def total(api: Api) -> int:
    return int((await api.get("/stats"))["total"])


@proves(
    "external-api.BatchSubmission.rule.1",
    "external-api.BatchResult.rule.1",
    "external-api.BatchResult.rule.2",
    "external-api.BatchResult.rule.4",
)
async def test_a_batch_is_answered_in_order(api: Api) -> None:
    names = [f"j{n}" for n in range(1000)]
    answer = await api.post("/jobs/batch", {"jobs": jobs(*names)}, status=201)
    assert (answer["total"], answer["accepted"], answer["rejected"]) == (1000, 1000, 0)
    assert [result["job_id"] for result in answer["results"]] == names
    assert {result["status"] for result in answer["results"]} == {"ACCEPTED"}
    assert await total(api) == 1000
    for wrong in ([], jobs(*(f"k{n}" for n in range(1001))), None, "all"):
        assert list(await api.faults("POST", "/jobs/batch", {"jobs": wrong})) == ["jobs"]
    assert list(await api.faults("POST", "/jobs/batch", {})) == ["jobs"]


@proves(
    "external-api.BatchSubmission.rule.2",
    "external-api.BatchSubmission.expect.1",
    "external-api.APIError.rule.5",
)
async def test_one_fault_stops_an_atomic_batch(api: Api) -> None:
    body = {"jobs": [*jobs("a"), *jobs("b", priority="no", delay=-1), *jobs("c", type="")]}
    faults = await api.faults("POST", "/jobs/batch", body)
    assert sorted(faults) == ["jobs[1].delay", "jobs[1].priority", "jobs[2].type"]
    assert await total(api) == 0
    assert list(await api.faults("POST", "/jobs/batch", {"jobs": [], "atomic": "no"}))
    await api.submit(job_id="a")
    taken = await api.post("/jobs/batch", {"jobs": jobs("b", "a")}, status=409)
    assert [detail["field"] for detail in taken["details"]] == ["jobs[1].job_id"]
    assert await total(api) == 1


@proves(
    "external-api.BatchSubmission.expect.2",
    "external-api.BatchResult.rule.3",
    "external-api.SubmissionResult.expect.3",
)
async def test_what_is_good_is_stored(api: Api) -> None:
    await api.submit(job_id="taken")
    wrong = [*jobs("b", priority="no"), *jobs("taken"), *jobs("c", depends_on=["missing"])]
    body = {"jobs": [*jobs("a"), *wrong, *jobs("d")], "atomic": False}
    answer = await api.post("/jobs/batch", body)
    assert (answer["total"], answer["accepted"], answer["rejected"]) == (5, 2, 3)
    told = [(one["status"], one.get("error", {}).get("code")) for one in answer["results"]]
    assert told == [
        ("ACCEPTED", None),
        ("REJECTED", "INVALID_REQUEST"),
        ("REJECTED", "DUPLICATE"),
        ("REJECTED", "INVALID_REQUEST"),
        ("ACCEPTED", None),
    ]
    rejected = answer["results"][1]["error"]
    assert [detail["field"] for detail in rejected["details"]] == ["priority"]
    assert await total(api) == 3


@proves("external-api.BatchSubmission.expect.3")
async def test_jobs_of_a_batch_depend_on_each_other(api: Api) -> None:
    body = {"jobs": [*jobs("child", depends_on=["parent"]), *jobs("parent")]}
    answer = await api.post("/jobs/batch", body, status=201)
    assert [one["state"] for one in answer["results"]] == ["PENDING", "SCHEDULED"]
    cycle = {"jobs": [*jobs("x", depends_on=["y"]), *jobs("y", depends_on=["x"])]}
    assert all("depends_on" in field for field in await api.faults("POST", "/jobs/batch", cycle))
    assert await total(api) == 2


@proves("external-api.BatchSubmission.expect.4")
async def test_a_key_twice_in_a_batch(api: Api) -> None:
    same = {"type": "t", "payload": 1, "idempotency_key": "k"}
    for atomic in (True, False):
        body = {"jobs": [same, same, {"type": "t", "payload": 2}], "atomic": atomic}
        answer = await api.post("/jobs/batch", body, status=201 if atomic else 200)
        first, second, _ = answer["results"]
        assert second["status"] == "DUPLICATE"
        assert second["existing_job_id"] == first["job_id"]
        assert answer["accepted"] == 3
