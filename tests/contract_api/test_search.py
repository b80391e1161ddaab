"""Finding jobs by what they have in common."""

from typing import Any

import pytest
from tests.contract_api.api import Api

from queue_operator.domain.outcome import ErrorCategory
from queue_operator.testing.clauses import proves

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def found(api: Api, **search: Any) -> list[str]:
    answer = await api.post("/jobs/search", search)
    assert answer["total_count"] == len(answer["jobs"])
    return [job["job_id"] for job in answer["jobs"]]


@proves(
    "external-api.JobSearch.rule.1",
    "external-api.JobSearch.rule.3",
    "external-api.JobSearch.rule.4",
    "external-api.JobSearch.expect.4",
    "external-api.JobSearchResult.rule.1",
)
async def test_filters_hold_together(api: Api) -> None:
    await api.submit(job_id="a", type="mail", priority="HIGH", tags={"r": "eu", "t": "1"})
    await api.submit(job_id="b", type="mail", tags={"r": "eu"})
    await api.submit(job_id="c", type="sms", tags={"r": "us"})
    assert await found(api, types=["mail"], order="CREATED_ASC") == ["a", "b"]
    assert await found(api, types=["mail", "sms"], order="CREATED_ASC") == ["a", "b", "c"]
    assert await found(api, priorities=["HIGH"]) == ["a"]
    assert await found(api, tags={"r": "eu", "t": "1"}) == ["a"]
    assert await found(api, types=["sms"], tags={"r": "eu"}) == []
    answer = await api.post("/jobs/search", {"types": ["sms"]})
    assert answer["jobs"] == [await api.status("c")]
    wrongs: tuple[dict[str, Any], ...] = (
        {"types": [""]},
        {"priorities": ["no"]},
        {"tags": {"a=b": "c"}},
        {"colour": "red"},
    )
    for wrong in wrongs:
        [field] = await api.faults("POST", "/jobs/search", wrong)
        assert field.startswith(next(iter(wrong)))


@proves("external-api.JobSearch.rule.2")
async def test_states_are_told_apart_in_any_mix(api: Api) -> None:
    async def ended(name: str, category: ErrorCategory) -> None:
        await api.submit(job_id=name, max_attempts=1, type=name)
        await api.fail(category)

    await api.submit(job_id="COMPLETED")
    await api.complete()
    await ended("DEAD_LETTER", ErrorCategory.TEMPORARY)
    await ended("FAILED", ErrorCategory.PERMANENT)
    await api.submit(job_id="RETRYING", max_attempts=9)
    await api.fail()
    await api.submit(job_id="RUNNING")
    await api.start()
    await api.submit(job_id="SCHEDULED")
    await api.submit(job_id="PENDING", depends_on=["SCHEDULED"])
    await api.submit(job_id="DELAYED", delay=600)
    await api.submit(job_id="CANCELLED")
    await api.post("/jobs/CANCELLED/cancel")
    states = [job["state"] for job in (await api.post("/jobs/search", {}))["jobs"]]
    assert len(set(states)) == 9
    for state in states:
        assert await found(api, states=[state]) == [state]
    for mix in (
        ["PENDING", "FAILED"],
        ["DELAYED", "SCHEDULED", "DEAD_LETTER"],
        ["FAILED", "DEAD_LETTER", "RETRYING"],
        ["RUNNING", "COMPLETED", "PENDING", "DELAYED"],
        states,
    ):
        assert sorted(await found(api, states=mix)) == sorted(mix)
    assert list(await api.faults("POST", "/jobs/search", {"states": ["DONE"]})) == ["states[0]"]


@proves(
    "external-api.JobSearch.rule.5",
    "external-api.JobSearch.rule.6",
    "external-api.JobSearch.rule.7",
)
async def test_times_bound_a_search(api: Api) -> None:
    times = []
    for name in ("a", "b", "c"):
        times.append((await api.submit(job_id=name))["created_at"])
        await api.store.age(0.001)
    times = [(await api.status(name))["created_at"] for name in ("a", "b", "c")]
    assert await found(api, created_after=times[0], order="CREATED_ASC") == ["b", "c"]
    assert await found(api, created_before=times[2], order="CREATED_ASC") == ["a", "b"]
    assert await found(api, created_after=times[0], created_before=times[2]) == ["b"]
    await api.complete()
    updated = (await api.status("c"))["updated_at"]
    assert await found(api, updated_after=updated) == ["a"]
    fields = await api.faults("POST", "/jobs/search", {"created_after": "yesterday"})
    assert list(fields) == ["created_after"]


@proves(
    "external-api.JobSearch.rule.10",
    "external-api.JobSearch.expect.1",
    "external-api.JobSearch.expect.2",
    "external-api.JobSearch.expect.3",
)
async def test_jobs_come_in_order(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.submit(job_id=name)
    await api.complete()
    assert await found(api, order="CREATED_ASC") == ["a", "b", "c"]
    assert await found(api, order="CREATED_DESC") == ["c", "b", "a"]
    assert await found(api) == ["c", "b", "a"]
    assert (await found(api, order="UPDATED_DESC"))[0] == "a"
    assert list(await api.faults("POST", "/jobs/search", {"order": "NEWEST"})) == ["order"]


@proves(
    "external-api.JobSearchResult.rule.2",
    "external-api.JobSearchResult.rule.3",
    "external-api.JobSearchResult.rule.4",
    "external-api.JobSearchResult.expect.1",
    "external-api.Pagination.rule.1",
)
async def test_pages_hold_each_job_once(api: Api) -> None:
    names = [f"j{n:02}" for n in range(25)]
    for name in names:
        await api.submit(job_id=name)
    seen: list[str] = []
    search: dict[str, Any] = {"types": ["t"], "order": "CREATED_ASC", "limit": 10}
    for more in (True, True, False):
        page = await api.post("/jobs/search", search)
        assert (page["total_count"], page["has_more"]) == (25, more)
        assert (page["next_cursor"] is not None) is more
        seen += [job["job_id"] for job in page["jobs"]]
        search["cursor"] = page["next_cursor"]
        # Others come and go while somebody turns the pages.
        await api.submit(type="other", priority="CRITICAL")
        await api.claim(types=["other"])
    assert seen == names


@proves("external-api.JobSearch.rule.8", "external-api.APIError.rule.6")
async def test_a_foreign_cursor_is_refused(api: Api) -> None:
    for _ in range(3):
        await api.submit()
    page = await api.post("/jobs/search", {"limit": 1})
    cursor = page["next_cursor"]
    for wrong in ({"cursor": "abc"}, {"cursor": cursor, "order": "CREATED_ASC"}, {"cursor": "ü"}):
        error = await api.post("/jobs/search", wrong, status=400)
        assert [detail["field"] for detail in error["details"]] == ["cursor"]
        assert error["details"][0]["code"]


@proves("external-api.JobSearch.rule.9", "external-api.Pagination.rule.2")
async def test_a_limit_is_one_to_a_thousand(api: Api) -> None:
    body = {"jobs": [{"type": "t", "payload": 1}] * 150}
    await api.post("/jobs/batch", body, status=201)
    assert len((await api.post("/jobs/search", {}))["jobs"]) == 100
    assert len((await api.get("/jobs"))["jobs"]) == 100
    assert len((await api.post("/jobs/search", {"limit": 1000}))["jobs"]) == 150
    assert len((await api.get("/jobs", limit=1))["jobs"]) == 1
    for wrong in (0, 1001, -1, 1.5, "many"):
        assert list(await api.faults("POST", "/jobs/search", {"limit": wrong})) == ["limit"]
        assert list(await api.faults("GET", "/jobs", limit=wrong)) == ["limit"]
