"""Why jobs failed, one and many, and trying them again."""

from datetime import datetime
from typing import Any

import pytest
from tests.contract_api.api import Api

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT_ONCE = {"strategy": "CONSTANT", "initial_delay": 0}


@proves(
    "external-api.FailureQuery.rule.1",
    "external-api.FailureDetails.rule.1",
    "external-api.FailureDetails.rule.2",
    "external-api.FailureDetails.rule.3",
    "external-api.FailureDetails.rule.4",
)
async def test_a_failed_job_says_why(api: Api) -> None:
    ends = {"DEAD_LETTER": await api.failed_for_good(type="mine")}
    ends["FAILED"] = await api.submitted(type="mine")
    await api.fail(ErrorCategory.PERMANENT)
    ends["RETRYING"] = await api.submitted(type="mine")
    await api.fail()
    for state, job_id in ends.items():
        details = await api.get(f"/jobs/{job_id}/failure")
        assert (details["job_id"], details["type"]) == (job_id, "mine")
        assert (details["final_state"], details["total_attempts"]) == (state, 1)
    done = await api.submitted()
    await api.complete()
    waiting = await api.submitted()
    for missing in ("missing", done, waiting):
        error = await api.get(f"/jobs/{missing}/failure", status=404)
        assert error["code"] == "NOT_FOUND"
        assert missing in error["message"]


@proves(
    "external-api.FailureDetails.rule.5",
    "external-api.FailureInfo.rule.1",
    "external-api.FailureInfo.rule.2",
    "external-api.FailureInfo.rule.3",
)
async def test_the_last_failure_is_told(api: Api) -> None:
    job_id = await api.submitted(backoff=AT_ONCE, max_attempts=9)
    await api.fail()
    run = await api.start()
    await api.store.age(3)
    await api.settle(run, Event.FAIL, error=ErrorInfo("boom"))
    failure = (await api.get(f"/jobs/{job_id}/failure"))["failure"]
    assert failure["attempt"] == 2
    assert 3000 <= failure["duration_ms"] < 60_000
    shown = await api.status(job_id)
    told, changed = (datetime.fromisoformat(t) for t in (failure["timestamp"], shown["updated_at"]))
    assert told == changed


@proves(
    "external-api.FailureInfo.rule.4",
    "external-api.FailureInfo.rule.5",
    "external-api.FailureInfo.rule.6",
    "external-api.FailureInfo.rule.7",
    "external-api.FailureInfo.rule.8",
)
async def test_a_failure_has_its_diagnostics(api: Api) -> None:
    job_id = await api.submitted(max_attempts=1)
    await api.fail(
        ErrorCategory.TIMEOUT, code="SLOW", stack_trace="at line 1", context={"host": "db-1"}
    )
    failure = (await api.get(f"/jobs/{job_id}/failure"))["failure"]
    assert (failure["category"], failure["code"]) == ("TIMEOUT", "SLOW")
    assert failure["message"] == "boom"
    assert failure["stack_trace"] == "at line 1"
    assert failure["context"] == {"host": "db-1"}


@proves("external-api.FailureInfo.rule.9", "external-api.FailureInfo.rule.10")
async def test_a_failure_names_its_worker(api: Api) -> None:
    job_id = await api.failed_for_good()
    failure = (await api.get(f"/jobs/{job_id}/failure"))["failure"]
    assert (failure["worker_id"], failure["host"]) == ("worker-1", "host-1")
    [listed] = (await api.post("/failures/search", {}))["failures"]
    assert listed["failure"] == failure


@proves(
    "external-api.FailureInfo.rule.1",
    "external-api.FailureInfo.rule.9",
    "external-api.FailureInfo.rule.10",
)
async def test_no_other_worker_is_blamed_for_a_failure(api: Api) -> None:
    """The job's record tells of the newest assignment only."""
    blamed = ("attempt", "duration_ms", "worker_id", "host")

    async def listed() -> list[Any]:
        [found] = (await api.post("/failures/search", {}))["failures"]
        return [found["failure"][name] for name in blamed]

    job_id = await api.submitted(backoff=AT_ONCE, max_attempts=9)
    await api.fail()
    told = await listed()
    assert (told[0], told[2:]) == (1, ["worker-1", "host-1"])
    await api.settle(await api.start(worker=2), Event.HAND_BACK)
    assert await listed() == [1, None, None, None]
    await api.settle(await api.start(worker=2), Event.LOSE)
    await api.settle(await api.start(worker=2), Event.HAND_BACK)
    assert await listed() == [None, None, None, None]
    details = await api.get(f"/jobs/{job_id}/failure")
    assert (details["failure"]["attempt"], details["failure"]["worker_id"]) == (1, "worker-1")
    await api.post(f"/jobs/{job_id}/cancel")
    await api.failed_for_good()
    [mine] = (await api.post("/failures/search", {}))["failures"]
    await api.post(f"/jobs/{mine['job_id']}/retry", {"reset_attempts": True})
    assert (await listed())[0] is None
    assert (await listed())[2:] == ["worker-1", "host-1"]


@proves(
    "external-api.FailureQuery.rule.2",
    "external-api.FailureDetails.rule.6",
    "external-api.AttemptInfo.rule.1",
    "external-api.AttemptInfo.rule.2",
    "external-api.AttemptInfo.rule.3",
)
async def test_every_attempt_is_told(api: Api) -> None:
    job_id = await api.submitted(backoff=AT_ONCE, max_attempts=9)
    await api.fail()
    await api.fail()
    await api.start()
    assert "attempts" not in await api.get(f"/jobs/{job_id}/failure")
    details = await api.get(f"/jobs/{job_id}/failure", include_all_attempts="true")
    one, two, three = details["attempts"]
    assert [one["attempt"], two["attempt"], three["attempt"]] == [1, 2, 3]
    for attempt in (one, two, three):
        assert (attempt["worker_id"], attempt["host"]) == ("worker-1", "host-1")
    times = [one["started_at"], one["finished_at"], two["started_at"], three["started_at"]]
    parsed = [datetime.fromisoformat(time) for time in times]
    assert parsed == sorted(parsed)
    assert (three["finished_at"], three["result"]) == (None, None)


@proves(
    "external-api.AttemptInfo.rule.4",
    "external-api.AttemptInfo.rule.5",
    "external-api.AttemptInfo.expect.1",
    "external-api.AttemptInfo.expect.2",
    "external-api.AttemptInfo.expect.3",
)
async def test_attempts_have_results(api: Api) -> None:
    job_id = await api.submitted(backoff=AT_ONCE, max_attempts=9)
    await api.fail()
    await api.fail(ErrorCategory.TIMEOUT)
    await api.complete()
    details = await api.get(f"/jobs/{job_id}/failure", include_all_attempts="true")
    assert [one["result"] for one in details["attempts"]] == ["FAILURE", "TIMEOUT", "SUCCESS"]
    assert ["failure" in one for one in details["attempts"]] == [True, True, False]


@proves("external-api.AttemptInfo.expect.4")
async def test_an_attempt_that_was_stopped(api: Api) -> None:
    job_id = await api.submitted(backoff=AT_ONCE, max_attempts=9)
    await api.fail()
    run = await api.start()
    await api.post(f"/jobs/{job_id}/cancel")
    await api.settle(run, Event.ACK_EXECUTING)
    details = await api.get(f"/jobs/{job_id}/failure", include_all_attempts="true")
    assert [one["result"] for one in details["attempts"]] == ["FAILURE", "CANCELLED"]


@pytest.mark.parametrize(
    ("event", "cancelled"),
    [
        (Event.MARK_UNKNOWN_STOPPED, False),
        (Event.MARK_UNKNOWN_STOPPED, True),
        (Event.ACK_UNKNOWN, True),
        (Event.LOSE, True),
    ],
)
@proves("external-api.AttemptInfo.rule.5", "external-api.AttemptInfo.expect.2")
async def test_an_outcome_that_nobody_knows_is_no_cancellation(
    api: Api, event: Event, cancelled: bool
) -> None:
    job_id = await api.submitted(backoff=AT_ONCE, max_attempts=9)
    await api.fail()
    run = await api.start()
    if cancelled:
        await api.post(f"/jobs/{job_id}/cancel")
    await api.settle(run, event)
    details = await api.get(f"/jobs/{job_id}/failure", include_all_attempts="true")
    newest = details["attempts"][-1]
    assert (newest["result"], newest["failure"]["code"]) == ("FAILURE", "OUTCOME_UNKNOWN")


async def failures(api: Api) -> None:
    """One of each kind."""
    await api.submit(job_id="dead", max_attempts=1, type="mail")
    await api.fail(code="A")
    await api.submit(job_id="failed", type="mail")
    await api.fail(ErrorCategory.PERMANENT, code="B")
    await api.submit(job_id="retrying", type="sms", backoff={"initial_delay": 600}, max_attempts=9)
    await api.fail(ErrorCategory.TIMEOUT, code="A")
    await api.submit(job_id="well")
    await api.complete()


async def found(api: Api, **search: Any) -> list[str]:
    answer = await api.post("/failures/search", search)
    assert answer["total_count"] == len(answer["failures"])
    return [one["job_id"] for one in answer["failures"]]


@proves(
    "external-api.FailureSearch.rule.1",
    "external-api.FailureSearch.expect.1",
    "external-api.FailureSearch.expect.2",
    "external-api.FailureSearch.expect.3",
    "external-api.FailureSearchResult.rule.1",
)
async def test_failures_are_found_by_their_state(api: Api) -> None:
    await failures(api)
    assert await found(api) == ["retrying", "failed", "dead"]
    assert await found(api, states=["FAILED"]) == ["failed"]
    assert await found(api, states=["DEAD_LETTER"]) == ["dead"]
    assert await found(api, states=["RETRYING"]) == ["retrying"]
    assert await found(api, states=["FAILED", "RETRYING"]) == ["retrying", "failed"]
    wrong = {"states": ["COMPLETED"]}
    assert list(await api.faults("POST", "/failures/search", wrong)) == ["states[0]"]


@proves(
    "external-api.FailureSearch.rule.2",
    "external-api.FailureSearch.rule.3",
    "external-api.FailureSearch.rule.4",
    "external-api.FailureSearch.rule.5",
)
async def test_failures_are_found_by_what_they_are(api: Api) -> None:
    await failures(api)
    assert await found(api, failure_category=["TEMPORARY", "TIMEOUT"]) == ["retrying", "dead"]
    assert await found(api, types=["mail"]) == ["failed", "dead"]
    assert await found(api, error_code="A", types=["mail"]) == ["dead"]
    at = (await api.get("/jobs/failed/failure"))["failure"]["timestamp"]
    assert await found(api, time_range={"after": at}) == ["retrying"]
    assert await found(api, time_range={"before": at}) == ["dead"]
    wrongs = ({"failure_category": ["BAD"]}, {"types": [""]}, {"time_range": {"after": "x"}})
    for wrong in wrongs:
        [field] = await api.faults("POST", "/failures/search", dict(wrong))
        assert field.startswith(next(iter(wrong)))


@proves(
    "external-api.FailureSearchResult.rule.2",
    "external-api.FailureSearchResult.rule.4",
    "external-api.FailureSearchResult.rule.5",
    "external-api.FailureSearchResult.rule.6",
)
async def test_failures_are_counted(api: Api) -> None:
    await failures(api)
    answer = await api.post("/failures/search", {"pagination": {"limit": 1}})
    assert answer["total_count"] == 3
    counts = {name: n for name, n in answer["by_category"].items() if n}
    assert counts == {"TEMPORARY": 1, "PERMANENT": 1, "TIMEOUT": 1}
    assert answer["by_code"] == {"A": 2, "B": 1}
    assert answer["by_type"] == {"mail": 2, "sms": 1}


@proves("external-api.FailureSearch.rule.6", "external-api.FailureSearchResult.rule.3")
async def test_failures_come_in_pages(api: Api) -> None:
    await failures(api)
    seen, cursor = [], None
    for _ in range(3):
        page = {"limit": 1} if cursor is None else {"limit": 1, "cursor": cursor}
        answer = await api.post("/failures/search", {"pagination": page})
        seen += [one["job_id"] for one in answer["failures"]]
        cursor = answer["next_cursor"]
    assert (seen, cursor) == (["retrying", "failed", "dead"], None)
    for field, wrong in (("limit", 0), ("limit", 1001), ("cursor", "abc")):
        body = {"pagination": {field: wrong}}
        assert list(await api.faults("POST", "/failures/search", body)) == [f"pagination.{field}"]


@proves(
    "external-api.RetryRequest.rule.1",
    "external-api.RetryResult.rule.1",
    "external-api.RetryResult.rule.3",
    "external-api.RetryResult.expect.1",
)
async def test_failed_jobs_are_tried_again(api: Api) -> None:
    await failures(api)
    parent = await api.submitted()
    skipped = await api.submitted(depends_on=[parent])
    await api.post(f"/jobs/{parent}/cancel")
    for job_id in ("dead", "failed", "retrying", skipped):
        answer = await api.post(f"/jobs/{job_id}/retry")
        assert answer["job_id"] == job_id
        assert (answer["status"], answer["new_state"]) == ("QUEUED", "RETRYING")
    assert len(await api.claim(9)) == 4
    assert (await api.post("/jobs/missing/retry", status=404))["code"] == "NOT_FOUND"


@proves("external-api.RetryResult.rule.2")
async def test_a_retry_has_one_of_three_ends(api: Api) -> None:
    """Whatever the job is doing; NOT_FOUND is told of a single job by its own status."""
    await failures(api)
    parent = await api.submitted()
    jobs = {"DEAD_LETTER": "dead", "FAILED": "failed", "RETRYING": "retrying", "COMPLETED": "well"}
    jobs["PENDING"] = await api.submitted(depends_on=[parent])
    jobs["RUNNING"] = (await api.start()).job_id
    jobs["DELAYED"] = await api.submitted(delay=60)
    jobs["CANCELLED"] = await api.submitted()
    await api.post(f"/jobs/{jobs['CANCELLED']}/cancel")
    jobs["SCHEDULED"] = await api.submitted()
    queued = {"DEAD_LETTER", "FAILED", "RETRYING"}
    for state, job_id in jobs.items():
        assert await api.state(job_id) == state
        answer = await api.post(f"/jobs/{job_id}/retry")
        told = ("QUEUED", "RETRYING") if state in queued else ("NOT_RETRIABLE", state)
        assert (answer["status"], answer["new_state"]) == told
    assert (await api.post("/jobs/missing/retry", status=404))["code"] == "NOT_FOUND"
    answer = await api.post("/jobs/retry", {"job_ids": ["missing"]})
    assert [one["code"] for one in answer["errors"]] == ["NOT_FOUND"]


@proves("external-api.RetryResult.expect.2", "external-api.RetryResult.expect.3")
async def test_other_jobs_are_not(api: Api) -> None:
    done = await api.submitted()
    await api.complete()
    cancelled = await api.submitted()
    await api.post(f"/jobs/{cancelled}/cancel")
    waiting = await api.submitted()
    for job_id, state in ((done, "COMPLETED"), (cancelled, "CANCELLED"), (waiting, "SCHEDULED")):
        answer = await api.post(f"/jobs/{job_id}/retry")
        assert (answer["status"], answer["new_state"]) == ("NOT_RETRIABLE", state)
    answer = await api.post("/jobs/retry", {"job_ids": [done, "missing"]})
    assert (answer["queued"], answer["skipped"], answer["failed"]) == (0, 1, 1)
    assert [(one["job_id"], one["code"]) for one in answer["errors"]] == [("missing", "NOT_FOUND")]


@proves("external-api.RetryRequest.rule.2")
async def test_attempts_are_counted_on_or_anew(api: Api) -> None:
    job_id = await api.submitted(max_attempts=2, backoff=AT_ONCE)
    await api.fail()
    await api.fail()
    await api.post(f"/jobs/{job_id}/retry")
    await api.fail()
    assert await api.state(job_id) == "DEAD_LETTER"
    await api.post(f"/jobs/{job_id}/retry", {"reset_attempts": True})
    await api.fail()
    assert await api.state(job_id) == "RETRYING"
    assert (await api.status(job_id))["attempt"] == 1


@proves(
    "external-api.RetryRequest.rule.3",
    "external-api.RetryRequest.rule.4",
    "external-api.RetryResult.rule.4",
)
async def test_a_retry_may_be_later_and_more_urgent(api: Api) -> None:
    job_id = await api.failed_for_good()
    answer = await api.post(f"/jobs/{job_id}/retry", {"priority": "CRITICAL", "delay": "PT1M"})
    assert answer["new_state"] == "RETRYING"
    shown = await api.status(job_id)
    assert shown["priority"] == "CRITICAL"
    assert shown["scheduled_for"] == answer["scheduled_for"]
    assert await api.claim() == []
    await api.later(61)
    assert [run.job_id for run in await api.claim()] == [job_id]
    for field, wrong in (("priority", "no"), ("delay", -1), ("reset_attempts", "yes")):
        assert list(await api.faults("POST", f"/jobs/{job_id}/retry", {field: wrong})) == [field]


@proves("external-api.Bulk.expect.1")
async def test_failures_are_tried_again_by_a_filter(api: Api) -> None:
    await failures(api)
    chosen = {"filter": {"types": ["mail"]}, "priority": "HIGH", "reset_attempts": True}
    dry = await api.post("/jobs/retry", {**chosen, "dry_run": True})
    assert (dry["requested"], dry["queued"], dry["dry_run"]) == (2, 2, True)
    assert await api.state("dead") == "DEAD_LETTER"
    answer = await api.post("/jobs/retry", chosen)
    assert (answer["requested"], answer["queued"], answer["has_more"]) == (2, 2, False)
    shown = [await api.status(name) for name in ("dead", "failed")]
    assert [(one["state"], one["priority"]) for one in shown] == [("RETRYING", "HIGH")] * 2
    assert await api.faults("POST", "/jobs/retry", {"filter": {}})
    assert await api.faults("POST", "/jobs/retry", {"filter": {"states": ["RUNNING"]}})


@proves("external-api.Bulk.expect.2")
async def test_ended_jobs_are_deleted(api: Api) -> None:
    await failures(api)
    waiting = await api.submitted(type="mail")
    answer = await api.post("/jobs/delete", {"job_ids": ["dead", waiting, "missing"]})
    told = [answer[name] for name in ("requested", "deleted", "skipped", "failed")]
    assert told == [3, 1, 1, 1]
    await api.get("/jobs/dead", status=404)
    dry = await api.post("/jobs/delete", {"filter": {"types": ["mail"]}, "dry_run": True})
    assert (dry["deleted"], await api.state("failed")) == (1, "FAILED")
    answer = await api.post("/jobs/delete", {"filter": {"types": ["mail"]}})
    assert answer["deleted"] == 1
    assert await api.state(waiting) == "SCHEDULED"
    assert (await api.call("DELETE", f"/jobs/{waiting}", status=409))["code"] == "INVALID_REQUEST"
    await api.call("DELETE", "/jobs/well", status=204)
    await api.call("DELETE", "/jobs/well", status=404)


@proves("external-api.Bulk.expect.3")
async def test_each_job_is_changed_once_by_one_request(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was dead waits for its retry then, which the same filter finds too."""
    await failures(api)
    every = {"filter": {"states": ["FAILED", "DEAD_LETTER", "RETRYING"]}}
    answer = await api.post("/jobs/retry", every)
    assert (answer["requested"], answer["queued"], answer["has_more"]) == (3, 3, False)
    monkeypatch.setattr("queue_operator.queue.bulk.MOST_JOBS", 2)
    answer = await api.post("/jobs/retry", every)
    assert (answer["requested"], answer["queued"], answer["has_more"]) == (2, 2, True)
