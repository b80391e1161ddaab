"""Jobs by what they have in common, page by page."""

import base64
import json
import math
from typing import Any

import pytest
from tests.integration.api.door import Door, check_error
from tests.integration.api.phases import every_phase

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.testing.clauses import proves

BROKEN = ErrorInfo("broken", ErrorCategory.PERMANENT)


def ids(result: dict[str, Any]) -> list[str]:
    return [job["job_id"] for job in result["jobs"]]


@proves("external-api.JobSearch.rule.2", "external-api.JobSearchResult.rule.1")
async def test_any_mix_of_states_can_be_asked_for(door: Door) -> None:
    jobs = await every_phase(door)
    for state, job_id in jobs.items():
        found = await door.told("POST", "/v1/jobs/search", {"states": [state]})
        assert ids(found) == [job_id]
        assert found["jobs"][0] == await door.status(job_id)
        assert found["jobs"][0]["state"] == state
    for mix in (["DELAYED", "FAILED", "RUNNING"], ["PENDING", "SCHEDULED", "DEAD_LETTER"]):
        found = await door.told("POST", "/v1/jobs/search", {"states": mix})
        assert set(ids(found)) == {jobs[state] for state in mix}
        assert found["total_count"] == 3
        listed = await door.told("GET", "/v1/jobs", state=mix)
        assert listed == found


@proves("external-api.JobSearch.expect.4")
@pytest.mark.parametrize(
    ("criteria", "params"),
    [
        ({"types": ["a"]}, {"type": "a"}),
        ({"priorities": ["HIGH", "LOW"]}, {"priority": ["HIGH", "LOW"]}),
        ({"tags": {"team": "red", "bare": ""}}, {"tag": ["team=red", "bare"]}),
        (
            {"types": ["a", "b"], "tags": {"team": "red"}, "priorities": ["HIGH"]},
            {"type": ["a", "b"], "tag": "team=red", "priority": "HIGH"},
        ),
        ({"created_after": "2020-01-01T00:00:00Z", "types": ["a"]}, {"type": "a"}),
        ({"created_before": "2199-01-01T00:00:00+01:00", "types": ["a"]}, {"type": "a"}),
        ({"updated_after": "2020-01-01T00:00:00Z", "types": ["a"]}, {"type": "a"}),
    ],
)
async def test_filters_hold_together(
    door: Door, criteria: dict[str, Any], params: dict[str, Any]
) -> None:
    meant = await door.submitted(type="a", priority="HIGH", tags={"team": "red", "bare": ""})
    await door.submitted(type="b", tags={"team": "blue"})
    await door.submitted(type="c", tags={"bare": "", "x": "red"})
    found = await door.told("POST", "/v1/jobs/search", criteria)
    assert ids(found) == [meant]
    assert await door.told("GET", "/v1/jobs", **params) == found


@proves("external-api.JobSearch.rule.5", "external-api.JobSearch.rule.6")
async def test_times_are_bounds(door: Door) -> None:
    first = await door.submitted()
    second = await door.submitted()
    at = (await door.status(first))["created_at"]
    after = await door.told("POST", "/v1/jobs/search", {"created_after": at})
    assert ids(after) == [second]
    listed = await door.told(
        "GET", "/v1/jobs", created_before=(await door.status(second))["created_at"]
    )
    assert ids(listed) == [first]


@proves("external-api.JobSearch.rule.10", "external-api.Pagination.rule.1")
@pytest.mark.parametrize("order", ["CREATED_ASC", "CREATED_DESC", "UPDATED_DESC", None])
async def test_pages_hold_each_job_once(door: Door, order: str | None) -> None:
    jobs = [await door.submitted() for _ in range(7)]
    asked = {"limit": 3} | ({"order": order} if order else {})
    pages, cursor = [], None
    while True:
        page = await door.told("POST", "/v1/jobs/search", {**asked, "cursor": cursor})
        pages.append(ids(page))
        cursor = page["next_cursor"]
        assert page["has_more"] == (cursor is not None)
        assert (page["total_count"], page["total_is_exact"]) == (7, True)
        if cursor is None:
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    found = [job_id for page in pages for job_id in page]
    assert found == (jobs if order == "CREATED_ASC" else jobs[::-1])


async def test_a_total_can_be_left_out(door: Door) -> None:
    await door.submitted()
    for answer in (
        await door.told("POST", "/v1/jobs/search", {"include_total": False}),
        await door.told("GET", "/v1/jobs", include_total="false"),
    ):
        assert set(answer) == {"jobs", "next_cursor", "has_more"}


@proves("external-api.JobSearch.rule.8", "external-api.Pagination.rule.2")
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cursor": "nonsense"}, "cursor"),
        ({"cursor": "x" * 5000}, "cursor"),
        ({"cursor": "é\u0000"}, "cursor"),
        ({"cursor": 5}, "cursor"),
        ({"limit": 0}, "limit"),
        ({"limit": -1}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": 10**30}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"limit": True}, "limit"),
        ({"order": "NEWEST"}, "order"),
        ({"states": ["INITIAL_PENDING"]}, "states[0]"),
        ({"states": "RUNNING"}, "states"),
        ({"priorities": ["high"]}, "priorities[0]"),
        ({"types": [""]}, "types[0]"),
        ({"types": ["x" * 256]}, "types"),
        ({"tags": {"a=b": "c"}}, "tags.a=b"),
        ({"tags": {"a": "x" * 200}}, "tags"),
        ({"tags": {str(n): "" for n in range(40)}}, "tags"),
        ({"created_after": "yesterday"}, "created_after"),
        ({"created_after": "2024-01-01T00:00:00"}, "created_after"),
        ({"created_before": 1700000000}, "created_before"),
        ({"updated_after": "9999-12-31T23:59:59-14:00"}, "updated_after"),
        ({"status": ["RUNNING"]}, "status"),
    ],
)
async def test_a_faulty_search_is_named(door: Door, body: dict[str, Any], field: str) -> None:
    answer = await door.call("POST", "/v1/jobs/search", body)
    error = check_error(answer, 400, "INVALID_REQUEST")
    assert [one["field"] for one in error["details"]] == [field]


@pytest.mark.parametrize(
    ("params", "fields"),
    [
        ({"limit": "-1", "order": "x", "foo": "1"}, {"limit", "order", "foo"}),
        ({"limit": ["1", "2"]}, {"limit"}),
        ({"state": ["RUNNING", "running"]}, {"state[1]"}),
        ({"type": "a\x00b"}, {"type"}),
        ({"tag": "x" * 200}, {"tag"}),
        ({"created_after": "2024-01-01"}, {"created_after"}),
        ({"include_total": "perhaps"}, {"include_total"}),
        ({"cursor": "bm9wZQ"}, {"cursor"}),
    ],
)
async def test_a_faulty_list_is_named(door: Door, params: dict[str, Any], fields: set[str]) -> None:
    error = check_error(await door.call("GET", "/v1/jobs", **params), 400, "INVALID_REQUEST")
    assert {one["field"] for one in error["details"]} == fields


async def test_a_cursor_is_good_for_its_search_only(door: Door) -> None:
    for _ in range(3):
        await door.failed(ErrorInfo("x"))
    cursor = (await door.told("POST", "/v1/jobs/search", {"limit": 1}))["next_cursor"]
    other = {"cursor": cursor, "order": "CREATED_ASC"}
    for path, body, field in (
        ("/v1/jobs/search", other, "cursor"),
        ("/v1/failures/search", {"pagination": {"cursor": cursor}}, "pagination.cursor"),
    ):
        error = check_error(await door.call("POST", path, body), 400, "INVALID_REQUEST")
        assert [one["field"] for one in error["details"]] == [field]
    elsewhere = await door.call(
        "POST", "/v1/jobs/search", {"cursor": cursor}, namespace="elsewhere"
    )
    check_error(elsewhere, 400, "INVALID_REQUEST")


async def test_other_namespaces_are_not_searched(door: Door) -> None:
    await door.submitted()
    found = await door.told("GET", "/v1/jobs", namespace=f"{door.namespace}-2")
    assert (found["jobs"], found["total_count"], found["has_more"]) == ([], 0, False)


async def test_a_forged_cursor_is_a_fault_of_the_request(door: Door) -> None:
    """Infinity is a number that JSON as Python reads it may hold, and no number of a job."""
    for _ in range(2):
        await door.failed(BROKEN)
    jobs = await door.told("POST", "/v1/jobs/search", {"limit": 1})
    failures = await door.told("POST", "/v1/failures/search", {"pagination": {"limit": 1}})
    of_jobs, of_failures = (forged(page["next_cursor"]) for page in (jobs, failures))
    for answer, field in (
        (await door.call("POST", "/v1/jobs/search", {"cursor": of_jobs}), "cursor"),
        (await door.call("GET", "/v1/jobs", cursor=of_jobs), "cursor"),
        (
            await door.call("POST", "/v1/failures/search", {"pagination": {"cursor": of_failures}}),
            "pagination.cursor",
        ),
    ):
        [detail] = check_error(answer, 400, "INVALID_REQUEST")["details"]
        assert detail["field"] == field


def forged(cursor: str) -> str:
    padded = cursor + "=" * (-len(cursor) % 4)
    digest, at, _ = json.loads(base64.urlsafe_b64decode(padded))
    return base64.urlsafe_b64encode(json.dumps([digest, at, math.inf]).encode()).decode()
