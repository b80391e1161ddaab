"""Another priority for jobs of custom resources that wait already."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]


async def stored(backend: PostgresBackend, namespace: str, *names: str, **fields: Any) -> list[str]:
    jobs = [Job(id=name, type="mail", namespace=namespace, **fields) for name in names]
    return await backend.enqueue_jobs(jobs)


async def claimed(backend: PostgresBackend, namespace: str, number: int) -> list[str]:
    demand = Demand(assignee_id="worker", limit=number, namespace=namespace)
    return [one.job_id for one in await backend.claim([demand], lease_ttl_s=60)]


async def test_it_is_claimed_as_if_it_had_been_submitted_so(
    backend: PostgresBackend, other: PostgresBackend, namespace: str
) -> None:
    await stored(backend, namespace, "a", "b", "c", "d")
    wanted = {(namespace, "c"): Priority.CRITICAL, (namespace, "a"): Priority.BULK}
    assert await backend.set_priorities(wanted) == set()
    for name, priority in (("c", Priority.CRITICAL), ("a", Priority.BULK), ("b", Priority.NORMAL)):
        assert (await backend.get_job(name, namespace=namespace)).priority is priority
    # By a process that had looked into the old lanes.
    assert await claimed(other, namespace, 2) == ["c", "b"]
    assert await claimed(other, namespace, 2) == ["d", "a"]


async def test_nothing_is_counted_twice(backend: PostgresBackend, namespace: str, ask: Ask) -> None:
    await stored(backend, namespace, "a", "b")
    for priority in (Priority.HIGH, Priority.HIGH, Priority.LOW, Priority.NORMAL, Priority.HIGH):
        await backend.set_priorities({(namespace, "a"): priority})
    stats = await backend.get_job_stats((), namespace=namespace)
    assert (stats.total_jobs, stats.pending_jobs) == (2, 2)
    assert len(await claimed(backend, namespace, 5)) == 2
    stats = await backend.get_job_stats((), namespace=namespace)
    assert (stats.total_jobs, stats.running_jobs) == (2, 2)


async def test_one_that_runs_is_told_of_and_follows_when_it_waits(
    backend: PostgresBackend, namespace: str
) -> None:
    await stored(backend, namespace, "a")
    assert await claimed(backend, namespace, 1) == ["a"]
    name = (namespace, "a")
    assert await backend.set_priorities({name: Priority.HIGH}) == {name}
    # It has the one that it has.
    assert await backend.set_priorities({name: Priority.NORMAL}) == set()
    outcome = Outcome("a", Event.FAIL, namespace=namespace, error=ErrorInfo("no"))
    [settled] = await backend.settle([outcome])
    assert settled.state is JobState.FAILED_RETRY
    assert await backend.set_priorities({name: Priority.HIGH}) == set()
    job = await backend.get_job("a", namespace=namespace)
    assert (job.priority, job.retry_count) == (Priority.HIGH, 1)
    assert await claimed(backend, namespace, 1) == ["a"]


async def test_what_waits_for_a_time_or_a_parent_goes_on_waiting(
    backend: PostgresBackend, namespace: str
) -> None:
    await stored(backend, namespace, "parent")
    await stored(backend, namespace, "child", depends_on=("parent",))
    await stored(backend, namespace, "later", delay_s=3600.0)
    for name in ("child", "later"):
        await backend.set_priorities({(namespace, name): Priority.CRITICAL})
    assert await claimed(backend, namespace, 5) == ["parent"]
    await backend.complete_job("parent", b"", namespace=namespace)
    assert await claimed(backend, namespace, 5) == ["child"]


async def test_what_has_ended_or_is_not_there_is_left_alone(
    backend: PostgresBackend, namespace: str
) -> None:
    await stored(backend, namespace, "a")
    await backend.cancel_jobs((), ["a"], namespace=namespace)
    names = [(namespace, "a"), (namespace, "nobody"), ("nowhere", "a")]
    assert await backend.set_priorities(dict.fromkeys(names, Priority.HIGH)) == set()
    assert (await backend.get_job("a", namespace=namespace)).priority is Priority.NORMAL


@pytest.mark.parametrize("round_", range(5))
async def test_beside_a_claim_each_job_is_claimed_once(
    backend: PostgresBackend, other: PostgresBackend, namespace: str, round_: int
) -> None:
    names = [uuid.uuid4().hex for _ in range(200)]
    await stored(backend, namespace, *names)
    wanted = {(namespace, name): Priority.HIGH for name in names[::2]}

    async def claim_all() -> list[str]:
        found: list[str] = []
        while some := await claimed(other, namespace, 20):
            found += some
        return found

    running, found = await asyncio.gather(backend.set_priorities(wanted), claim_all())
    found += await claim_all()
    assert sorted(found) == sorted(names)
    for name in running:
        job = await backend.get_job(name[1], namespace=namespace)
        assert job.priority is Priority.NORMAL
