"""Jobs that wait for others, as the outside sees them."""

from typing import Any

import pytest
from tests.integration.api.door import Door, check_error

from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves


async def completed(door: Door, job_id: str) -> None:
    await door.claimed(job_id)
    await door.settled(job_id, Event.COMPLETE, result=b"done")


@proves("external-api.DependencyType.expect.1", "external-api.LifecycleState.expect.1")
async def test_a_job_waits_for_all_its_parents(door: Door) -> None:
    parents = [await door.submitted(), await door.submitted(delay=3600)]
    answer = await door.told("POST", "/v1/jobs", {"type": "t", "payload": 1, "depends_on": parents})
    assert (answer["state"], answer["scheduled_for"]) == ("PENDING", None)
    await completed(door, parents[0])
    assert (await door.status(answer["job_id"]))["state"] == "PENDING"
    why = await door.told("GET", f"/v1/jobs/{answer['job_id']}/why")
    assert why["reason"] == "DEPENDENCIES"
    assert why["depends_on"] == [
        {"job_id": parents[0], "state": "COMPLETED"},
        {"job_id": parents[1], "state": None},
    ]
    assert why["position"] is None


@proves("external-api.DependencyType.expect.2")
async def test_one_of_many_is_enough_where_any_is_asked_for(door: Door) -> None:
    parents = [await door.submitted(), await door.submitted(delay=3600)]
    child = await door.submitted(depends_on=parents, dependency_type="AFTER_ANY")
    await completed(door, parents[0])
    assert (await door.status(child))["state"] == "SCHEDULED"


@proves("external-api.DependencyType.expect.4")
async def test_a_job_whose_parents_failed_is_cancelled(door: Door) -> None:
    parent = await door.submitted(job_id="parent")
    child = await door.submitted(depends_on=[parent])
    grandchild = await door.submitted(depends_on=[child])
    await door.told("POST", f"/v1/jobs/{parent}/cancel")
    for job_id in (child, grandchild):
        shown = await door.status(job_id, include_history="true")
        assert shown["state"] == "CANCELLED"
        assert [one["to_state"] for one in shown["history"]] == ["PENDING", "CANCELLED"]


@proves("external-api.BatchSubmission.expect.3")
async def test_jobs_of_a_batch_may_wait_for_each_other(door: Door) -> None:
    jobs = [
        {"type": "t", "payload": 1, "job_id": "second", "depends_on": ["first"]},
        {"type": "t", "payload": 1, "job_id": "first"},
    ]
    result = await door.told("POST", "/v1/jobs/batch", {"jobs": jobs})
    assert [one["state"] for one in result["results"]] == ["PENDING", "SCHEDULED"]


@pytest.mark.parametrize(
    ("jobs", "fields"),
    [
        ([{"job_id": "a", "depends_on": ["a"]}], ["jobs[0].depends_on[0]"]),
        (
            [{"job_id": "a", "depends_on": ["b"]}, {"job_id": "b", "depends_on": ["a"]}],
            ["jobs[0].depends_on", "jobs[1].depends_on"],
        ),
        ([{"depends_on": ["missing"]}], ["jobs[0].depends_on[0]"]),
    ],
    ids=["itself", "circle", "missing"],
)
async def test_what_can_never_run_is_refused(
    door: Door, jobs: list[dict[str, Any]], fields: list[str]
) -> None:
    body = {"jobs": [{"type": "t", "payload": 1, **job} for job in jobs]}
    error = check_error(await door.call("POST", "/v1/jobs/batch", body), 400, "INVALID_REQUEST")
    assert [detail["field"] for detail in error["details"]] == fields
    assert (await door.told("GET", "/v1/stats"))["total"] == 0


@proves("external-api.DependencyType.expect.3", "external-api.JobSubmission.rule.14")
async def test_what_a_submission_says_is_stored(door: Door) -> None:
    parent = await door.submitted()
    child = await door.submitted(
        depends_on=[parent], dependency_type="CHAIN", callback_url="https://example.com/done"
    )
    await completed(door, parent)
    [assigned] = await door.backend.dequeue_jobs("w", (), 1, namespace=door.namespace)
    assert (assigned.id, assigned.depends_on) == (child, (parent,))
    assert (await door.stored(child)).callback_url == "https://example.com/done"


async def test_a_job_of_a_failed_parent_can_be_run_all_the_same(door: Door) -> None:
    parent = await door.failed(ErrorInfo("broken"))
    child = await door.submitted(depends_on=[parent])
    assert (await door.status(child))["state"] == "CANCELLED"
    retried = await door.told("POST", f"/v1/jobs/{child}/retry")
    assert (retried["status"], retried["new_state"]) == ("QUEUED", "RETRYING")
