"""Each change through REST is told before and after."""

from typing import Any

import pytest
from tests.audited import Audited
from tests.integration.api.door import Door, check_error

from queue_operator.api.operation import ANYBODY
from queue_operator.api.routes import OPERATIONS
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.queue import bulk
from queue_operator.testing.clauses import proves

BROKEN = ErrorInfo("broken", ErrorCategory.PERMANENT, "E1")
READ_ONLY = {"get", "list", ANYBODY}
JOB = {"type": "t", "payload": 1}
CHANGES: dict[str, tuple[str, str, Any]] = {
    "submitJob": ("POST", "/v1/jobs", JOB),
    "submitBatch": ("POST", "/v1/jobs/batch", {"jobs": [JOB]}),
    "cancelJobs": ("POST", "/v1/jobs/cancel", {"job_ids": ["j"]}),
    "retryJobs": ("POST", "/v1/jobs/retry", {"job_ids": ["j"]}),
    "deleteJobs": ("POST", "/v1/jobs/delete", {"job_ids": ["j"]}),
    "cancelJob": ("POST", "/v1/jobs/j/cancel", None),
    "suspendJob": ("POST", "/v1/jobs/j/suspend", None),
    "resumeJob": ("POST", "/v1/jobs/j/resume", None),
    "retryJob": ("POST", "/v1/jobs/j/retry", None),
    "deleteJob": ("DELETE", "/v1/jobs/j", None),
    "pause": ("PUT", "/v1/pauses", {"type": "a"}),
    "resume": ("DELETE", "/v1/pauses", None),
    "redeliverWebhooks": ("POST", "/v1/webhooks/redeliver", {"ids": ["m"]}),
    "purgeWebhooks": ("POST", "/v1/webhooks/purge", {"ids": ["m"]}),
}
"""A call of each operation that changes something; of those of a job, there is none."""


def test_every_operation_that_changes_something_is_called_here() -> None:
    assert set(CHANGES) == {one.id for one in OPERATIONS if one.verb not in READ_ONLY}


@pytest.mark.parametrize("operation", CHANGES)
async def test_each_change_is_told_before_and_after(
    door: Door, operation: str, audited: Audited
) -> None:
    answer = await door.call(*CHANGES[operation])
    before, after = audited.lines()
    assert (before["operation"], before["stage"]) == (operation, "intent")
    assert (after["operation"], after["stage"]) == (operation, "result")
    assert after["outcome"] == ("OK" if answer.is_success else "NOT_FOUND")
    assert before["request_id"] == after["request_id"] == answer.headers["x-request-id"]


@pytest.fixture
def few_jobs_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STEP", 20)


async def test_a_change_that_fails_midway_leaves_a_line(
    door: Door, few_jobs_a_step: None, audited: Audited
) -> None:
    jobs = [Job(id=f"j{n}", type="t", namespace=door.namespace) for n in range(50)]
    await door.backend.enqueue_jobs(jobs)
    cancel = door.queue.cancel_jobs
    steps = 0

    async def breaking(*args: Any, **options: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 2:
            raise Unavailable("the store went away")
        return await cancel(*args, **options)

    door.queue.cancel_jobs = breaking  # type: ignore[method-assign]
    try:
        answer = await door.call("POST", "/v1/jobs/cancel", {"filter": {"all": True}})
    finally:
        del door.queue.cancel_jobs
    check_error(answer, 503, "INTERNAL_ERROR")
    [told] = audited.lines("result")
    assert (told["outcome"], told["count"]) == ("UNAVAILABLE", 20)


async def test_a_retry_leaves_a_line_though_the_job_is_gone(door: Door, audited: Audited) -> None:
    job_id = await door.failed(BROKEN)
    retry = door.queue.retry_jobs

    async def taken(*args: Any, **options: Any) -> Any:
        answers = await retry(*args, **options)
        await door.queue.cancel_jobs((), (job_id,), namespace=door.namespace)
        await door.queue.delete_jobs((), (job_id,), namespace=door.namespace)
        return answers

    door.queue.retry_jobs = taken  # type: ignore[method-assign]
    try:
        answer = await door.call("POST", f"/v1/jobs/{job_id}/retry")
    finally:
        del door.queue.retry_jobs
    check_error(answer, 404, "NOT_FOUND")
    [_, told] = audited.lines("result")
    assert (told["operation"], told["job"], told["count"]) == ("retryJob", job_id, 1)


async def test_a_batch_leaves_a_line_with_its_jobs(door: Door, audited: Audited) -> None:
    body = {"jobs": [{"type": "t", "payload": 1, "job_id": name} for name in ("a", "b")]}
    await door.told("POST", "/v1/jobs/batch", body)
    [told] = audited.lines("result")
    assert (told["jobs"], told["count"]) == (["a", "b"], 2)


@proves("external-api.Bulk.expect.4")
async def test_a_line_says_who_did_what_to_how_many(door: Door, audited: Audited) -> None:
    job_id = await door.submitted(type="a")
    await door.told("POST", f"/v1/jobs/{job_id}/cancel", {"reason": "why"})
    await door.told("POST", "/v1/jobs/delete", {"filter": {"types": ["a"]}})
    await door.told("PUT", "/v1/pauses", {"type": "a"})
    await door.status(await door.submitted())
    told = audited.lines("result")
    assert [one["operation"] for one in told] == [
        "submitJob",
        "cancelJob",
        "deleteJobs",
        "pause",
        "submitJob",
    ]
    assert {(one["who"], one["namespace"]) for one in told} == {("tests", door.namespace)}
    assert (told[1]["job"], told[1]["reason"], told[1]["verb"]) == (job_id, "why", "update")
    assert (told[2]["filter"], told[2]["count"], told[2]["dry_run"]) == ({"types": ["a"]}, 1, False)
    assert all(one["request_id"] for one in told)


async def test_a_refused_change_is_told_as_that(door: Door, audited: Audited) -> None:
    too_long = {"filter": {"types": ["x" * 300]}}
    check_error(await door.call("POST", "/v1/jobs/cancel", too_long), 400, "INVALID_REQUEST")
    before, after = audited.lines()
    assert before["filter"] == after["filter"] == {"types": ["x" * 300]}
    assert (after["outcome"], after["count"]) == ("INVALID_REQUEST", 0)
