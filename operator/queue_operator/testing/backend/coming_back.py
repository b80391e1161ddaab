"""Jobs that come to wait in a place that claims have gone past: whoever put one there finds it with
its next claim, before all younger ones, and every other backend finds it without being told.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import pytest

from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, settle
from queue_operator.testing.store import TTL_S, Contract, Store

_TYPE: Final = "coming-back"
_YOUNGER: Final = 30
_PATIENCE_S: Final = 10.0
_BEFORE: Final = datetime(2024, 1, 1, tzinfo=UTC)

_Way = Callable[[Contract], Awaitable[Callable[[], Awaitable[str]]]]
"""Prepares a job, and gives what brings it back once younger ones were claimed, and its id."""


def _of_the_lane(**fields: object) -> Job:
    return a_job(type=_TYPE, **fields)


async def _claim(backend: Contract, limit: int, name: str = "w") -> list[Assignment]:
    demand = Demand(assignee_id=name, limit=limit, types=frozenset({_TYPE}))
    return await backend.claim([demand], lease_ttl_s=TTL_S)


async def _held(backend: Contract, **fields: object) -> Assignment:
    await backend.enqueue_job(_of_the_lane(**fields))
    [held] = await _claim(backend, 1, "first")
    return held


async def _submitted(backend: Contract) -> Callable[[], Awaitable[str]]:
    return lambda: backend.enqueue_job(_of_the_lane(created_at=_BEFORE))


async def _of_high_priority(backend: Contract) -> Callable[[], Awaitable[str]]:
    return lambda: backend.enqueue_job(_of_the_lane(priority=Priority.CRITICAL))


async def _lost(backend: Contract) -> Callable[[], Awaitable[str]]:
    held = await _held(backend)

    async def bring() -> str:
        await backend.mark_worker_unresponsive("first")
        return held.job_id

    return bring


async def _reset(backend: Contract) -> Callable[[], Awaitable[str]]:
    held = await _held(backend)

    async def bring() -> str:
        await backend.update_job_status(held.job_id, JobState.UNKNOWN_RETRY)
        return held.job_id

    return bring


async def _retried(backend: Contract) -> Callable[[], Awaitable[str]]:
    held = await _held(backend)
    error = ErrorInfo("no", ErrorCategory.PERMANENT)
    await settle(backend, Outcome(held.job_id, Event.FAIL, token=held.token, error=error))

    async def bring() -> str:
        await settle(backend, Outcome(held.job_id, Event.RETRY_NOW))
        return held.job_id

    return bring


async def _lifted(backend: Contract) -> Callable[[], Awaitable[str]]:
    bring = await _retried(backend)

    async def lift() -> str:
        name = await bring()
        retry = Outcome(name, Event.RETRY_NOW, priority=Priority.CRITICAL)
        assert (await settle(backend, retry)).error is None
        return name

    return lift


async def _waited_for(backend: Contract) -> Callable[[], Awaitable[str]]:
    parent = await _held(backend)
    child = await backend.enqueue_job(_of_the_lane(depends_on=(parent.job_id,)))

    async def bring() -> str:
        await backend.complete_job(parent.job_id, b"", token=parent.token)
        return child

    return bring


_WAYS: Final[dict[str, _Way]] = {
    "submitted with an older time": _submitted,
    "submitted with a priority": _of_high_priority,
    "lost with its worker": _lost,
    "given up for lost": _reset,
    "retried by hand": _retried,
    "retried with a priority": _lifted,
    "no longer waiting": _waited_for,
}


async def _go_past(*backends: Contract) -> None:
    """Each of them claims all of some younger jobs."""
    for backend in backends:
        await backend.enqueue_jobs([_of_the_lane() for _ in range(_YOUNGER)])
        assert len(await _claim(backend, _YOUNGER)) == _YOUNGER
        assert await _claim(backend, 1) == []


@proves("backend-api.DequeueJobs.post.8", "backend-api.Invariants.rule.9")
@pytest.mark.parametrize("way", _WAYS)
async def test_what_comes_back_is_claimed_before_what_is_younger(
    backend: Contract, way: str
) -> None:
    bring = await _WAYS[way](backend)
    await _go_past(backend)
    await backend.enqueue_jobs([_of_the_lane() for _ in range(3)])
    name = await bring()
    [first] = await _claim(backend, 1)
    assert first.job_id == name
    assert len(await _claim(backend, 5)) == 3


@proves("queue-semantics.AtLeastOnceDelivery.rule.1")
@pytest.mark.parametrize("way", _WAYS)
async def test_what_comes_back_is_found_by_every_other_backend(store: Store, way: str) -> None:
    mine, other = await store.open(), await store.open()
    bring = await _WAYS[way](mine)
    await _go_past(mine, other)
    name = await bring()
    assert await _found(other) == name


async def _found(backend: Contract) -> str:
    """What a backend claims next, which may take it a moment to see."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            for one in await _claim(backend, 1):
                return one.job_id
