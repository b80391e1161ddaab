"""Leases: renewed, run out, swept."""

import asyncio
from uuid import uuid4

from queue_operator.domain.job import Demand
from queue_operator.domain.lease import Held, LeaseAnswer, Leased, LeaseStatus, Lost
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.transition import REASON_WORKER_LOST
from queue_operator.testing.driving import apply, claim, job_in, passed, running, settle, submitted
from queue_operator.testing.store import TTL_S, Contract, Store


async def _extend(backend: Contract, job_id: str, token: str) -> LeaseAnswer:
    [answer] = await backend.extend_leases([Held(job_id, token)], lease_ttl_s=TTL_S)
    assert (answer.job_id, answer.token) == (job_id, token)
    return answer


async def _sweep(backend: Contract) -> list[Lost]:
    return await backend.expire_leases(lease_ttl_s=TTL_S)


async def _lose(backend: Contract, store: Store) -> None:
    """The leases of everything that runs come to their end."""
    await store.age(TTL_S + 1)
    await _sweep(backend)


async def test_a_renewed_lease_outlives_its_first_term(backend: Contract, store: Store) -> None:
    job, token = await running(backend)
    await store.age(TTL_S * 0.9)
    assert (await _extend(backend, job.id, token)).status is LeaseStatus.CURRENT
    await store.age(TTL_S * 0.9)
    assert await _sweep(backend) == []
    assert (await backend.get_job(job.id)).state is JobState.RUNNING


async def test_a_lease_that_runs_out_is_lost(backend: Contract, store: Store) -> None:
    job, token = await running(backend)
    kept, kept_token = await running(backend)
    await store.age(TTL_S + 1)
    await _extend(backend, kept.id, kept_token)
    assert await _sweep(backend) == [Lost(job.id, "default", "worker-1")]
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.attempt, stored.assignee_id) == (
        JobState.UNKNOWN_RETRY,
        1,
        "worker-1",
    )
    assert (await _extend(backend, job.id, token)).status is LeaseStatus.LOST
    assert await _sweep(backend) == []
    assert (await claim(backend, job, "worker-2")).attempt == 2
    assert (await _extend(backend, job.id, token)).status is LeaseStatus.TAKEN_OVER


async def test_an_expired_lease_that_nobody_swept_may_be_renewed(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    await store.age(TTL_S * 3)
    assert (await _extend(backend, job.id, token)).status is LeaseStatus.CURRENT
    assert await _sweep(backend) == []
    assert (await backend.get_job(job.id)).state is JobState.RUNNING


async def test_the_last_renewal_says_when_a_lease_runs_out(backend: Contract, store: Store) -> None:
    """Also when it is sooner than the one before."""
    job, token = await running(backend)
    for ttl_s in (TTL_S * 4, TTL_S):
        assert await backend.extend_leases([Held(job.id, token)], lease_ttl_s=ttl_s)
    await store.age(TTL_S + 1)
    assert await _sweep(backend) == [Lost(job.id, "default", "worker-1")]


async def test_a_renewal_says_nothing_about_the_lease_that_comes_after(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend, max_attempts=3)
    await backend.extend_leases([Held(job.id, token)], lease_ttl_s=TTL_S * 4)
    await apply(backend, job, Event.LOSE, token)
    await claim(backend, job, "worker-2")
    await store.age(TTL_S + 1)
    assert await _sweep(backend) == [Lost(job.id, "default", "worker-2")]


async def test_one_heartbeat_answers_for_every_job_in_order(backend: Contract) -> None:
    current, t1 = await running(backend)
    cancelling, t2 = await job_in(backend, JobState.CANCELLING)
    lost, t3 = await job_in(backend, JobState.UNKNOWN_RETRY)
    done, t4 = await job_in(backend, JobState.COMPLETED)
    forced, t5 = await running(backend)
    await backend.cancel_jobs([], [forced.id], force=True)
    held = [
        Held(done.id, t4 or ""),
        Held(current.id, t1),
        Held("missing", str(uuid4())),
        Held(cancelling.id, t2 or ""),
        Held(lost.id, t3 or ""),
        Held(current.id, str(uuid4())),
        Held(forced.id, t5),
        Held(current.id, "no token at all"),
        Held(current.id, t1, "no such namespace"),
    ]
    answers = await backend.extend_leases(held, lease_ttl_s=TTL_S)
    assert [(a.job_id, a.token) for a in answers] == [(h.job_id, h.token) for h in held]
    status = LeaseStatus
    assert [a.status for a in answers] == [
        status.ENDED,
        status.CURRENT,
        status.ENDED,
        status.CURRENT,
        status.LOST,
        status.TAKEN_OVER,
        status.CURRENT,
        status.TAKEN_OVER,
        status.ENDED,
    ]
    assert [(a.cancel_requested, a.cancel_forced) for a in answers if a.cancel_requested] == [
        (True, False),
        (True, True),
    ]
    assert await backend.extend_leases([], lease_ttl_s=TTL_S) == []


async def test_what_an_assignee_has_is_told_by_token(backend: Contract, store: Store) -> None:
    """Running or being cancelled, of any namespace; what ran out counts until it is swept."""
    for namespace in ("default", "default", "default", "other"):
        await submitted(backend, namespace=namespace, type="mail")
    demands = [
        Demand(assignee_id="w1", limit=2, host="h1"),
        Demand(assignee_id="w2", limit=1, host="h2"),
        Demand(assignee_id="w1", limit=1, namespace="other"),
    ]
    given = await backend.claim(demands, lease_ttl_s=TTL_S)
    hosts = {"w1": "h1", "w2": "h2"}
    told = {
        Leased(a.job_id, a.namespace, a.assignee_id, a.token, "mail", host)
        for a in given
        for host in [hosts[a.assignee_id] if a.namespace == "default" else ""]
    }
    assert len(told) == 4
    assert set(await backend.leased(["w1", "w2", "nobody"])) == told
    mine = {one for one in told if one.assignee_id == "w1"}
    assert set(await backend.leased(["w1"])) == mine
    done, stopping = (one for one in mine if one.namespace == "default")
    await backend.complete_job(done.job_id, b"")
    await backend.cancel_jobs([], [stopping.job_id])
    await store.age(TTL_S + 1)
    assert set(await backend.leased(["w1"])) == mine - {done}
    await _sweep(backend)
    assert await backend.leased(["w1", "w2"]) == []
    assert await backend.leased([]) == []


async def test_a_lost_job_that_was_cancelled_is_given_up(backend: Contract, store: Store) -> None:
    job, _ = await job_in(backend, JobState.CANCELLING)
    await store.age(TTL_S + 1)
    assert await _sweep(backend) == [Lost(job.id, "default", "worker-1")]
    assert (await backend.get_job(job.id)).state is JobState.UNKNOWN_STOPPED


async def test_a_job_lost_on_its_last_attempt_waits_one_ttl_for_a_late_outcome(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend, max_attempts=1)
    late, late_token = await running(backend, max_attempts=1)
    await store.age(TTL_S + 1)
    assert len(await _sweep(backend)) == 2
    assert await backend.dequeue_jobs("w", [], 5) == []
    assert (await apply(backend, late, Event.COMPLETE, late_token)).error is None
    await store.age(TTL_S - 2)
    await _sweep(backend)
    assert (await backend.get_job(job.id)).state is JobState.UNKNOWN_RETRY
    await store.age(3)
    assert await backend.dequeue_jobs("w", [], 5) == []
    await _sweep(backend)
    dead = await backend.get_job(job.id)
    assert dead.state is JobState.DEAD_LETTER
    assert dead.error is not None
    assert (dead.error.category, dead.error.code) == (ErrorCategory.SYSTEM, REASON_WORKER_LOST)
    assert (await backend.get_job(late.id)).state is JobState.COMPLETED
    assert (await apply(backend, job, Event.COMPLETE, token)).error is not None


async def test_a_job_that_lost_its_worker_twice_waits_its_backoff_and_is_told_apart(
    backend: Contract, store: Store
) -> None:
    backoff = Backoff(BackoffStrategy.LINEAR, 100.0)
    job, _ = await running(backend, max_attempts=4, backoff=backoff)
    await _lose(backend, store)
    assert (await backend.get_job(job.id)).error is None
    again = await claim(backend, job, "worker-2")
    assert (again.attempt, again.alone) == (2, False)
    await _lose(backend, store)
    lost = await backend.get_job(job.id)
    assert lost.error is not None
    assert (lost.error.category, lost.error.code) == (ErrorCategory.SYSTEM, "WORKER_LOST_AGAIN")
    assert (lost.state, lost.attempt, lost.failure_count) == (JobState.UNKNOWN_RETRY, 2, 0)
    await store.age(199)
    assert await backend.dequeue_jobs("w", [], 1) == []
    await passed(backend, store, 2)
    third = await claim(backend, job, "worker-3")
    assert (third.attempt, third.alone) == (3, True)
    # Nobody saw that one: it says nothing, and the error stays.
    release = Outcome(job.id, Event.RELEASE, token=third.token, retry_after_s=10)
    assert (await settle(backend, release)).error is None
    assert await backend.dequeue_jobs("w", [], 1) == []
    await passed(backend, store, 11)
    third = await claim(backend, job, "worker-3")
    assert (third.attempt, third.alone) == (3, True)
    failed = ErrorInfo("boom", code="MINE")
    await settle(backend, Outcome(job.id, Event.FAIL, token=third.token, error=failed))
    await passed(backend, store, 1000)
    assert not (await claim(backend, job, "worker-4")).alone


async def test_a_release_between_two_losses_is_passed_over(backend: Contract, store: Store) -> None:
    job, _ = await running(backend, max_attempts=4)
    await _lose(backend, store)
    token = (await claim(backend, job)).token
    await apply(backend, job, Event.RELEASE, token)
    await claim(backend, job)
    await _lose(backend, store)
    lost = await backend.get_job(job.id)
    assert lost.error is not None
    assert lost.error.code == "WORKER_LOST_AGAIN"


async def test_jobs_that_somebody_takes_from_a_worker_are_no_suspects(
    backend: Contract, store: Store
) -> None:
    job, _ = await running(backend, max_attempts=4)
    await _lose(backend, store)
    await claim(backend, job, "worker-2")
    await backend.mark_worker_unresponsive("worker-2")
    taken = await backend.get_job(job.id)
    assert (taken.state, taken.attempt, taken.error) == (JobState.UNKNOWN_RETRY, 1, None)
    assert not (await claim(backend, job, "worker-3")).alone


async def test_an_execution_over_its_timeout_fails_one_ttl_later(
    backend: Contract, store: Store
) -> None:
    backoff = Backoff(BackoffStrategy.CONSTANT, 5.0)
    job, token = await running(backend, timeout_s=100.0, max_attempts=2, backoff=backoff)
    await store.age(100 + TTL_S - 1)
    await _extend(backend, job.id, token)
    assert await _sweep(backend) == []
    await store.age(2)
    await _extend(backend, job.id, token)
    assert await _sweep(backend) == [Lost(job.id, "default", "worker-1")]
    failed = await backend.get_job(job.id)
    assert failed.error is not None
    assert failed.error.category is ErrorCategory.TIMEOUT
    assert (failed.state, failed.failure_count) == (JobState.FAILED_RETRY, 1)
    assert (await _extend(backend, job.id, token)).status is LeaseStatus.ENDED
    await store.age(5)
    [again] = await backend.dequeue_jobs("w", [], 1, lease_ttl_s=TTL_S)
    assert again.attempt == 2
    await store.age(100 + TTL_S + 1)
    await _sweep(backend)
    assert (await backend.get_job(job.id)).state is JobState.DEAD_LETTER


async def test_a_bare_dequeue_never_expires(backend: Contract, store: Store) -> None:
    job = await submitted(backend)
    await backend.dequeue_jobs("w", [], 1)
    for _ in range(2):
        await store.age(1_000_000)
        assert await _sweep(backend) == []
        assert (await backend.get_job(job.id)).state is JobState.RUNNING
        assert [one.job_id for one in await backend.leased(["w"])] == [job.id]


async def test_after_an_outage_the_workers_get_one_ttl_to_come_back(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    other, _ = await running(backend)
    await store.age(TTL_S * 10, outage=True)
    assert await _sweep(backend) == []
    await store.age(TTL_S - 2)
    assert await _sweep(backend) == []
    await _extend(backend, job.id, token)
    await store.age(3)
    assert await _sweep(backend) == [Lost(other.id, "default", "worker-1")]


async def test_sweeps_that_are_rarer_than_a_ttl_find_what_had_ended_at_the_one_before(
    backend: Contract, store: Store
) -> None:
    job, _ = await running(backend)
    renewed, token = await running(backend)
    await store.age(TTL_S * 2, outage=True)
    assert await _sweep(backend) == []
    await store.age(TTL_S / 2, outage=True)
    # It runs out later, and so has not had its TTL at the next sweep.
    await _extend(backend, renewed.id, token)
    await store.age(TTL_S * 2, outage=True)
    assert await _sweep(backend) == [Lost(job.id, "default", "worker-1")]
    await store.age(TTL_S * 2, outage=True)
    assert await _sweep(backend) == [Lost(renewed.id, "default", "worker-1")]


async def test_a_late_sweep_after_an_outage_leaves_one_ttl_to_what_ran_out_since(
    backend: Contract, store: Store
) -> None:
    assert await _sweep(backend) == []
    job, token = await running(backend)
    await store.age(TTL_S * 10, outage=True)
    assert await _sweep(backend) == []
    await _extend(backend, job.id, token)
    # A second outage: what was renewed in between is not lost to it.
    await store.age(TTL_S * 10, outage=True)
    assert await _sweep(backend) == []
    assert (await _extend(backend, job.id, token)).status is LeaseStatus.CURRENT
    await store.age(TTL_S - 1)
    assert await _sweep(backend) == []


async def test_sweepers_at_the_same_time_lose_each_job_once(store: Store) -> None:
    replicas = [await store.open() for _ in range(4)]
    for n in range(60):
        await submitted(replicas[0], type="t", max_attempts=1 + n % 2)
    demand = Demand(assignee_id="w", limit=60)
    assert len(await replicas[0].claim([demand], lease_ttl_s=TTL_S)) == 60
    await store.age(TTL_S + 1)
    lost = [one for found in await asyncio.gather(*map(_sweep, replicas)) for one in found]
    assert len({one.job_id for one in lost}) == len(lost) == 60


async def test_a_sweep_takes_at_most_its_limit(backend: Contract, store: Store) -> None:
    for _ in range(5):
        await running(backend)
    await store.age(TTL_S + 1)
    assert len(await backend.expire_leases(lease_ttl_s=TTL_S, limit=2)) == 2
    assert len(await _sweep(backend)) == 3
