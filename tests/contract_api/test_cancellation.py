"""Cancelling jobs, one and many."""

import pytest
from tests.contract_api.api import Api

from queue_operator.backends.protocol import CancelInbox
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

pytestmark = pytest.mark.asyncio(loop_scope="session")


@proves(
    "external-api.CancellationSemantics.rule.1",
    "external-api.CancellationResult.rule.1",
    "external-api.CancellationResult.rule.3",
    "external-api.CancellationResult.expect.1",
)
async def test_what_waits_is_cancelled_at_once(api: Api) -> None:
    retrying = await api.submitted()
    await api.fail()
    parent = await api.submitted()
    waiting = {
        "RETRYING": retrying,
        "PENDING": await api.submitted(depends_on=[parent]),
        "DELAYED": await api.submitted(delay=60),
        "SCHEDULED": parent,
    }
    for state, job_id in waiting.items():
        answer = await api.post(f"/jobs/{job_id}/cancel")
        assert answer["job_id"] == job_id
        assert (answer["status"], answer["previous_state"]) == ("CANCELLED", state)
        assert await api.state(job_id) == "CANCELLED"
    assert await api.claim(5) == []


@proves(
    "external-api.CancellationSemantics.rule.2",
    "external-api.CancellationSemantics.rule.3",
    "external-api.CancellationRequest.rule.3",
    "external-api.CancellationResult.expect.4",
)
async def test_a_running_job_is_asked(api: Api) -> None:
    assert isinstance(api.backend, CancelInbox)
    for body, force in ((None, False), ({"force": True}, True)):
        job_id = await api.submitted()
        run = await api.start()
        answer = await api.post(f"/jobs/{job_id}/cancel", body)
        assert (answer["status"], answer["previous_state"]) == ("CANCEL_REQUESTED", "RUNNING")
        asked = (await api.backend.pending_cancels(["session-1"])).requests
        assert [one.force for one in asked if one.job_id == job_id] == [force]
        again = await api.post(f"/jobs/{job_id}/cancel", {"force": True})
        assert again["status"] == "CANCEL_REQUESTED"
        await api.settle(run, Event.ACK_EXECUTING)
    for wrong in ("yes", 1, None):
        fields = await api.faults("POST", f"/jobs/{job_id}/cancel", {"force": wrong})
        assert list(fields) == ["force"]


@proves(
    "external-api.CancellationSemantics.rule.4",
    "external-api.CancellationResult.rule.4",
    "external-api.CancellationResult.expect.2",
)
async def test_what_has_ended_stays(api: Api) -> None:
    done = await api.submitted()
    await api.complete()
    failed = await api.submitted()
    await api.fail(ErrorCategory.PERMANENT)
    ended = {"COMPLETED": done, "FAILED": failed, "DEAD_LETTER": await api.failed_for_good()}
    for state, job_id in ended.items():
        answer = await api.post(f"/jobs/{job_id}/cancel", {"force": True})
        assert (answer["status"], answer["previous_state"]) == ("ALREADY_COMPLETE", state)
        assert state in answer["message"]
        assert await api.state(job_id) == state


@proves("external-api.CancellationResult.rule.2")
async def test_a_cancel_has_one_of_four_ends(api: Api) -> None:
    """Whatever the job is doing; NOT_FOUND is told of a single job by its own status."""
    parent = await api.submitted()
    jobs = {"PENDING": await api.submitted(depends_on=[parent])}
    jobs["RUNNING"] = (await api.start()).job_id
    jobs["DELAYED"] = await api.submitted(delay=60)
    jobs["RETRYING"] = await api.submitted(backoff={"strategy": "CONSTANT", "initial_delay": 600})
    await api.fail()
    jobs["COMPLETED"] = await api.submitted()
    await api.complete()
    jobs["FAILED"] = await api.submitted()
    await api.fail(ErrorCategory.PERMANENT)
    jobs["DEAD_LETTER"] = await api.failed_for_good()
    jobs["CANCELLED"] = await api.submitted()
    await api.post(f"/jobs/{jobs['CANCELLED']}/cancel")
    jobs["SCHEDULED"] = await api.submitted()
    wanted = {"RUNNING": "CANCEL_REQUESTED"}
    wanted |= dict.fromkeys(("PENDING", "DELAYED", "RETRYING", "SCHEDULED"), "CANCELLED")
    wanted |= dict.fromkeys(("COMPLETED", "FAILED", "DEAD_LETTER", "CANCELLED"), "ALREADY_COMPLETE")
    for state, job_id in jobs.items():
        assert await api.state(job_id) == state
        answer = await api.post(f"/jobs/{job_id}/cancel")
        assert (answer["status"], answer["previous_state"]) == (wanted[state], state)
    assert (await api.post("/jobs/missing/cancel", status=404))["code"] == "NOT_FOUND"
    answer = await api.post("/jobs/cancel", {"job_ids": ["missing"]})
    assert [one["code"] for one in answer["errors"]] == ["NOT_FOUND"]


@proves("external-api.CancellationRequest.rule.2")
async def test_the_reason_stays_with_the_job_and_reaches_the_worker(api: Api) -> None:
    assert isinstance(api.backend, CancelInbox)
    reason = "out of stock: größe 7\nsecond line"
    waiting = await api.submitted(delay=60)
    running = await api.submitted()
    run = await api.start()
    for job_id in (waiting, running):
        await api.post(f"/jobs/{job_id}/cancel", {"reason": reason})
        assert (await api.status(job_id))["reason"] == reason
    requests = (await api.backend.pending_cancels(["session-1"])).requests
    assert [one.reason for one in requests if one.job_id == running] == [reason]
    await api.settle(run, Event.ACK_EXECUTING)
    for job_id in (waiting, running):
        shown = await api.status(job_id, include_history="true")
        assert (shown["state"], shown["reason"]) == ("CANCELLED", reason)
        assert reason in [one["reason"] for one in shown["history"]]


@proves("external-api.CancellationRequest.rule.1")
async def test_a_missing_job_is_not_found(api: Api) -> None:
    assert (await api.post("/jobs/missing/cancel", status=404))["code"] == "NOT_FOUND"


@proves(
    "external-api.BatchCancellation.rule.1",
    "external-api.BatchCancellationResult.rule.1",
    "external-api.BatchCancellationResult.rule.4",
    "external-api.BatchCancellationResult.rule.5",
    "external-api.CancellationResult.expect.3",
)
async def test_jobs_are_cancelled_by_their_ids(api: Api) -> None:
    done = await api.submitted()
    await api.complete()
    one, two = [await api.submitted() for _ in range(2)]
    answer = await api.post("/jobs/cancel", {"job_ids": [one, done, "missing", two]})
    told = [answer[name] for name in ("requested", "cancelled", "skipped", "failed")]
    assert told == [4, 2, 1, 1]
    [error] = answer["errors"]
    assert (error["job_id"], error["code"]) == ("missing", "NOT_FOUND")
    assert await api.state(two) == "CANCELLED"
    wrongs: tuple[object, ...] = ([], [""], ["x"] * 10_001, "x")
    for wrong in wrongs:
        fields = await api.faults("POST", "/jobs/cancel", {"job_ids": wrong})
        assert all(field.startswith("job_ids") for field in fields)
        assert fields


@proves(
    "external-api.BatchCancellation.rule.2",
    "external-api.BatchCancellationResult.rule.2",
    "external-api.BatchCancellationResult.rule.3",
)
async def test_jobs_are_cancelled_by_a_filter(api: Api) -> None:
    chosen = [await api.submitted(tags={"region": "eu"}) for _ in range(3)]
    spared = await api.submitted(tags={"region": "us"})
    run = await api.start()
    assert run.job_id == chosen[0]
    answer = await api.post("/jobs/cancel", {"filter": {"tags": {"region": "eu"}}})
    assert (answer["requested"], answer["cancelled"], answer["failed"]) == (3, 3, 0)
    assert [await api.state(one) for one in chosen] == ["RUNNING", "CANCELLED", "CANCELLED"]
    assert await api.state(spared) == "SCHEDULED"
    both = {"filter": {"types": ["t"]}, "job_ids": [spared]}
    wrongs: tuple[object, ...] = ({}, both, {"filter": {}}, {"filter": {"colour": "red"}})
    for wrong in wrongs:
        assert await api.faults("POST", "/jobs/cancel", wrong)
    answer = await api.post("/jobs/cancel", {"filter": {"all": True}})
    assert await api.state(spared) == "CANCELLED"


@proves("external-api.BatchCancellation.rule.3", "external-api.BatchCancellation.rule.4")
async def test_many_are_cancelled_for_a_reason(api: Api) -> None:
    assert isinstance(api.backend, CancelInbox)
    job_id = await api.submitted()
    await api.start()
    await api.post("/jobs/cancel", {"job_ids": [job_id], "reason": "deploy", "force": True})
    requests = (await api.backend.pending_cancels(["session-1"])).requests
    [request] = [one for one in requests if one.job_id == job_id]
    assert (request.force, request.reason) == (True, "deploy")
    assert (await api.status(job_id))["reason"] == "deploy"


@proves("external-api.BatchCancellation.rule.5")
async def test_a_dry_run_changes_nothing(api: Api) -> None:
    jobs = [await api.submitted() for _ in range(3)]
    for chosen in ({"filter": {"types": ["t"]}}, {"job_ids": jobs}):
        answer = await api.post("/jobs/cancel", {**chosen, "dry_run": True})
        assert (answer["requested"], answer["cancelled"], answer["dry_run"]) == (3, 3, True)
    assert {await api.state(one) for one in jobs} == {"SCHEDULED"}
