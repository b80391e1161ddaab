"""`queue-semantics.md`: leases, heartbeats, and what fails how."""

import pytest

from queue_operator.domain.errors import StaleLease, Unavailable
from queue_operator.domain.lease import (
    DEFAULT_LEASE_TTL_S,
    Held,
    LeaseStatus,
    heartbeat_interval_s,
)
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.breaking import reachable
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import apply, claim, job_in, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store


async def _beat(backend: Contract, job_id: str, token: str) -> LeaseStatus:
    [answer] = await backend.extend_leases([Held(job_id, token)], lease_ttl_s=TTL_S)
    return answer.status


async def _swept(backend: Contract) -> list[str]:
    return [lost.job_id for lost in await backend.expire_leases(lease_ttl_s=TTL_S)]


# Lease basics and duration


@proves("queue-semantics.LeaseBasics.rule.1")
async def test_every_lease_has_a_token_of_its_own(backend: Contract) -> None:
    tokens = [(await running(backend))[1] for _ in range(50)]
    assert len(set(tokens)) == 50


@proves("queue-semantics.LeaseBasics.rule.2")
async def test_the_lease_version_only_grows(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=9)
    seen = [0]
    for event in (Event.LOSE, Event.RELEASE, Event.FAIL, Event.EXHAUST):
        token = (await claim(backend, job)).token
        seen.append((await backend.get_job(job.id)).lease_version)
        await apply(backend, job, event, token)
        seen.append((await backend.get_job(job.id)).lease_version)
    await apply(backend, job, Event.RETRY_NOW)
    seen.append((await backend.get_job(job.id)).lease_version)
    assert seen == [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]


@proves("queue-semantics.LeaseBasics.rule.3", "queue-semantics.LeaseDuration.rule.2")
async def test_a_sweep_frees_a_job_after_its_lease_and_not_before(
    backend: Contract, store: Store
) -> None:
    job, _ = await running(backend)
    await store.age(TTL_S - 1)
    assert await _swept(backend) == []
    await store.age(2)
    assert await _swept(backend) == [job.id]


@proves("queue-semantics.LeaseDuration.rule.1")
@pytest.mark.parametrize("ttl_s", [DEFAULT_LEASE_TTL_S, 500.0])
async def test_the_ttl_counts_from_the_claim(backend: Contract, store: Store, ttl_s: float) -> None:
    assert DEFAULT_LEASE_TTL_S == 5.0
    # However long it waited before.
    job = await submitted(backend)
    await store.age(1000.0)
    await claim(backend, job, ttl_s=ttl_s)
    await store.age(ttl_s - 1)
    assert await _swept(backend) == []
    await store.age(2)
    assert await _swept(backend) == [job.id]


# Lease fencing


@proves("queue-semantics.LeaseFencing.rule.1")
async def test_an_outcome_with_a_token_needs_the_current_one(backend: Contract) -> None:
    job, token = await running(backend)
    with pytest.raises(StaleLease):
        await backend.complete_job(job.id, b"", token="another")  # noqa: S106
    assert await backend.complete_job(job.id, b"", token=token) == {"worker-1": 1}
    # The library's calls carry none.
    other, _ = await running(backend)
    assert await backend.complete_job(other.id, b"") == {"worker-1": 1}


@proves("queue-semantics.LeaseFencing.rule.2", "queue-semantics.LeaseFencing.rule.3")
async def test_a_stale_token_raises_and_undoes_nothing(backend: Contract, store: Store) -> None:
    job, old = await running(backend)
    await store.age(TTL_S + 1)
    await _swept(backend)
    await claim(backend, job, "worker-2")
    before = await backend.get_job(job.id)
    for call in (
        backend.complete_job(job.id, b"", token=old),
        backend.fail_job(job.id, "boom", token=old),
        backend.stop_job(job.id, "", token=old),
        backend.mark_job_unknown_stopped(job.id, "", token=old),
    ):
        with pytest.raises(StaleLease):
            await call
    assert await backend.get_job(job.id) == before


# Heartbeats


@proves("queue-semantics.LeaseExtension.rule.1", "queue-semantics.SeparationOfConcerns.rule.3")
async def test_a_job_longer_than_the_ttl_lives_on_by_heartbeats(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    assert heartbeat_interval_s(TTL_S) == pytest.approx(TTL_S / 3)
    for _ in range(12):
        await store.age(heartbeat_interval_s(TTL_S))
        assert await _beat(backend, job.id, token) is LeaseStatus.CURRENT
        assert await _swept(backend) == []
    assert await backend.complete_job(job.id, b"", token=token) == {"worker-1": 1}


@proves("queue-semantics.LeaseExtension.rule.2")
async def test_a_heartbeat_extends_what_it_names_by_the_ttl_from_now(
    backend: Contract, store: Store
) -> None:
    named, token = await running(backend)
    unnamed, _ = await running(backend)
    await store.age(TTL_S - 1)
    await _beat(backend, named.id, token)
    await store.age(TTL_S - 1)
    assert await _swept(backend) == [unnamed.id]
    await store.age(2)
    assert await _swept(backend) == [named.id]


@proves("queue-semantics.LeaseExtension.rule.3")
async def test_a_heartbeat_learns_that_its_job_has_ended(backend: Contract, store: Store) -> None:
    done, token = await running(backend)
    await backend.complete_job(done.id, b"", token=token)
    assert await _beat(backend, done.id, token) is LeaseStatus.ENDED
    job, old = await running(backend)
    await backend.mark_worker_unresponsive("worker-1")
    await claim(backend, job, "worker-2")
    await store.age(TTL_S - 1)
    assert await _beat(backend, job.id, old) is LeaseStatus.TAKEN_OVER
    # What is not the newer lease's does not extend it.
    await store.age(2)
    assert await _swept(backend) == [job.id]


# Expiry and reclaim


@proves("queue-semantics.LeaseExpiry.rule.1")
async def test_an_expired_lease_that_nobody_swept_is_still_held(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    await store.age(TTL_S * 3)
    assert (await backend.get_job(job.id)).state is JobState.RUNNING
    assert await backend.dequeue_jobs("w", [], 5) == []
    assert await _beat(backend, job.id, token) is LeaseStatus.CURRENT


@proves(
    "queue-semantics.LeaseExpiry.rule.2",
    "queue-semantics.LeaseExpiry.rule.3",
    "queue-semantics.LeaseExpiry.rule.4",
    "queue-semantics.LeaseExpiry.rule.5",
)
async def test_a_job_is_claimed_anew_after_its_lease_was_swept(
    backend: Contract, store: Store
) -> None:
    job, old = await running(backend)
    await store.age(TTL_S + 1)
    assert await _swept(backend) == [job.id]
    new = (await claim(backend, job, "worker-2")).token
    assert (new != old, (await backend.get_job(job.id)).lease_version) == (True, 2)
    with pytest.raises(StaleLease):
        await backend.complete_job(job.id, b"old", token=old)
    await backend.complete_job(job.id, b"new", token=new)
    attempts = (await backend.get_history(job.id)).attempts
    assert [one.assignee_id for one in attempts] == ["worker-1", "worker-2"]
    assert [one.token for one in attempts] == [old, new]


# Lease and execution timeout


@proves("queue-semantics.SeparationOfConcerns.rule.1")
async def test_a_handler_may_run_longer_than_the_ttl(backend: Contract, store: Store) -> None:
    job, token = await running(backend)
    for _ in range(100):
        await store.age(TTL_S - 1)
        await _beat(backend, job.id, token)
    assert await _swept(backend) == []
    assert (await backend.get_job(job.id)).state is JobState.RUNNING


@proves(
    "queue-semantics.SeparationOfConcerns.rule.2", "queue-semantics.SeparationOfConcerns.rule.5"
)
async def test_an_execution_timeout_ends_a_job_whose_heartbeats_go_on(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend, timeout_s=200.0, max_attempts=1)
    for _ in range(5):
        await store.age(TTL_S - 10)
        assert await _beat(backend, job.id, token) is LeaseStatus.CURRENT
        assert await _swept(backend) == []
    await store.age(TTL_S - 10)
    await _beat(backend, job.id, token)
    assert await _swept(backend) == [job.id]
    dead = await backend.get_job(job.id)
    assert dead.state is JobState.DEAD_LETTER
    assert dead.error is not None
    assert dead.error.category is ErrorCategory.TIMEOUT


@proves("queue-semantics.SeparationOfConcerns.rule.4")
async def test_a_silent_job_is_taken_back_long_before_its_execution_timeout(
    backend: Contract, store: Store
) -> None:
    job, _ = await running(backend, timeout_s=TTL_S * 100)
    await store.age(TTL_S + 1)
    assert await _swept(backend) == [job.id]
    lost = await backend.get_job(job.id)
    assert (lost.state, lost.error) == (JobState.UNKNOWN_RETRY, None)


# What fails how


@proves("queue-semantics.FailureModes.rule.1", "queue-semantics.FailureModes.rule.2")
async def test_a_crashed_workers_jobs_are_claimed_with_all_they_had(
    backend: Contract, store: Store
) -> None:
    job = await submitted(backend, payload=b"work", tags=frozenset({"a"}))
    await claim(backend, job)
    await store.age(TTL_S + 1)
    await _swept(backend)
    again = await claim(backend, job, "worker-2")
    assert (again.payload, again.tags, again.attempt) == (b"work", frozenset({"a"}), 2)
    assert len((await backend.get_history(job.id)).attempts) == 2


@proves("queue-semantics.FailureModes.rule.3", "queue-semantics.FailureModes.rule.4")
async def test_an_outage_of_the_store_is_worth_a_retry_and_loses_nothing(
    backend: Contract, store: Store
) -> None:
    waiting = await submitted(backend)
    done, _ = await job_in(backend, JobState.COMPLETED)
    await store.break_down()
    with pytest.raises(Unavailable) as raised:
        await claim(backend, waiting)
    assert raised.value.retryable
    await store.mend()
    await reachable(backend)
    assert (await backend.get_job(done.id)).state is JobState.COMPLETED
    assert (await claim(backend, waiting)).job_id == waiting.id


@proves("queue-semantics.FailureModes.rule.5", "queue-semantics.FailureModes.rule.6")
async def test_a_partition_makes_a_job_run_twice_and_counts_one(
    backend: Contract, store: Store
) -> None:
    job, cut_off = await running(backend)
    await store.age(TTL_S + 1)
    await _swept(backend)
    reachable_one = (await claim(backend, job, "worker-2")).token
    with pytest.raises(StaleLease):
        await backend.complete_job(job.id, b"late", token=cut_off)
    await backend.complete_job(job.id, b"done", token=reachable_one)
    assert (await backend.get_job(job.id)).result == b"done"
