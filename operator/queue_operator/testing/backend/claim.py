"""Claims: in what order, how shared among streams, and what they hand out."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.domain.job import Demand, Job
from queue_operator.domain.ordering import PRIORITY_BONUS, Priority
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, apply, claim, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import COUNTS_AS_RETRY

_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


def _at(minutes: float, **fields: object) -> Job:
    return a_job(created_at=_EPOCH + timedelta(minutes=minutes), **fields)


async def _drained(
    backend: Contract, limit: int = 1, types: frozenset[str] = frozenset()
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


async def test_jobs_of_one_time_are_taken_in_order_of_submission(backend: Contract) -> None:
    jobs = [_at(0, type="same") for _ in range(20)]
    await backend.enqueue_jobs(jobs)
    assert await _drained(backend, limit=3) == [job.id for job in jobs]


@proves("backend-api.Invariants.rule.9")
async def test_a_priority_counts_as_age(backend: Contract) -> None:
    jobs = {priority: _at(0, priority=priority) for priority in Priority}
    older = _at(-90)
    await backend.enqueue_jobs([*reversed(jobs.values()), older])
    by_bonus = sorted(Priority, key=lambda priority: -PRIORITY_BONUS[priority])
    expected = [jobs[priority].id for priority in by_bonus]
    # An hour and a half of age is more than HIGH's hour.
    expected.insert(expected.index(jobs[Priority.HIGH].id), older.id)
    assert await _drained(backend) == expected


@proves("backend-api.Invariants.rule.9")
async def test_a_retry_queues_up_by_the_time_of_its_failure(backend: Contract) -> None:
    old, other = _at(0, type="t"), _at(1, type="t")
    await backend.enqueue_jobs([old, other])
    demand = Demand(assignee_id="w", limit=1)
    [first] = await backend.claim([demand], lease_ttl_s=TTL_S)
    await backend.fail_job(old.id, "boom", token=first.token)
    assert await _drained(backend) == [other.id, old.id]


@pytest.mark.parametrize("event", sorted(COUNTS_AS_RETRY - {Event.STOP_WITH_RETRY}))
async def test_what_comes_after_a_job_of_a_later_time_is_found_at_once(
    backend: Contract, event: Event
) -> None:
    """Its place was in the future, and all that comes now has one before it."""
    early = a_job(created_at=datetime.now(UTC) + timedelta(hours=1))
    await backend.enqueue_job(early)
    first = await claim(backend, early)
    await apply(backend, early, event, first.token)
    again = await claim(backend, early)
    assert again.token != first.token
    new = a_job(type=early.type)
    await backend.enqueue_job(new)
    assert (await claim(backend, new)).job_id == new.id


async def test_a_lost_job_keeps_its_place(backend: Contract) -> None:
    old, other = _at(0, type="t"), _at(1, type="t")
    await backend.enqueue_jobs([old, other])
    assert [j.id for j in await backend.dequeue_jobs("gone", [], 1)] == [old.id]
    await backend.mark_worker_unresponsive("gone")
    assert await _drained(backend) == [old.id, other.id]


async def test_a_claim_filters_on_types_and_namespace(backend: Contract) -> None:
    mail = await submitted(backend, type="mail")
    await submitted(backend, type="report")
    await submitted(backend, type="mail", namespace="other")
    assert await _drained(backend, types=frozenset({"mail", "sms"})) == [mail.id]
    assert len(await backend.dequeue_jobs("w", [], 10, namespace="other")) == 1
    assert await backend.dequeue_jobs("w", [], 10, namespace="never seen") == []


async def test_an_assignment_carries_what_a_worker_needs(backend: Contract) -> None:
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
    backend: Contract,
) -> None:
    await backend.enqueue_jobs([a_job(type="t") for _ in range(10)])
    demands = [Demand(assignee_id=name, limit=n) for name, n in (("a", 9), ("b", 9), ("c", 2))]
    claimed = await backend.claim(demands, lease_ttl_s=TTL_S)
    assert Counter(a.assignee_id for a in claimed) == {"a": 4, "b": 4, "c": 2}
    for assignment in claimed:
        assert (await backend.get_job(assignment.job_id)).assignee_id == assignment.assignee_id


async def test_streams_with_different_filters_each_get_their_own(backend: Contract) -> None:
    await submitted(backend, tags=frozenset({"gpu"}))
    await submitted(backend, tags=frozenset({"cpu"}))
    demands = [
        Demand(assignee_id=name, limit=5, tags=frozenset({name})) for name in ("gpu", "cpu", "tpu")
    ]
    claimed = await backend.claim(demands, lease_ttl_s=TTL_S)
    assert {(a.assignee_id, *a.tags) for a in claimed} == {("gpu", "gpu"), ("cpu", "cpu")}


async def test_who_only_claims_gets_what_was_delayed_and_what_backed_off(
    backend: Contract, store: Store
) -> None:
    wait = Backoff(strategy=BackoffStrategy.CONSTANT, initial_delay_s=60.0)
    failed = await submitted(backend, backoff=wait)
    await apply(backend, failed, Event.FAIL, (await claim(backend, failed)).token)
    delayed = await submitted(backend, delay_s=60.0)
    assert await _drained(backend) == []
    await store.age(61.0)
    assert sorted(await _drained(backend)) == sorted([failed.id, delayed.id])


async def test_who_claims_and_sweeps_gets_what_was_delayed_while_there_is_other_work(
    backend: Contract, store: Store
) -> None:
    urgent = await submitted(backend, delay_s=60.0, priority=Priority.CRITICAL)
    usual = await submitted(backend)
    await store.age(61.0)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert await _drained(backend) == [urgent.id, usual.id]


async def test_a_delayed_job_waits_for_its_time(backend: Contract, store: Store) -> None:
    delayed = await submitted(backend, delay_s=60.0)
    later = await submitted(backend, scheduled_at=datetime.now(UTC) + timedelta(hours=1))
    assert await backend.dequeue_jobs("w", [], 5) == []
    await store.age(61)
    assert [job.id for job in await backend.dequeue_jobs("w", [], 5)] == [delayed.id]
    await store.age(3600)
    assert [job.id for job in await backend.dequeue_jobs("w", [], 5)] == [later.id]


@proves("backend-api.Invariants.rule.9")
@pytest.mark.parametrize("limit", [1, 7, 200])
@pytest.mark.parametrize("lanes", [1, 3, 60])
async def test_the_order_holds_across_lanes(backend: Contract, lanes: int, limit: int) -> None:
    # Not spread evenly: the first lane holds half of all jobs.
    lane_of = [0 if n % 2 else n % lanes for n in range(200)]
    jobs = [_at(n, type="t", tags=frozenset({f"lane-{lane_of[n]}"})) for n in range(200)]
    await backend.enqueue_jobs(jobs)
    taken = await _drained(backend, limit)
    expected = [job.id for job in jobs]
    chunks = range(0, 200, limit)
    # Within one claim the order of the answer is free.
    assert [set(taken[n : n + limit]) for n in chunks] == [
        set(expected[n : n + limit]) for n in chunks
    ]


async def test_a_job_that_comes_to_lie_before_those_taken_is_found(backend: Contract) -> None:
    await backend.enqueue_jobs([_at(n, type="t") for n in range(10)])
    assert len(await _drained(backend, 5)) == 10
    urgent = _at(-1000, type="t")
    await backend.enqueue_job(urgent)
    assert await _drained(backend) == [urgent.id]


async def test_a_job_of_another_process_is_available_at_once(store: Store) -> None:
    here, there = await store.open(), await store.open()
    await submitted(here, type="t")
    assert len(await here.dequeue_jobs("w", [], 5)) == 1
    old = _at(-1000, type="t")
    await there.enqueue_job(old)
    assert [job.id for job in await here.dequeue_jobs("w", [], 5)] == [old.id]


async def test_jobs_come_in_the_order_of_the_demands(backend: Contract) -> None:
    """Also where two of them could be given the same job."""
    narrow, wide, apart = a_job(type="t"), a_job(type="u"), a_job(type="t", namespace="other")
    await backend.enqueue_jobs([apart, wide, narrow])
    demands = [
        Demand(assignee_id="a", limit=1, types=frozenset({"t"})),
        Demand(assignee_id="b", limit=1),
        Demand(assignee_id="c", limit=1, namespace="other"),
    ]
    claimed = await backend.claim(demands, lease_ttl_s=TTL_S)
    assert [one.job_id for one in claimed] == [narrow.id, wide.id, apart.id]


async def test_who_asks_first_is_served_first_among_demands_that_overlap(
    backend: Contract,
) -> None:
    await backend.enqueue_jobs([_at(0, id="a-u", type="u"), _at(1, id="a-t", type="t")])
    demands = [
        Demand(assignee_id="first", limit=1, types=frozenset({"u"})),
        Demand(assignee_id="second", limit=2),
        Demand(assignee_id="third", limit=1, types=frozenset({"t"})),
    ]
    claimed = await backend.claim(demands, lease_ttl_s=TTL_S)
    assert [(one.assignee_id, one.job_id) for one in claimed] == [
        ("first", "a-u"),
        ("second", "a-t"),
    ]
