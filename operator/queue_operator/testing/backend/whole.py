"""What is promised as one step is seen whole or not at all, by whoever looks meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from queue_operator.domain.job import Demand, Job, JobStats
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job
from queue_operator.testing.store import TTL_S, Contract, Store

_MANY: Final = 200
_TYPE: Final = "whole"
_ALL: Final = frozenset({"all"})


def _jobs(count: int = _MANY) -> list[Job]:
    return [a_job(type=_TYPE, tags=_ALL) for _ in range(count)]


async def _hold(backend: Contract) -> None:
    """A worker that has all of many jobs, half of which are asked to stop."""
    jobs = _jobs()
    await backend.enqueue_jobs(jobs)
    demand = Demand(assignee_id="w", limit=_MANY, types=frozenset({_TYPE}))
    assert len(await backend.claim([demand], lease_ttl_s=TTL_S)) == _MANY
    await backend.cancel_jobs([], [job.id for job in jobs[: _MANY // 2]])


async def _end(backend: Contract) -> None:
    await backend.enqueue_jobs(_jobs())
    await backend.cancel_jobs(_ALL, [])


async def _mix(backend: Contract) -> None:
    """Jobs of each kind that a cancellation changes."""
    await _hold(backend)
    await backend.mark_worker_unresponsive("w")
    await backend.enqueue_jobs(_jobs())


async def _nothing(backend: Contract) -> None:
    await backend.enqueue_jobs(_jobs(1))


_Step = Callable[[Contract], Awaitable[object]]
_STEPS: Final[dict[str, tuple[_Step, _Step]]] = {
    "enqueue_jobs": (_nothing, lambda b: b.enqueue_jobs(_jobs())),
    "cancel_jobs": (_mix, lambda b: b.cancel_jobs(_ALL, [])),
    "mark_worker_unresponsive": (_hold, lambda b: b.mark_worker_unresponsive("w")),
    "reset_running_jobs": (_hold, lambda b: b.reset_running_jobs()),
    "delete_jobs": (_end, lambda b: b.delete_jobs(_ALL, [])),
}


def _counts(stats: JobStats) -> tuple[tuple[JobState, int], ...]:
    return tuple((state, n) for state, n in sorted(stats.by_state.items()) if n)


@proves(
    "backend-api.Invariants.rule.2",
    "backend-api.EnqueueJobs.must.1",
    "backend-api.DeleteJobs.must.3",
    "backend-api.ImplementationGuidelines.must.1",
    "backend-api.TestingRequirements.must.2",
)
@pytest.mark.parametrize("name", _STEPS)
async def test_a_call_on_many_jobs_is_seen_whole_or_not_at_all(store: Store, name: str) -> None:
    prepare, call = _STEPS[name]
    writer, reader = await store.open(), await store.open()
    await prepare(writer)
    seen = {_counts(await reader.get_job_stats(_ALL))}
    calling = asyncio.ensure_future(call(writer))
    while not calling.done():
        seen.add(_counts(await reader.get_job_stats(_ALL)))
        await asyncio.sleep(0)
    await calling
    seen.add(_counts(await reader.get_job_stats(_ALL)))
    assert len(seen) == 2
