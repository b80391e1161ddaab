"""A wrong argument is refused with its name, and nothing is written."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.contract.driving import running, submitted
from tests.contract.store import Store

from queue_operator.backends.protocol import Backend
from queue_operator.domain.errors import InvalidArgument, JobNotFound, PayloadTooLarge
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.domain.validation import Limits

GOOD = Job(id="x", type="t")
NOW = datetime(2024, 1, 1, tzinfo=UTC)

BAD_JOBS: list[tuple[str, dict[str, Any]]] = [
    ("id", {"id": ""}),
    ("id", {"id": "x" * 256}),
    ("id", {"id": "a\x00b"}),
    ("id", {"id": "\ud800"}),
    ("type", {"type": ""}),
    ("namespace", {"namespace": ""}),
    ("tags", {"tags": frozenset({""})}),
    ("tags", {"tags": frozenset({"x" * 129})}),
    ("tags", {"tags": frozenset({f"t{n}" for n in range(33)})}),
    ("payload", {"payload": "text"}),
    ("correlation_id", {"correlation_id": "a\x00"}),
    ("max_attempts", {"max_attempts": -1}),
    ("max_attempts", {"max_attempts": 101}),
    ("timeout", {"timeout_s": 0.0}),
    ("timeout", {"timeout_s": float("nan")}),
    ("delay", {"delay_s": -1.0}),
    ("delay", {"delay_s": float("inf")}),
    ("delay", {"delay_s": 1.0, "scheduled_at": NOW}),
    ("scheduled_at", {"scheduled_at": NOW.replace(tzinfo=None)}),
    ("created_at", {"created_at": NOW.replace(tzinfo=None)}),
    ("backoff.multiplier", {"backoff": Backoff(multiplier=0.5)}),
    ("backoff.delays", {"backoff": Backoff(BackoffStrategy.CUSTOM)}),
    ("state", {"state": JobState.RUNNING}),
    ("assignee_id", {"assignee_id": "w"}),
    ("assigned_at", {"assigned_at": NOW}),
    ("error", {"error": ErrorInfo("x")}),
    ("result", {"result": b"x"}),
]


@pytest.mark.parametrize(("field", "change"), BAD_JOBS)
async def test_a_bad_job_is_refused_alone_and_in_a_batch(
    backend: Backend, field: str, change: dict[str, Any]
) -> None:
    bad = replace(GOOD, **change)
    with pytest.raises(InvalidArgument) as alone:
        await backend.enqueue_job(bad)
    assert alone.value.field == field
    with pytest.raises(InvalidArgument) as in_batch:
        await backend.enqueue_jobs([replace(GOOD, id="good"), bad])
    assert in_batch.value.field == f"jobs[1].{field}"
    assert (await backend.get_job_stats([])).total_jobs == 0


async def test_a_payload_over_the_limit_is_refused_with_its_size(store: Store) -> None:
    backend = await store.open(limits=Limits(payload_bytes=10))
    await backend.enqueue_job(replace(GOOD, payload=b"x" * 10))
    with pytest.raises(PayloadTooLarge) as raised:
        await backend.enqueue_job(replace(GOOD, id="y", payload=b"x" * 11))
    assert (raised.value.field, raised.value.size, raised.value.limit) == ("payload", 11, 10)


def _demand(**change: Any) -> list[Demand]:
    return [Demand(**{"assignee_id": "w", "limit": 1, **change})]


BAD_CALLS: list[tuple[str, Callable[[Backend], Awaitable[object]]]] = [
    ("assignee_id", lambda b: b.dequeue_jobs("", [], 1)),
    ("limit", lambda b: b.dequeue_jobs("w", [], 0)),
    ("limit", lambda b: b.dequeue_jobs("w", [], -1)),
    ("tags", lambda b: b.dequeue_jobs("w", [""], 1)),
    ("tags", lambda b: b.dequeue_jobs("w", "tag", 1)),
    ("lease_ttl_s", lambda b: b.dequeue_jobs("w", [], 1, lease_ttl_s=0)),
    ("lease_ttl_s", lambda b: b.claim(_demand(), lease_ttl_s=0)),
    ("assignee_id", lambda b: b.claim(_demand(assignee_id=""), lease_ttl_s=5)),
    ("limit", lambda b: b.claim(_demand(limit=0), lease_ttl_s=5)),
    ("job_id", lambda b: b.complete_job("", b"")),
    ("result", lambda b: b.complete_job("live", "text")),  # type: ignore[arg-type]
    ("error_msg", lambda b: b.fail_job("live", "")),
    ("error_msg", lambda b: b.fail_job("live", "a\x00b")),
    ("error_msg", lambda b: b.stop_job("live", "a\x00b")),
    ("job_id", lambda b: b.stop_job("a\x00", "")),
    ("job_id", lambda b: b.get_job("")),
    ("tags", lambda b: b.get_job_stats([""])),
    ("job_ids", lambda b: b.cancel_jobs([], [""])),
    ("reason", lambda b: b.cancel_jobs([], ["live"], reason="a\x00")),
    ("assignee_id", lambda b: b.mark_worker_unresponsive("")),
    ("lease_ttl_s", lambda b: b.extend_leases([], lease_ttl_s=0)),
    ("lease_ttl_s", lambda b: b.expire_leases(lease_ttl_s=-1)),
    ("limit", lambda b: b.expire_leases(lease_ttl_s=5, limit=0)),
    ("ttl", lambda b: b.cleanup_expired_jobs(0)),
    ("ttl", lambda b: b.cleanup_expired_jobs(float("nan"))),
]


@pytest.mark.parametrize(("field", "call"), BAD_CALLS)
async def test_a_bad_argument_is_named_and_nothing_is_written(
    backend: Backend, field: str, call: Callable[[Backend], Awaitable[object]]
) -> None:
    await submitted(backend, id="live")
    await submitted(backend, id="waiting")
    before = await backend.get_job("live")
    with pytest.raises(InvalidArgument) as raised:
        await call(backend)
    assert raised.value.field == field
    assert await backend.get_job("live") == before
    assert (await backend.get_job_stats([])).pending_jobs == 2


async def test_a_result_over_the_limit_is_refused_by_the_library(store: Store) -> None:
    backend = await store.open(limits=Limits(result_bytes=10))
    job, token = await running(backend)
    with pytest.raises(PayloadTooLarge):
        await backend.complete_job(job.id, b"x" * 11, token=token)
    assert (await backend.get_job(job.id)).state is JobState.RUNNING


async def test_a_message_that_is_too_long_is_cut(backend: Backend) -> None:
    job, token = await running(backend)
    await backend.fail_job(job.id, "ü" * 100_000, token=token)
    assert (await backend.get_job(job.id)).error_message == "ü" * 8192


MISSING: list[Callable[[Backend], Awaitable[object]]] = [
    lambda b: b.get_job("missing"),
    lambda b: b.get_job("missing", namespace="nowhere"),
    lambda b: b.complete_job("missing", b""),
    lambda b: b.fail_job("missing", "boom"),
    lambda b: b.stop_job("missing", ""),
    lambda b: b.stop_job_with_retry("missing", ""),
    lambda b: b.mark_job_unknown_stopped("missing", ""),
    lambda b: b.acknowledge_cancellation("missing", True),
]


@pytest.mark.parametrize("call", MISSING)
async def test_a_missing_job_is_not_found(
    backend: Backend, call: Callable[[Backend], Awaitable[object]]
) -> None:
    with pytest.raises(JobNotFound):
        await call(backend)
