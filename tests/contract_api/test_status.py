"""Looking at one job."""

from datetime import UTC, datetime

import pytest
from tests.contract_api.api import Api, Document

from queue_operator.backends.protocol import ProgressReport, ProgressSink
from queue_operator.domain.job import Progress
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

pytestmark = pytest.mark.asyncio(loop_scope="session")
CONTENT = {"payload", "payload_base64"}


def at(shown: Document, name: str) -> datetime:
    return datetime.fromisoformat(shown[name])


@proves(
    "external-api.JobQuery.rule.1",
    "external-api.JobStatus.rule.1",
    "external-api.JobStatus.rule.2",
    "external-api.JobStatus.rule.13",
    "external-api.ErrorCodes.rule.1",
)
async def test_a_job_is_found_by_its_id(api: Api) -> None:
    for job_id in ("plain", "a/b", "ü %2F?#", "..%", "cancel"):
        await api.submit(job_id=job_id, type="mine", priority="LOW")
        answer = await api.http.get(
            "/v1/jobs/" + "".join(f"%{byte:02X}" for byte in job_id.encode()),
            params={"namespace": api.namespace},
        )
        shown = answer.json()
        assert (shown["job_id"], shown["type"], shown["priority"]) == (job_id, "mine", "LOW")
    error = await api.get("/jobs/missing", status=404)
    assert (error["code"], error["details"]) == ("NOT_FOUND", [])
    assert "missing" in error["message"]


@proves(
    "external-api.JobStatus.rule.4",
    "external-api.JobStatus.rule.5",
    "external-api.JobStatus.rule.6",
    "external-api.JobStatus.rule.8",
    "external-api.JobStatus.rule.9",
)
async def test_times_follow_the_life_of_a_job(api: Api) -> None:
    job_id = await api.submitted()
    waiting = await api.status(job_id)
    assert (waiting["attempt"], waiting["started_at"], waiting["completed_at"]) == (0, None, None)
    run = await api.start()
    running = await api.status(job_id)
    assert (running["attempt"], running["completed_at"]) == (1, None)
    assert at(running, "started_at") >= at(waiting, "created_at")
    assert at(running, "updated_at") >= at(waiting, "updated_at")
    await api.settle(run, Event.COMPLETE, result=b"1", result_content_type="application/json")
    ended = await api.status(job_id)
    assert at(ended, "completed_at") >= at(running, "started_at")
    assert ended["started_at"] == running["started_at"]
    assert ended["created_at"] == waiting["created_at"]


@proves("external-api.JobStatus.rule.7", "external-api.LifecycleState.expect.2")
async def test_a_delayed_job_shows_its_time(api: Api) -> None:
    due = "2090-01-01T00:00:00Z"
    shown = await api.status(await api.submitted(scheduled_at=due))
    assert shown["state"] == "DELAYED"
    assert at(shown, "scheduled_for") == datetime.fromisoformat(due)


@proves(
    "external-api.JobStatus.rule.3",
    "external-api.LifecycleState.expect.1",
    "external-api.LifecycleState.expect.3",
    "external-api.LifecycleState.expect.4",
    "external-api.LifecycleState.expect.6",
)
async def test_the_states_of_a_job_that_goes_well(api: Api) -> None:
    parent = await api.submitted()
    child = await api.submitted(depends_on=[parent])
    assert [await api.state(parent), await api.state(child)] == ["SCHEDULED", "PENDING"]
    run = await api.start()
    assert await api.state(parent) == "RUNNING"
    await api.settle(run, Event.COMPLETE, result=b"1")
    assert [await api.state(parent), await api.state(child)] == ["COMPLETED", "SCHEDULED"]


@proves(
    "external-api.LifecycleState.expect.5",
    "external-api.LifecycleState.expect.7",
    "external-api.LifecycleState.expect.8",
    "external-api.LifecycleState.expect.9",
)
async def test_the_states_of_jobs_that_do_not(api: Api) -> None:
    retrying = await api.submitted()
    await api.fail()
    assert await api.state(retrying) == "RETRYING"
    permanent = await api.submitted()
    await api.fail(ErrorCategory.PERMANENT)
    assert await api.state(permanent) == "FAILED"
    assert await api.state(await api.failed_for_good()) == "DEAD_LETTER"
    cancelled = await api.submitted()
    await api.post(f"/jobs/{cancelled}/cancel")
    assert await api.state(cancelled) == "CANCELLED"


@proves(
    "external-api.JobStatus.rule.10",
    "external-api.ProgressInfo.rule.1",
    "external-api.ProgressInfo.rule.2",
    "external-api.ProgressInfo.rule.3",
)
async def test_progress_is_shown(api: Api) -> None:
    job_id = await api.submitted()
    run = await api.start()
    assert "progress" not in await api.status(job_id)
    when = datetime(2026, 1, 1, tzinfo=UTC)
    reports = [
        ProgressReport(
            job_id=job_id,
            token=run.token,
            namespace=api.namespace,
            progress=Progress(percent, f"at {percent}", when.replace(minute=percent)),
        )
        for percent in (10, 40)
    ]
    assert isinstance(api.backend, ProgressSink)
    await api.backend.record_progress(reports)
    progress = (await api.status(job_id))["progress"]
    assert (progress["percent"], progress["message"]) == (40, "at 40")
    assert at(progress, "updated_at") == when.replace(minute=40)


@proves(
    "external-api.JobQuery.rule.2",
    "external-api.JobStatus.rule.11",
    "external-api.JobResult.rule.1",
    "external-api.JobResult.rule.2",
    "external-api.JobResult.expect.1",
)
async def test_the_result_of_a_success(api: Api) -> None:
    job_id = await api.submitted()
    assert "result" not in await api.status(job_id, include_result="true")
    await api.complete(b'{"sent": [1, null]}')
    assert "result" not in await api.status(job_id)
    result = (await api.status(job_id, include_result="true"))["result"]
    assert (result["status"], result["output"]) == ("SUCCESS", {"sent": [1, None]})
    assert "error" not in result
    raw = await api.submitted()
    await api.settle(await api.start(), Event.COMPLETE, result=b"\x00\xff")
    shown = (await api.status(raw, include_result="true"))["result"]
    assert shown["output_base64"] == "AP8="


@proves("external-api.JobResult.rule.4", "external-api.JobResult.rule.5")
async def test_a_result_tells_of_its_attempt(api: Api) -> None:
    at_once = {"strategy": "CONSTANT", "initial_delay": 0}
    job_id = await api.submitted(backoff=at_once, max_attempts=5)
    await api.fail()
    run = await api.start()
    await api.store.age(2.5)
    await api.settle(run, Event.COMPLETE, result=b"1")
    result = (await api.status(job_id, include_result="true"))["result"]
    assert result["attempt"] == 2
    assert 2500 <= result["duration_ms"] < 60_000


@proves(
    "external-api.JobResult.rule.3",
    "external-api.JobResult.expect.2",
    "external-api.ErrorInfo.rule.2",
    "external-api.ErrorInfo.rule.3",
    "external-api.ErrorInfo.rule.4",
)
async def test_the_result_of_a_failure(api: Api) -> None:
    told = []
    for trace in ("line 1\nline 2", ""):
        job_id = await api.submitted(max_attempts=1)
        await api.fail(code="NO_MAIL", stack_trace=trace)
        result = (await api.status(job_id, include_result="true"))["result"]
        assert result["status"] == "FAILURE"
        assert (result["error"]["code"], result["error"]["message"]) == ("NO_MAIL", "boom")
        told.append(result["error"].get("stack_trace"))
    assert told == ["line 1\nline 2", None]


@proves(
    "external-api.ErrorInfo.rule.1",
    "external-api.ErrorInfo.expect.1",
    "external-api.ErrorInfo.expect.2",
    "external-api.ErrorInfo.expect.3",
)
async def test_errors_are_of_categories(api: Api) -> None:
    ends = {}
    for category in (ErrorCategory.TEMPORARY, ErrorCategory.PERMANENT, ErrorCategory.TIMEOUT):
        job_id = await api.submitted(max_attempts=2)
        await api.fail(category)
        await api.later(60)
        if category is not ErrorCategory.PERMANENT:
            await api.fail(category)
        shown = await api.status(job_id, include_result="true")
        assert shown["result"]["error"]["category"] == category
        ends[category.value] = (shown["state"], shown["attempt"])
    assert ends == {
        "TEMPORARY": ("DEAD_LETTER", 2),
        "PERMANENT": ("FAILED", 1),
        "TIMEOUT": ("DEAD_LETTER", 2),
    }


@proves("external-api.ErrorInfo.expect.4")
async def test_a_lost_worker_is_an_error_of_the_system(api: Api) -> None:
    job_id = await api.submitted(max_attempts=1)
    await api.start()
    for _ in range(2):
        await api.store.age(120)
        await api.backend.expire_leases(lease_ttl_s=60.0)
    error = (await api.status(job_id, include_result="true"))["result"]["error"]
    assert (error["category"], error["code"]) == ("SYSTEM", "WORKER_LOST")


@proves(
    "external-api.JobQuery.rule.3",
    "external-api.JobStatus.rule.12",
    "external-api.StateTransition.rule.1",
    "external-api.StateTransition.rule.2",
    "external-api.StateTransition.rule.3",
)
async def test_the_history_of_a_job(api: Api) -> None:
    job_id = await api.submitted()
    assert "history" not in await api.status(job_id)
    await api.fail()
    await api.later(60)
    await api.complete()
    history = (await api.status(job_id, include_history="true"))["history"]
    assert [(one["from_state"], one["to_state"]) for one in history] == [
        (None, "SCHEDULED"),
        ("SCHEDULED", "RUNNING"),
        ("RUNNING", "RETRYING"),
        ("RETRYING", "RUNNING"),
        ("RUNNING", "COMPLETED"),
    ]
    times = [at(one, "timestamp") for one in history]
    assert times == sorted(times)
    delayed = await api.submitted(delay=60)
    [first] = (await api.status(delayed, include_history="true"))["history"]
    assert (first["from_state"], first["to_state"]) == (None, "DELAYED")


async def states(api: Api, job_id: str) -> list[str]:
    """Those that the job entered."""
    history = (await api.status(job_id, include_history="true"))["history"]
    return [one["to_state"] for one in history]


@pytest.mark.parametrize("first_delay", [0, 60])
@pytest.mark.parametrize("retry_delay", [0, 600])
async def test_a_history_begins_as_the_job_did_whatever_came_later(
    api: Api, first_delay: int, retry_delay: int
) -> None:
    begins = "DELAYED" if first_delay else "SCHEDULED"
    job_id = await api.submitted(delay=first_delay, max_attempts=1)
    assert [await api.state(job_id)] == await states(api, job_id) == [begins]
    await api.later(60)
    await api.fail()
    assert await states(api, job_id) == [begins, "RUNNING", "DEAD_LETTER"]
    await api.post(f"/jobs/{job_id}/retry", {"delay": retry_delay})
    assert await states(api, job_id) == [begins, "RUNNING", "DEAD_LETTER", "RETRYING"]
    await api.later(600)
    await api.complete()
    ends = [begins, "RUNNING", "DEAD_LETTER", "RETRYING", "RUNNING", "COMPLETED"]
    assert await states(api, job_id) == ends


@proves("external-api.StateTransition.rule.4")
async def test_transitions_say_why(api: Api) -> None:
    job_id = await api.submitted()
    await api.post(f"/jobs/{job_id}/cancel", {"reason": "not needed any more"})
    shown = await api.status(job_id, include_history="true")
    assert shown["history"][-1]["reason"] == "not needed any more"
    assert all(one["reason"] for one in shown["history"])
    assert shown["reason"] == "not needed any more"


@proves("external-api.JobStatus.expect.1")
async def test_a_running_job_that_is_asked_to_stop(api: Api) -> None:
    job_id = await api.submitted()
    run = await api.start()
    assert (await api.status(job_id))["cancel_requested"] is False
    await api.post(f"/jobs/{job_id}/cancel")
    shown = await api.status(job_id)
    assert (shown["state"], shown["cancel_requested"]) == ("RUNNING", True)
    await api.settle(run, Event.ACK_EXECUTING)
    shown = await api.status(job_id)
    assert (shown["state"], shown["cancel_requested"]) == ("CANCELLED", False)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            {"payload": {"to": ["a", None], "n": 1e300}},
            {"payload": {"to": ["a", None], "n": 1e300}},
        ),
        ({"payload": None}, {"payload": None}),
        ({"payload_base64": "AP8="}, {"payload_base64": "AP8="}),
        ({"payload_base64": ""}, {"payload_base64": ""}),
    ],
)
async def test_a_payload_is_read_back_by_who_asks_for_it(
    api: Api, given: Document, shown: Document
) -> None:
    job_id = (await api.post("/jobs", {"type": "t", **given}, status=201))["job_id"]
    for params in ({}, {"include_result": "true"}, {"include_history": "true"}):
        assert not CONTENT & set(await api.status(job_id, **params))
    status = await api.status(job_id, include_payload="true")
    assert {name: status[name] for name in CONTENT & set(status)} == shown


async def test_a_payload_is_read_back_after_the_end_beside_the_result(api: Api) -> None:
    job_id = await api.submitted(payload="x" * 100_000)
    await api.complete(b"2")
    status = await api.status(job_id, include_payload="true", include_result="true")
    assert (status["payload"], status["result"]["output"]) == ("x" * 100_000, 2)
