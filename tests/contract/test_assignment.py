"""DequeueJobs and claim: which jobs, in what order, to whom."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.contract.driving import a_job, claim, submitted
from tests.contract.store import TTL_S, Store

from queue_operator.backends.protocol import Backend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.ordering import PRIORITY_BONUS, Priority
from queue_operator.domain.states import JobState

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


def at(minutes: float, **fields: object) -> Job:
    return a_job(created_at=EPOCH + timedelta(minutes=minutes), **fields)


async def drained(
    backend: Backend, limit: int = 1, types: frozenset[str] = frozenset()
) -> list[str]:
    """Ids in the order of claims of `limit` each."""
    taken: list[str] = []
    while True:
        demand = Demand(assignee_id="w", limit=limit, types=types)
        claimed = await backend.claim([demand], lease_ttl_s=TTL_S)
        if not claimed:
            return taken
        assert len(claimed) <= limit
        taken += [assignment.job_id for assignment in claimed]


async def test_the_oldest_is_taken_first_whatever_the_order_of_submission(
    backend: Backend,
) -> None:
    jobs = [at(minutes) for minutes in (5, 1, 4, 2, 3)]
    await backend.enqueue_jobs(jobs)
    expected = [job.id for job in sorted(jobs, key=lambda job: job.created_at or EPOCH)]
    assert await drained(backend) == expected


async def test_jobs_of_one_time_are_taken_in_order_of_submission(backend: Backend) -> None:
    jobs = [at(0, type="same") for _ in range(20)]
    await backend.enqueue_jobs(jobs)
    assert await drained(backend, limit=3) == [job.id for job in jobs]


async def test_a_priority_counts_as_age(backend: Backend) -> None:
    jobs = {priority: at(0, priority=priority) for priority in Priority}
    older = at(-90)
    await backend.enqueue_jobs([*reversed(jobs.values()), older])
    by_bonus = sorted(Priority, key=lambda priority: -PRIORITY_BONUS[priority])
    expected = [jobs[priority].id for priority in by_bonus]
    # An hour and a half of age is more than HIGH's hour.
    expected.insert(expected.index(jobs[Priority.HIGH].id), older.id)
    assert await drained(backend) == expected


async def test_a_retry_queues_up_by_the_time_of_its_failure(backend: Backend) -> None:
    old, other = at(0, type="t"), at(1, type="t")
    await backend.enqueue_jobs([old, other])
    demand = Demand(assignee_id="w", limit=1)
    [first] = await backend.claim([demand], lease_ttl_s=TTL_S)
    await backend.fail_job(old.id, "boom", token=first.token)
    assert await drained(backend) == [other.id, old.id]


async def test_a_lost_job_keeps_its_place(backend: Backend) -> None:
    old, other = at(0, type="t"), at(1, type="t")
    await backend.enqueue_jobs([old, other])
    assert [j.id for j in await backend.dequeue_jobs("gone", [], 1)] == [old.id]
    await backend.mark_worker_unresponsive("gone")
    assert await drained(backend) == [old.id, other.id]


async def test_a_worker_gets_only_jobs_that_carry_all_its_tags(backend: Backend) -> None:
    both = await submitted(backend, tags=frozenset({"a", "b", "c"}))
    await submitted(backend, tags=frozenset({"a"}))
    await submitted(backend)
    await submitted(backend, tags=frozenset({"A", "B"}))
    jobs = await backend.dequeue_jobs("w", ["b", "a"], 10)
    assert [job.id for job in jobs] == [both.id]
    assert len(await backend.dequeue_jobs("w", [], 10)) == 3


async def test_a_claim_filters_on_types_and_namespace(backend: Backend) -> None:
    mail = await submitted(backend, type="mail")
    await submitted(backend, type="report")
    await submitted(backend, type="mail", namespace="other")
    assert await drained(backend, types=frozenset({"mail", "sms"})) == [mail.id]
    assert len(await backend.dequeue_jobs("w", [], 10, namespace="other")) == 1
    assert await backend.dequeue_jobs("w", [], 10, namespace="never seen") == []


async def test_a_dequeued_job_is_running_and_shows_its_assignee(backend: Backend) -> None:
    job = await submitted(backend, payload=b"x")
    [dequeued] = await backend.dequeue_jobs("worker-7", [], 5)
    assert dequeued == await backend.get_job(job.id)
    assert (dequeued.state, dequeued.assignee_id) == (JobState.RUNNING, "worker-7")
    assert dequeued.started_at == dequeued.assigned_at is not None
    assert (dequeued.attempt, dequeued.payload) == (1, b"x")


async def test_an_assignment_carries_what_a_worker_needs(backend: Backend) -> None:
    job = await submitted(
        backend,
        payload=b"\x00\xff",
        content_type="application/json",
        tags=frozenset({"a"}),
        priority=Priority.LOW,
        correlation_id="c",
        timeout_s=9.0,
    )
    assignment = await claim(backend, job)
    assert (assignment.payload, assignment.content_type) == (b"\x00\xff", "application/json")
    assert (assignment.tags, assignment.priority) == (frozenset({"a"}), Priority.LOW)
    assert (assignment.correlation_id, assignment.timeout_s) == ("c", 9.0)
    assert (assignment.attempt, assignment.assignee_id) == (1, "worker-1")
    assert assignment.created_at == (await backend.get_job(job.id)).created_at


async def test_streams_with_equal_filters_share_fairly_within_their_limits(
    backend: Backend,
) -> None:
    await backend.enqueue_jobs([a_job(type="t") for _ in range(10)])
    demands = [Demand(assignee_id=name, limit=n) for name, n in (("a", 9), ("b", 9), ("c", 2))]
    claimed = await backend.claim(demands, lease_ttl_s=TTL_S)
    assert Counter(a.assignee_id for a in claimed) == {"a": 4, "b": 4, "c": 2}
    for assignment in claimed:
        assert (await backend.get_job(assignment.job_id)).assignee_id == assignment.assignee_id


async def test_streams_with_different_filters_each_get_their_own(backend: Backend) -> None:
    await submitted(backend, tags=frozenset({"gpu"}))
    await submitted(backend, tags=frozenset({"cpu"}))
    demands = [
        Demand(assignee_id=name, limit=5, tags=frozenset({name})) for name in ("gpu", "cpu", "tpu")
    ]
    claimed = await backend.claim(demands, lease_ttl_s=TTL_S)
    assert {(a.assignee_id, *a.tags) for a in claimed} == {("gpu", "gpu"), ("cpu", "cpu")}


async def test_a_delayed_job_waits_for_its_time(backend: Backend, store: Store) -> None:
    delayed = await submitted(backend, delay_s=60.0)
    later = await submitted(backend, scheduled_at=datetime.now(UTC) + timedelta(hours=1))
    assert await backend.dequeue_jobs("w", [], 5) == []
    await store.age(61)
    assert [job.id for job in await backend.dequeue_jobs("w", [], 5)] == [delayed.id]
    await store.age(3600)
    assert [job.id for job in await backend.dequeue_jobs("w", [], 5)] == [later.id]


@pytest.mark.parametrize("limit", [1, 7, 200])
@pytest.mark.parametrize("lanes", [1, 3, 60])
async def test_the_order_holds_across_lanes(backend: Backend, lanes: int, limit: int) -> None:
    # Not spread evenly: the first lane holds half of all jobs.
    lane_of = [0 if n % 2 else n % lanes for n in range(200)]
    jobs = [at(n, type="t", tags=frozenset({f"lane-{lane_of[n]}"})) for n in range(200)]
    await backend.enqueue_jobs(jobs)
    taken = await drained(backend, limit)
    expected = [job.id for job in jobs]
    chunks = range(0, 200, limit)
    # Within one claim the order of the answer is free.
    assert [set(taken[n : n + limit]) for n in chunks] == [
        set(expected[n : n + limit]) for n in chunks
    ]


async def test_a_job_that_comes_to_lie_before_those_taken_is_found(backend: Backend) -> None:
    await backend.enqueue_jobs([at(n, type="t") for n in range(10)])
    assert len(await drained(backend, 5)) == 10
    urgent = at(-1000, type="t")
    await backend.enqueue_job(urgent)
    assert await drained(backend) == [urgent.id]


async def test_a_job_of_another_process_is_available_at_once(store: Store) -> None:
    here, there = await store.open(), await store.open()
    await submitted(here, type="t")
    assert len(await here.dequeue_jobs("w", [], 5)) == 1
    old = at(-1000, type="t")
    await there.enqueue_job(old)
    assert [job.id for job in await here.dequeue_jobs("w", [], 5)] == [old.id]


async def test_claimers_at_the_same_time_never_share_a_job(store: Store) -> None:
    backends = [await store.open() for _ in range(4)]
    jobs = [a_job(type=f"t{n % 3}") for n in range(400)]
    await backends[0].enqueue_jobs(jobs)
    taken: list[str] = []

    async def work(backend: Backend, name: str) -> None:
        # A claim may come back short while others hold rows, but not for ever.
        for _ in range(60):
            taken.extend(job.id for job in await backend.dequeue_jobs(name, [], 9))

    await asyncio.gather(*(work(b, f"w{n}-{m}") for n, b in enumerate(backends) for m in range(2)))
    assert sorted(taken) == sorted(job.id for job in jobs)
    assert (await backends[0].get_job_stats([])).running_jobs == 400
