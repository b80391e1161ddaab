"""Changes to many jobs, by their ids or by a filter."""

import asyncio
from typing import Any

import httpx
import pytest
from tests.audited import Audited
from tests.integration.api.door import READER, TOKEN, Door, check_error
from tests.waiting import until

from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.states import Event
from queue_operator.queue import bulk
from queue_operator.queue.bulk import MOST_JOBS
from queue_operator.testing.clauses import proves

BROKEN = ErrorInfo("broken", ErrorCategory.PERMANENT, "E1")
NOTHING = {"skipped": 0, "failed": 0, "errors": [], "dry_run": False, "has_more": False}


async def states(door: Door, *job_ids: str) -> list[str]:
    return [(await door.status(job_id))["state"] for job_id in job_ids]


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many jobs one request changes, in steps of twenty."""
    monkeypatch.setattr(bulk, "STEP", 20)
    monkeypatch.setattr(bulk, "MOST_JOBS", 400)
    return 400


async def fates(door: Door) -> dict[str, str]:
    """One job each that runs, has completed, has failed, and waits."""
    running = await door.submitted(type="a")
    await door.claimed(running)
    done = await door.submitted(type="a")
    await door.claimed(done)
    await door.settled(done, Event.COMPLETE)
    failed = await door.failed(BROKEN, type="a")
    waiting = await door.submitted(type="a", delay=3600)
    return {"running": running, "done": done, "failed": failed, "waiting": waiting}


@proves("external-api.BatchCancellation.rule.1", "external-api.BatchCancellationResult.rule.5")
async def test_cancel_by_ids_counts_every_fate(door: Door) -> None:
    jobs = await fates(door)
    body = {"job_ids": [*jobs.values(), "missing", jobs["done"]], "reason": "stop", "force": True}
    result = await door.told("POST", "/v1/jobs/cancel", body)
    [error] = result.pop("errors")
    assert (error["job_id"], error["code"]) == ("missing", "NOT_FOUND")
    assert result == {
        "requested": 5,
        "cancelled": 2,
        "skipped": 2,
        "failed": 1,
        "dry_run": False,
        "has_more": False,
    }
    assert await states(door, jobs["waiting"], jobs["failed"]) == ["CANCELLED", "FAILED"]
    shown = await door.status(jobs["running"])
    assert (shown["cancel_requested"], shown["reason"]) == (True, "stop")


@pytest.mark.parametrize(
    ("order", "first"), [(None, [0, 1]), ("CREATED_ASC", [0, 1]), ("CREATED_DESC", [4, 3])]
)
async def test_a_filter_takes_the_first_of_an_order(
    door: Door, order: str | None, first: list[int]
) -> None:
    ids = [await door.submitted(type="a") for _ in range(5)]
    chosen = {"types": ["a"], "limit": 2} | ({"order": order} if order else {})
    for dry_run in (True, False):
        result = await door.told("POST", "/v1/jobs/cancel", {"filter": chosen, "dry_run": dry_run})
        assert (result["requested"], result["cancelled"], result["has_more"]) == (2, 2, True)
    told = await states(door, *ids)
    assert [n for n, state in enumerate(told) if state == "CANCELLED"] == sorted(first)
    deleted = await door.told("POST", "/v1/jobs/delete", {"filter": {**chosen, "limit": 1}})
    assert (deleted["deleted"], deleted["has_more"]) == (1, True)
    gone = await door.call("GET", f"/v1/jobs/{ids[first[0]]}")
    assert gone.status_code == 404
    await door.told("POST", "/v1/jobs/cancel", {"filter": {"all": True}})
    for _ in range(2):
        await door.failed(BROKEN, type="b")
    body = {"filter": {"types": ["b"], "pagination": {"limit": 1}}}
    retried = await door.told("POST", "/v1/jobs/retry", body)
    assert (retried["queued"], retried["has_more"]) == (1, True)


@pytest.mark.parametrize(
    ("path", "chosen", "field"),
    [
        ("cancel", {"limit": 5}, "filter"),
        ("cancel", {"order": "CREATED_ASC"}, "filter"),
        ("cancel", {"all": True, "limit": 0}, "filter.limit"),
        ("cancel", {"all": True, "limit": 10_001}, "filter.limit"),
        ("cancel", {"all": True, "limit": "5"}, "filter.limit"),
        ("cancel", {"all": True, "cursor": "x"}, "filter.cursor"),
        ("delete", {"all": True, "include_total": False}, "filter.include_total"),
        ("retry", {"pagination": {"limit": 5}}, "filter"),
        ("retry", {"all": True, "pagination": {"cursor": "x"}}, "filter.pagination.cursor"),
    ],
)
async def test_what_a_change_cannot_take_of_a_search_is_refused_by_name(
    door: Door, path: str, chosen: dict[str, Any], field: str
) -> None:
    job_id = await door.submitted()
    answer = await door.call("POST", f"/v1/jobs/{path}", {"filter": chosen})
    error = check_error(answer, 400, "INVALID_REQUEST")
    assert [one["field"] for one in error["details"]] == [field]
    assert await states(door, job_id) == ["SCHEDULED"]


@proves("external-api.BatchCancellation.rule.5")
async def test_a_dry_run_counts_the_same_and_changes_nothing(door: Door) -> None:
    jobs = await fates(door)
    before = [await door.stored(one) for one in jobs.values()]
    for path, counted, body in (
        ("cancel", "cancelled", {"job_ids": [*jobs.values(), "missing"]}),
        ("retry", "queued", {"job_ids": [*jobs.values(), "missing"]}),
        ("delete", "deleted", {"job_ids": [*jobs.values(), "missing"]}),
        ("cancel", "cancelled", {"filter": {"types": ["a"]}}),
        ("retry", "queued", {"filter": {"types": ["a"]}}),
        ("delete", "deleted", {"filter": {"types": ["a"]}}),
    ):
        foreseen = await door.told("POST", f"/v1/jobs/{path}", {**body, "dry_run": True})
        assert foreseen["dry_run"]
        by_id = "job_ids" in body
        assert foreseen["requested"] == (5 if by_id else foreseen[counted])
        assert foreseen[counted] == {"cancelled": 2, "queued": 1, "deleted": 2}[counted]
        assert foreseen["failed"] == int(by_id)
    assert [await door.stored(one) for one in jobs.values()] == before


async def test_cancel_by_filter_means_jobs_that_have_not_ended(door: Door) -> None:
    jobs = await fates(door)
    other = await door.submitted(type="b")
    result = await door.told("POST", "/v1/jobs/cancel", {"filter": {"types": ["a"]}})
    assert result == {**NOTHING, "requested": 2, "cancelled": 2}
    again = await door.told("POST", "/v1/jobs/cancel", {"filter": {"types": ["a"]}})
    assert again == {**NOTHING, "requested": 0, "cancelled": 0}
    forced = await door.told("POST", "/v1/jobs/cancel", {"filter": {"all": True}, "force": True})
    assert forced == {**NOTHING, "requested": 2, "cancelled": 2}
    assert await states(door, other, jobs["running"]) == ["CANCELLED", "RUNNING"]


@pytest.mark.parametrize(
    "criteria",
    [
        {"states": ["DELAYED"]},
        {"priorities": ["LOW"]},
        {"tags": {"team": "red"}},
        {"created_after": "2020-01-01T00:00:00Z", "states": ["DELAYED", "COMPLETED"]},
    ],
)
async def test_a_filter_is_a_search(door: Door, criteria: dict[str, Any]) -> None:
    meant = await door.submitted(delay=3600, priority="LOW", tags={"team": "red"})
    other = await door.submitted(tags={"team": "blue"})
    result = await door.told("POST", "/v1/jobs/cancel", {"filter": criteria})
    assert result == {**NOTHING, "requested": 1, "cancelled": 1}
    assert await states(door, meant, other) == ["CANCELLED", "SCHEDULED"]


@proves("external-api.Bulk.expect.1")
async def test_retry_by_filter_means_jobs_that_have_failed_for_good(door: Door) -> None:
    failed = [await door.failed(BROKEN, type="a"), await door.failed(BROKEN, type="a")]
    await door.failed(ErrorInfo("other", ErrorCategory.TIMEOUT, "E2"))
    body = {"filter": {"error_code": "E1"}, "reset_attempts": True, "priority": "LOW", "delay": 60}
    result = await door.told("POST", "/v1/jobs/retry", body)
    assert result == {**NOTHING, "requested": 2, "queued": 2}
    for job_id in failed:
        job = await door.stored(job_id)
        assert (job.attempt, job.priority) == (0, "LOW")
    # They are RETRYING now, which is meant only where it is named.
    assert (await door.told("POST", "/v1/jobs/retry", body))["requested"] == 0
    body["filter"] = {"error_code": "E1", "states": ["RETRYING"]}
    assert (await door.told("POST", "/v1/jobs/retry", body))["queued"] == 2


async def test_retry_by_ids_counts_every_fate(door: Door) -> None:
    jobs = await fates(door)
    result = await door.told("POST", "/v1/jobs/retry", {"job_ids": [*jobs.values(), "missing"]})
    assert [one["job_id"] for one in result.pop("errors")] == ["missing"]
    assert (result["queued"], result["skipped"], result["failed"]) == (1, 3, 1)
    assert await states(door, jobs["failed"]) == ["RETRYING"]


@pytest.mark.parametrize("dry_run", [True, False])
async def test_retry_says_why_others_were_skipped(door: Door, dry_run: bool) -> None:
    jobs = await fates(door)
    ids = [job_id for fate, job_id in jobs.items() if fate != "failed"]
    body = {"job_ids": [*jobs.values(), "missing"], "dry_run": dry_run}
    result = await door.told("POST", "/v1/jobs/retry", body)
    told = {one["job_id"]: one for one in result["not_retriable"]}
    assert set(told) == set(ids)
    assert {one["code"] for one in told.values()} == {"NOT_RETRIABLE"}
    for job_id, state in zip(ids, await states(door, *ids), strict=True):
        assert state in told[job_id]["message"]


@proves("external-api.Bulk.expect.2")
async def test_delete_touches_jobs_that_have_ended_alone(door: Door) -> None:
    jobs = await fates(door)
    result = await door.told("POST", "/v1/jobs/delete", {"job_ids": [*jobs.values(), "missing"]})
    assert [one["job_id"] for one in result.pop("errors")] == ["missing"]
    assert (result["deleted"], result["skipped"], result["failed"]) == (2, 2, 1)
    assert await states(door, jobs["running"], jobs["waiting"]) == ["RUNNING", "DELAYED"]
    await door.failed(BROKEN)
    rest = await door.told("POST", "/v1/jobs/delete", {"filter": {"all": True}})
    assert rest == {**NOTHING, "requested": 1, "deleted": 1}


@proves("external-api.BatchCancellation.rule.2")
@pytest.mark.parametrize("path", ["cancel", "retry", "delete"])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "filter"),
        ({"filter": {}}, "filter"),
        ({"filter": {"all": False}}, "filter"),
        ({"filter": {"types": []}}, "filter"),
        ({"filter": {"all": True}, "job_ids": ["a"]}, "filter"),
        ({"job_ids": []}, "job_ids"),
        ({"job_ids": [""]}, "job_ids[0]"),
        ({"job_ids": ["ok", "a\x00"]}, "job_ids[1]"),
        ({"job_ids": ["a"] * (MOST_JOBS + 1)}, "job_ids"),
        ({"filter": {"states": ["STOPPED"]}}, "filter.states[0]"),
        ({"filter": {"sort": "NAME"}}, "filter.sort"),
        ({"filter": {"types": ["a\x00"]}}, "filter.types"),
        ({"job_ids": ["a"], "dry_run": "yes"}, "dry_run"),
    ],
)
async def test_an_unclear_choice_changes_nothing(
    door: Door, path: str, body: dict[str, Any], field: str
) -> None:
    job_id = await door.submitted()
    answer = await door.call("POST", f"/v1/jobs/{path}", body)
    error = check_error(answer, 400, "INVALID_REQUEST")
    assert {one["field"] for one in error["details"]} == {field}
    assert await states(door, job_id) == ["SCHEDULED"]


@proves("external-api.Bulk.expect.3")
async def test_one_request_goes_so_far_and_says_that_there_are_more(
    door: Door, few_at_a_time: int
) -> None:
    most, count = few_at_a_time, few_at_a_time + 50
    jobs = [Job(id=f"j{n}", type="t", namespace=door.namespace) for n in range(count)]
    await door.backend.enqueue_jobs(jobs)
    body: dict[str, Any] = {"filter": {"types": ["t"]}}
    foreseen = await door.told("POST", "/v1/jobs/cancel", {**body, "dry_run": True})
    assert (foreseen["cancelled"], foreseen["has_more"]) == (most, True)
    first = await door.told("POST", "/v1/jobs/cancel", body)
    assert (first["requested"], first["cancelled"], first["has_more"]) == (most, most, True)
    second = await door.told("POST", "/v1/jobs/cancel", body)
    assert (second["cancelled"], second["has_more"]) == (50, False)
    deleted = await door.told("POST", "/v1/jobs/delete", {"job_ids": [job.id for job in jobs]})
    assert deleted["deleted"] == count


async def test_a_caller_that_leaves_ends_the_work_and_the_audit_tells_how_far_it_went(
    door: Door, few_at_a_time: int, audited: Audited
) -> None:
    jobs = [Job(id=f"j{n}", type="t", namespace=door.namespace) for n in range(few_at_a_time)]
    await door.backend.enqueue_jobs(jobs)
    begun = asyncio.Event()
    cancel = door.queue.cancel_jobs

    async def seen(*args: Any, **options: Any) -> Any:
        begun.set()
        return await cancel(*args, **options)

    door.queue.cancel_jobs = seen  # type: ignore[method-assign]
    try:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=door.url, headers=headers) as leaving:
            call = asyncio.create_task(
                leaving.post(
                    "/v1/jobs/cancel",
                    json={"filter": {"all": True}},
                    params={"namespace": door.namespace},
                )
            )
            await begun.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
    finally:
        del door.queue.cancel_jobs
    await door.queue.unfinished.finished()
    left = (await door.told("GET", "/v1/stats"))["counts"]["INITIAL_PENDING"]
    assert 0 < left < few_at_a_time

    async def told() -> bool:
        await door.queue.backend.ping()
        return bool(audited.lines("result"))

    await until(told)
    before, after = audited.lines()
    assert (before["stage"], before["operation"]) == ("intent", "cancelJobs")
    assert (after["operation"], after["count"]) == ("cancelJobs", few_at_a_time - left)
    assert after["request_id"] == before["request_id"]


async def test_a_filter_needs_the_right_to_list(door: Door) -> None:
    job_id = await door.submitted()
    answer = await door.call_as(READER, "POST", "/v1/jobs/cancel", {"job_ids": [job_id]})
    check_error(answer, 403, "FORBIDDEN")
    managed = await door.call_as("manages", "POST", "/v1/jobs/cancel", {"filter": {"all": True}})
    check_error(managed, 403, "FORBIDDEN")
    assert await states(door, job_id) == ["SCHEDULED"]
    by_id = await door.call_as("manages", "POST", "/v1/jobs/cancel", {"job_ids": [job_id]})
    assert by_id.json()["cancelled"] == 1


@pytest.mark.parametrize(
    ("path", "criteria", "field"),
    [
        ("cancel", {"types": ["x" * 300]}, "filter.types"),
        ("cancel", {"tags": {"a=b": "c"}}, "filter.tags.a=b"),
        ("delete", {"created_after": "9999-01-01T00:00:00Z"}, "filter.created_after"),
        ("retry", {"error_code": "x" * 300}, "filter.error_code"),
        (
            "retry",
            {"time_range": {"before": "9999-01-01T00:00:00Z"}},
            "filter.time_range.before",
        ),
    ],
)
async def test_a_fault_of_a_filter_is_named_as_it_was_written(
    door: Door, path: str, criteria: dict[str, Any], field: str
) -> None:
    answer = await door.call("POST", f"/v1/jobs/{path}", {"filter": criteria})
    error = check_error(answer, 400, "INVALID_REQUEST")
    assert [one["field"] for one in error["details"]] == [field]
