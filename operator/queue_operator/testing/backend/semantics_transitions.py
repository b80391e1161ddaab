"""`queue-semantics.md`: the transition matrix, its triggers, and fencing."""

from itertools import pairwise
from typing import Final

import pytest

from queue_operator.domain.errors import DuplicateJob, InvalidTransition, StaleLease
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import SEMANTIC, Semantic
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import (
    a_job,
    apply,
    claim,
    happens,
    job_in,
    running,
    settle,
    submitted,
)
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import FENCED, SLOT_HOLDING

_LATER: Final = Backoff(BackoffStrategy.CONSTANT, 50.0, 50.0)


async def _view(backend: Contract, job_id: str) -> Semantic:
    return SEMANTIC[(await backend.get_job(job_id)).state]


async def _expire(backend: Contract, store: Store) -> None:
    await store.age(TTL_S + 1)
    await backend.expire_leases(lease_ttl_s=TTL_S)


# The matrix


@proves(
    "queue-semantics.StateTransitions.move.1",
    "queue-semantics.StateTransitions.move.2",
    "queue-semantics.StateTransitions.move.3",
)
async def test_from_enqueue_over_claim_to_ack(backend: Contract) -> None:
    job = await submitted(backend)
    assert await _view(backend, job.id) is Semantic.READY
    token = (await claim(backend, job)).token
    assert await _view(backend, job.id) is Semantic.IN_FLIGHT
    await backend.complete_job(job.id, b"", token=token)
    assert await _view(backend, job.id) is Semantic.SUCCEEDED


@proves("queue-semantics.StateTransitions.move.4", "queue-semantics.StateTransitions.move.5")
async def test_a_nack_leads_to_ready_or_to_failed(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=2)
    await backend.fail_job(job.id, "boom", token=(await claim(backend, job)).token)
    assert await _view(backend, job.id) is Semantic.READY
    await backend.fail_job(job.id, "boom", token=(await claim(backend, job)).token)
    assert await _view(backend, job.id) is Semantic.FAILED


@proves("queue-semantics.StateTransitions.move.6")
async def test_a_lease_that_ran_out_leads_to_ready(backend: Contract, store: Store) -> None:
    job, _ = await running(backend)
    await _expire(backend, store)
    assert await _view(backend, job.id) is Semantic.READY


# The triggers


@proves("queue-semantics.Enqueue.pre.1")
@pytest.mark.parametrize("state", JobState)
async def test_enqueue_refuses_an_id_that_exists(backend: Contract, state: JobState) -> None:
    job, _ = await job_in(backend, state)
    with pytest.raises(DuplicateJob):
        await backend.enqueue_job(a_job(id=job.id))
    assert (await backend.get_job(job.id)).state is state


@proves("queue-semantics.Enqueue.effect.1", "queue-semantics.Enqueue.post.1")
async def test_enqueue_stores_a_job_that_can_be_claimed(backend: Contract) -> None:
    job = await submitted(backend)
    assert await _view(backend, job.id) is Semantic.READY
    assert (await claim(backend, job)).job_id == job.id


@proves("queue-semantics.Claim.pre.1")
async def test_claim_takes_only_ready_jobs_that_are_due(backend: Contract, store: Store) -> None:
    due = await submitted(backend)
    await submitted(backend, delay_s=50.0)
    for state in JobState:
        if SEMANTIC[state] is not Semantic.READY:
            await job_in(backend, state)
    assert [job.id for job in await backend.dequeue_jobs("w", [], 50)] == [due.id]


@proves("queue-semantics.Claim.effect.1", "queue-semantics.Claim.post.1")
async def test_claim_leases_the_job_to_its_worker(backend: Contract) -> None:
    job = await submitted(backend)
    assignment = await claim(backend, job, "worker-7")
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.assignee_id) == (JobState.RUNNING, "worker-7")
    [attempt] = (await backend.get_history(job.id)).attempts
    assert (attempt.token, attempt.assignee_id) == (assignment.token, "worker-7")
    assert assignment.token


@proves("queue-semantics.Ack.pre.1", "queue-semantics.Nack.pre.1")
@pytest.mark.parametrize("event", [Event.COMPLETE, Event.FAIL])
async def test_an_outcome_needs_a_job_in_flight_and_its_token(
    backend: Contract, event: Event
) -> None:
    waiting = await submitted(backend)
    assert isinstance((await apply(backend, waiting, event)).error, InvalidTransition)
    job, token = await running(backend)
    assert isinstance((await apply(backend, job, event, "another")).error, StaleLease)
    assert (await apply(backend, job, event, token)).error is None
    late, late_token = await job_in(backend, JobState.UNKNOWN_RETRY)
    assert (await apply(backend, late, event, late_token)).error is None


@proves("queue-semantics.Ack.effect.1", "queue-semantics.Ack.post.1")
async def test_ack_is_the_end_whatever_is_sent_afterwards(backend: Contract, store: Store) -> None:
    job, token = await running(backend)
    await backend.complete_job(job.id, b"r", token=token)
    assert await _view(backend, job.id) is Semantic.SUCCEEDED
    before = await backend.get_job(job.id)
    await _expire(backend, store)
    for event in Event:
        if event is not Event.COMPLETE:
            assert not await happens(backend, job, event, token)
    after = await backend.get_job(job.id)
    assert (after.state, after.result, after.transition) == (
        before.state,
        before.result,
        before.transition,
    )


@proves("queue-semantics.Nack.effect.1", "queue-semantics.Nack.post.1")
async def test_nack_counts_the_retry_and_sets_its_time(backend: Contract, store: Store) -> None:
    job, token = await running(backend, max_attempts=2, backoff=_LATER)
    await backend.fail_job(job.id, "boom", token=token)
    stored = await backend.get_job(job.id)
    assert (SEMANTIC[stored.state], stored.retry_count) == (Semantic.READY, 1)
    assert stored.eligible_at is not None
    assert stored.last_retry_at is not None
    assert (stored.eligible_at - stored.last_retry_at).total_seconds() == pytest.approx(50.0)
    assert await backend.dequeue_jobs("w", [], 5) == []
    await store.age(51.0)
    assert [one.id for one in await backend.dequeue_jobs("w", [], 5)] == [job.id]


@proves("queue-semantics.Nack.effect.2", "queue-semantics.Nack.post.1")
async def test_nack_without_an_attempt_left_fails_for_good(backend: Contract, store: Store) -> None:
    job, token = await running(backend, max_attempts=1, backoff=_LATER)
    await backend.fail_job(job.id, "boom", token=token)
    assert await _view(backend, job.id) is Semantic.FAILED
    await store.age(1_000_000.0)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert await backend.dequeue_jobs("w", [], 5) == []


@proves(
    "queue-semantics.LeaseTimeout.pre.1",
    "queue-semantics.LeaseTimeout.effect.1",
    "queue-semantics.LeaseTimeout.post.1",
)
async def test_a_lease_timeout_lets_another_worker_claim_the_same_id(
    backend: Contract, store: Store
) -> None:
    expired, _ = await running(backend)
    await store.age(TTL_S / 2)
    fresh, _ = await running(backend)
    done, token = await running(backend)
    await backend.complete_job(done.id, b"", token=token)
    await store.age(TTL_S / 2 + 1)
    lost = await backend.expire_leases(lease_ttl_s=TTL_S)
    assert [one.job_id for one in lost] == [expired.id]
    assert (await backend.get_job(fresh.id)).state is JobState.RUNNING
    assert (await claim(backend, expired, "worker-2")).job_id == expired.id


@proves("queue-semantics.LeaseTimeout.effect.1")
async def test_after_an_outage_nothing_is_taken_back_for_one_ttl(
    backend: Contract, store: Store
) -> None:
    await running(backend)
    await store.age(TTL_S * 10, outage=True)
    assert await backend.expire_leases(lease_ttl_s=TTL_S) == []
    await store.age(TTL_S + 1)
    assert len(await backend.expire_leases(lease_ttl_s=TTL_S)) == 1


# Fencing


@proves("queue-semantics.Fencing.rule.1")
@pytest.mark.parametrize("event", sorted(FENCED))
@pytest.mark.parametrize("state", SLOT_HOLDING)
async def test_a_stale_token_is_refused_for_every_outcome(
    backend: Contract, event: Event, state: JobState
) -> None:
    job, _ = await job_in(backend, state)
    before = await backend.get_job(job.id)
    outcome = Outcome(job.id, event, token="another", result=b"", error=ErrorInfo("x"))  # noqa: S106
    assert isinstance((await settle(backend, outcome)).error, StaleLease)
    assert await backend.get_job(job.id) == before


@proves("queue-semantics.Fencing.rule.2", "queue-semantics.Fencing.rule.3")
async def test_each_claim_has_a_new_token_and_the_next_version(
    backend: Contract, store: Store
) -> None:
    job = await submitted(backend)
    tokens, versions = [], [0]
    for event in (Event.FAIL, Event.RELEASE, Event.HAND_BACK, Event.LOSE, Event.FAIL):
        tokens.append((await claim(backend, job)).token)
        versions.append((await backend.get_job(job.id)).lease_version)
        assert (await apply(backend, job, event, tokens[-1])).error is None
    tokens.append((await claim(backend, job)).token)
    await _expire(backend, store)
    tokens.append((await claim(backend, job)).token)
    assert len(set(tokens)) == len(tokens)
    assert all(later == earlier + 1 for earlier, later in pairwise(versions))
    assert (await backend.get_job(job.id)).lease_version == len(tokens)


@proves("queue-semantics.Fencing.rule.4", "backend-api.ImplementationGuidelines.must.9")
@pytest.mark.parametrize("event", [Event.COMPLETE, Event.FAIL, Event.STOP, Event.HAND_BACK])
async def test_a_delayed_outcome_does_not_touch_a_newer_claim(
    backend: Contract, event: Event
) -> None:
    job, old = await running(backend)
    await backend.mark_worker_unresponsive("worker-1")
    new = (await claim(backend, job, "worker-2")).token
    before = await backend.get_job(job.id)
    assert isinstance((await apply(backend, job, event, old)).error, StaleLease)
    assert await backend.get_job(job.id) == before
    assert await backend.complete_job(job.id, b"new", token=new) == {"worker-2": 1}
