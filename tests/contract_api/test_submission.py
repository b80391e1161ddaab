"""Submitting one job: every field, and what is answered."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.contract_api.api import Api, encoded

from queue_operator.backends.protocol import Spawner, SpawnRequest
from queue_operator.domain.job import Assignment, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves
from queue_operator.testing.store import TTL_S

pytestmark = pytest.mark.asyncio(loop_scope="session")


@proves("external-api.JobSubmission.rule.1", "external-api.ValidationError.rule.1")
async def test_the_type_is_required(api: Api) -> None:
    faults = await api.faults("POST", "/jobs", {"payload": 1})
    assert list(faults) == ["type"]
    for wrong in ("", 5, None, "t" * 256):
        assert await api.refused(type=wrong) == ["type"]
    assert (await api.status(await api.submitted(type="t" * 255)))["type"] == "t" * 255


@proves("external-api.JobSubmission.rule.2")
async def test_a_payload_comes_out_as_it_went_in(api: Api) -> None:
    values: list[Any] = [None, {}, [], "", 0, False, {"a": [1, 2.5, "ü\u0000", None]}, 2**63 - 1]
    for value in values:
        await api.submit(payload=value)
        run = await api.complete()
        assert run.content_type == "application/json"
        assert json.loads(run.payload) == value
    body = {"type": "t", "payload_base64": encoded(b"\x00\xff")}
    await api.post("/jobs", body, status=201)
    assert (await api.complete()).payload == b"\x00\xff"


@proves("external-api.ValidationError.rule.2", "external-api.ValidationError.rule.3")
async def test_exactly_one_payload_is_given(api: Api) -> None:
    for body in ({"type": "t"}, {"type": "t", "payload": 1, "payload_base64": "AA=="}):
        error = await api.post("/jobs", body, status=400)
        [detail] = error["details"]
        assert detail["field"] == "payload"
        assert "payload_base64" in detail["message"]
        assert detail["code"].isupper()


@proves("external-api.JobSubmission.rule.3", "external-api.Priority.expect.3")
async def test_a_priority_is_one_of_five(api: Api) -> None:
    assert (await api.status(await api.submitted()))["priority"] == "NORMAL"
    for priority in Priority:
        assert (await api.status(await api.submitted(priority=priority)))["priority"] == priority
    for wrong in ("URGENT", "high", 1):
        assert await api.refused(priority=wrong) == ["priority"]


@proves(
    "external-api.Priority.expect.1",
    "external-api.Priority.expect.2",
    "external-api.Priority.expect.4",
    "external-api.Priority.expect.5",
)
async def test_priorities_decide_who_comes_first(api: Api) -> None:
    for priority in ("BULK", "LOW", "NORMAL", "HIGH", "CRITICAL"):
        await api.submit(priority=priority, type="one", job_id=priority)
    order = [run.job_id for run in await api.claim(5)]
    assert order == ["CRITICAL", "HIGH", "NORMAL", "LOW", "BULK"]


@proves("external-api.JobSubmission.rule.4", "external-api.SubmissionResult.rule.5")
async def test_a_delay_holds_a_job_back(api: Api) -> None:
    for delay in (300, "PT5M", 300.0):
        answer = await api.submit(delay=delay)
        created, due = (datetime.fromisoformat(answer[k]) for k in ("created_at", "scheduled_for"))
        assert due - created == timedelta(minutes=5)
        assert answer["state"] == "DELAYED"
    assert await api.claim(3) == []
    for wrong in (-1, "5 minutes", "", "P1000Y"):
        assert await api.refused(delay=wrong) == ["delay"]


@proves("external-api.JobSubmission.rule.5", "external-api.Time.rule.1")
async def test_a_time_holds_a_job_back(api: Api) -> None:
    at = datetime(2090, 1, 2, 3, 4, 5, 678901, UTC)
    answer = await api.submit(scheduled_at=at.isoformat())
    assert datetime.fromisoformat(answer["scheduled_for"]) == at
    assert answer["state"] == "DELAYED"
    offset = await api.submit(scheduled_at="2090-01-02T05:04:05+02:00")
    assert datetime.fromisoformat(offset["scheduled_for"]) == at.replace(microsecond=0)
    for wrong in ("2090-01-02T03:04:05", 4000000000, "tomorrow", "9999-12-31T23:59:59Z"):
        assert await api.refused(scheduled_at=wrong) == ["scheduled_at"]
    both = await api.refused(scheduled_at=at.isoformat(), delay=5)
    assert both
    assert set(both) <= {"delay", "scheduled_at"}


@proves("external-api.JobSubmission.rule.6", "external-api.Time.rule.2")
async def test_a_timeout_goes_to_the_worker(api: Api) -> None:
    await api.submit(timeout="PT1M30S")
    assert (await api.start()).timeout_s == 90.0
    await api.submit(timeout=0.5)
    assert (await api.start()).timeout_s == 0.5
    await api.submit()
    assert (await api.start()).timeout_s is None
    for wrong in (0, -1, "PT0S", "soon"):
        assert await api.refused(timeout=wrong) == ["timeout"]


@proves("external-api.JobSubmission.rule.6")
async def test_a_timeout_bounds_each_execution(api: Api) -> None:
    """Its worker is to interrupt it; one that does not has a lease's time more."""
    job_id = await api.submitted(
        timeout=300, max_attempts=2, backoff={"strategy": "CONSTANT", "initial_delay": 0}
    )
    for state in ("RETRYING", "DEAD_LETTER"):
        run = await api.start()
        assert run.timeout_s == 300.0
        held = Held(job_id, run.token, api.namespace)
        for _ in range(6):
            # Its heartbeats go on: it is not lost.
            await api.store.age(TTL_S * 0.9)
            await api.backend.extend_leases([held], lease_ttl_s=TTL_S)
            await api.backend.expire_leases(lease_ttl_s=TTL_S)
            assert await api.state(job_id) == "RUNNING"
        await api.store.age(TTL_S * 0.9)
        await api.backend.expire_leases(lease_ttl_s=TTL_S)
        assert await api.state(job_id) == state
        failure = (await api.get(f"/jobs/{job_id}/failure"))["failure"]
        assert failure["category"] == "TIMEOUT"
    for wrong in (0, -1, "PT0S", "soon"):
        assert await api.refused(timeout=wrong) == ["timeout"]


@proves("external-api.JobSubmission.rule.7")
async def test_attempts_are_bounded(api: Api) -> None:
    job_id = await api.submitted(
        max_attempts=2, backoff={"strategy": "CONSTANT", "initial_delay": 0}
    )
    await api.fail()
    assert await api.state(job_id) == "RETRYING"
    await api.fail()
    assert await api.state(job_id) == "DEAD_LETTER"
    for wrong in (0, 101, -1, 2.5, "3", True):
        assert await api.refused(max_attempts=wrong) == ["max_attempts"]


async def delays_of(api: Api, failures: int, **submission: Any) -> list[float]:
    """How long the job waits after each of its failures, in seconds."""
    job_id = await api.submitted(max_attempts=100, type="retried", **submission)
    waits = []
    for _ in range(failures):
        [run] = await api.claim(types=["retried"])
        await api.settle(run, Event.FAIL, error=ErrorInfo("boom"))
        shown = await api.status(job_id)
        changed, due = (datetime.fromisoformat(shown[k]) for k in ("updated_at", "scheduled_for"))
        waits.append(round((due - changed).total_seconds(), 3))
        await api.later(3600)
    await api.post(f"/jobs/{job_id}/cancel")
    return waits


@proves("external-api.JobSubmission.rule.8", "external-api.BackoffConfig.rule.1")
async def test_the_usual_backoff_is_exponential(api: Api) -> None:
    """The jitter of the tests is the middle of full jitter."""
    usual = await delays_of(api, 8)
    assert usual == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    assert await delays_of(api, 2, backoff={}) == usual[:2]
    assert await api.refused(backoff={"strategy": "RANDOM"}) == ["backoff.strategy"]


@proves(
    "external-api.BackoffConfig.rule.2",
    "external-api.BackoffConfig.rule.3",
    "external-api.BackoffConfig.rule.4",
    "external-api.BackoffConfig.expect.3",
)
async def test_an_exponential_backoff_is_configured(api: Api) -> None:
    backoff = {"initial_delay": 10, "max_delay": "PT1M", "multiplier": 3}
    assert await delays_of(api, 4, backoff=backoff) == [5.0, 15.0, 30.0, 30.0]
    for field, wrong in (("initial_delay", -1), ("max_delay", "x"), ("multiplier", 0.5)):
        assert await api.refused(backoff={field: wrong}) == [f"backoff.{field}"]


@proves(
    "external-api.BackoffConfig.rule.3",
    "external-api.BackoffConfig.expect.1",
    "external-api.BackoffConfig.expect.2",
    "external-api.BackoffConfig.expect.4",
)
async def test_other_backoffs_are_exact(api: Api) -> None:
    constant = {"strategy": "CONSTANT", "initial_delay": 7}
    assert await delays_of(api, 3, backoff=constant) == [7.0, 7.0, 7.0]
    linear = {"strategy": "LINEAR", "initial_delay": 10, "max_delay": 25}
    assert await delays_of(api, 3, backoff=linear) == [10.0, 20.0, 25.0]
    custom = {"strategy": "CUSTOM", "delays": [1, "PT1M"]}
    assert await delays_of(api, 3, backoff=custom) == [1.0, 60.0, 60.0]
    bounded = {"max_delay": 40}
    assert await delays_of(api, 2, backoff=constant | {"initial_delay": 50} | bounded) == [40.0] * 2
    assert await delays_of(api, 2, backoff=custom | bounded) == [1.0, 40.0]
    long = {"strategy": "LINEAR", "initial_delay": "PT1H"}
    assert await delays_of(api, 2, backoff=long) == [3600.0, 7200.0]
    for wrong in ({"strategy": "CUSTOM"}, {"strategy": "LINEAR", "delays": [1]}):
        assert await api.refused(backoff=wrong) == ["backoff.delays"]


@proves(
    "external-api.JobSubmission.rule.9",
    "external-api.SubmissionResult.rule.6",
    "external-api.SubmissionResult.expect.2",
    "external-api.ErrorCodes.rule.3",
)
async def test_a_key_makes_a_repeat_the_same_job(api: Api) -> None:
    first = await api.submit(idempotency_key="k", payload={"a": 1, "b": 2})
    again = await api.submit(idempotency_key="k", payload={"b": 2.0, "a": 1}, status=200)
    assert again["status"] == "DUPLICATE"
    assert again["existing_job_id"] == again["job_id"] == first["job_id"]
    assert again["created_at"] == first["created_at"]
    assert "existing_job_id" not in first
    other = await api.submit(idempotency_key="k", payload={"a": 2}, status=409)
    assert other["code"] == "DUPLICATE"
    assert [detail["field"] for detail in other["details"]] == ["idempotency_key"]
    stats = await api.get("/stats")
    assert stats["total"] == 1


async def spawned_by(api: Api, parent: Assignment, **fields: Any) -> str:
    assert isinstance(api.backend, Spawner)
    child = Job(id="", type="child", namespace=api.namespace, **fields)
    asked = SpawnRequest(
        parent_id=parent.job_id, namespace=api.namespace, token=parent.token, key="1", job=child
    )
    [answer] = await api.backend.spawn([asked])
    assert answer.error is None
    return answer.job_id


@proves("external-api.JobSubmission.rule.10")
async def test_a_correlation_id_goes_to_all_that_the_job_spawns(api: Api) -> None:
    await api.submit(correlation_id="order-7")
    parent = await api.start()
    for _ in range(2):
        # A child spawns the next.
        job_id = await spawned_by(api, parent)
        assert (await api.status(job_id))["correlation_id"] == "order-7"
        [parent] = await api.claim(types=["child"])
        assert parent.correlation_id == "order-7"
    # One that is given its own keeps it, and one of a job without any has none.
    own = await spawned_by(api, parent, correlation_id="mine")
    assert (await api.status(own))["correlation_id"] == "mine"
    await api.submit()
    [parent] = await api.claim(types=["t"])
    job_id = await spawned_by(api, parent)
    assert not (await api.status(job_id))["correlation_id"]


@proves("external-api.JobSubmission.rule.10", "external-api.JobStatus.rule.15")
async def test_a_correlation_id_comes_back(api: Api) -> None:
    assert (await api.status(await api.submitted(correlation_id="c-1")))["correlation_id"] == "c-1"
    await api.start()
    await api.submit(correlation_id="c-2")
    assert (await api.start()).correlation_id == "c-2"
    assert await api.refused(correlation_id="c" * 256) == ["correlation_id"]


@proves("external-api.JobSubmission.rule.11", "external-api.JobStatus.rule.14")
async def test_tags_are_a_map(api: Api) -> None:
    given = {"region": "eu", "tier": "", "a": "b=c"}
    assert (await api.status(await api.submitted(tags=given)))["tags"] == given
    assert (await api.start()).tags == {"region=eu", "tier", "a=b=c"}
    for wrong in ({"a=b": "c"}, {"": "x"}, {"a": 1}, ["a"], {"k" * 128: "v"}):
        fields = await api.refused(tags=wrong)
        assert fields
        assert all(field.startswith("tags") for field in fields)


@proves(
    "external-api.JobSubmission.rule.12",
    "external-api.JobSubmission.rule.13",
    "external-api.DependencyType.expect.1",
)
async def test_a_job_waits_for_others(api: Api) -> None:
    one, two = [await api.submitted() for _ in range(2)]
    answer = await api.submit(depends_on=[one, two])
    assert answer["state"] == "PENDING"
    await api.complete()
    assert await api.state(answer["job_id"]) == "PENDING"
    await api.complete()
    assert await api.state(answer["job_id"]) == "SCHEDULED"
    assert await api.refused(depends_on=["missing"]) == ["depends_on[0]"]
    assert await api.refused(job_id="me", depends_on=[one, "me"]) == ["depends_on[1]"]
    assert await api.refused(depends_on=[one], dependency_type="BEFORE") == ["dependency_type"]


@proves("external-api.DependencyType.expect.2", "external-api.DependencyType.expect.4")
async def test_a_job_waits_for_any_of_others(api: Api) -> None:
    one, two = [await api.submitted() for _ in range(2)]
    any_of = await api.submitted(depends_on=[one, two], dependency_type="AFTER_ANY")
    all_of = await api.submitted(depends_on=[one, two])
    below = await api.submitted(depends_on=[all_of])
    await api.post(f"/jobs/{one}/cancel")
    assert await api.state(any_of) == "PENDING"
    for skipped, parent in ((all_of, one), (below, all_of)):
        shown = await api.status(skipped, include_history="true")
        assert shown["state"] == "CANCELLED"
        assert parent in shown["history"][-1]["reason"]
    await api.complete()
    assert await api.state(any_of) == "SCHEDULED"


@proves("external-api.DependencyType.expect.3")
async def test_a_chain_hands_the_output_on(api: Api) -> None:
    one, two = [await api.submitted() for _ in range(2)]
    await api.submit(depends_on=[one, two], dependency_type="CHAIN")
    await api.complete(b'"first"')
    await api.complete(b'"last"')
    assert (await api.start()).parent_result == b'"last"'


@proves("external-api.JobSubmission.rule.14")
async def test_a_callback_is_stored(api: Api) -> None:
    url = "https://example.com/done?job=1"
    job_id = await api.submitted(callback_url=url)
    assert (await api.backend.get_job(job_id, namespace=api.namespace)).callback_url == url
    for wrong in (
        "ftp://example.com",
        "example.com",
        "https://",
        "https://me:secret@example.com",
        "javascript:alert(1)",
        "https://example.com/" + "x" * 5000,
        "http://exa mple.com",
        5,
    ):
        assert await api.refused(callback_url=wrong) == ["callback_url"]


@proves("external-api.JobSubmission.expect.1", "external-api.SubmissionResult.rule.1")
async def test_ids_are_made_or_given(api: Api) -> None:
    made = (await api.submit())["job_id"]
    assert made[14] == "7"
    assert (await api.submit(job_id="mine/1 ü"))["job_id"] == "mine/1 ü"
    taken = await api.submit(job_id="mine/1 ü", status=409)
    assert [detail["field"] for detail in taken["details"]] == ["job_id"]
    for wrong in ("", "j" * 256, 5):
        assert await api.refused(job_id=wrong) == ["job_id"]


@proves("external-api.JobSubmission.expect.2", "external-api.APIError.rule.3")
async def test_all_faults_are_told_at_once(api: Api) -> None:
    fields = await api.refused(type="", priority="no", max_attempts=0, colour="red", delay=-1)
    assert fields == ["colour", "delay", "max_attempts", "priority", "type"]


@proves("external-api.SubmissionResult.rule.2")
async def test_a_submission_is_accepted_a_duplicate_or_rejected(api: Api) -> None:
    def keyed(key: str, payload: int) -> dict[str, Any]:
        return {"type": "t", "payload": payload, "idempotency_key": key}

    assert (await api.submit(idempotency_key="k"))["status"] == "ACCEPTED"
    assert (await api.submit(idempotency_key="k", status=200))["status"] == "DUPLICATE"
    jobs = [
        keyed("new", 1),
        keyed("k", 1),
        keyed("k", 2),
        {"type": "", "payload": 1},
        keyed("new", 1),
    ]
    answer = await api.post("/jobs/batch", {"jobs": jobs, "atomic": False})
    assert [one["status"] for one in answer["results"]] == [
        "ACCEPTED",
        "DUPLICATE",
        "REJECTED",
        "REJECTED",
        "DUPLICATE",
    ]
    # Alone, what is rejected is an error.
    assert "status" not in await api.submit(type="", status=400)
    assert "status" not in await api.submit(idempotency_key="k", payload=2, status=409)
    assert (await api.get("/stats"))["total"] == 2


@proves(
    "external-api.SubmissionResult.rule.3",
    "external-api.SubmissionResult.rule.4",
    "external-api.SubmissionResult.expect.1",
)
async def test_an_accepted_job_is_stored(api: Api) -> None:
    answer = await api.submit()
    shown = await api.status(answer["job_id"])
    assert answer["status"] == "ACCEPTED"
    assert answer["state"] == shown["state"] == "SCHEDULED"
    for name in ("created_at", "scheduled_for"):
        assert answer[name] == shown[name]
