"""`queue-semantics.md`: how often and when a failed job runs again."""

import pytest

from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.retry import (
    DEFAULT_BACKOFF,
    DEFAULT_MAX_ATTEMPTS,
    Backoff,
    BackoffStrategy,
    delay_s,
)
from queue_operator.domain.states import Event
from queue_operator.domain.views import SEMANTIC, Semantic
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import apply, claim, passed, submitted
from queue_operator.testing.store import TTL_S, Contract, Store, half


async def _fail(backend: Contract) -> Job:
    [job] = await backend.dequeue_jobs("w", [], 5)
    await backend.fail_job(job.id, "boom")
    return await backend.get_job(job.id)


def _wait_s(job: Job) -> float:
    assert job.eligible_at is not None
    assert job.last_retry_at is not None
    return (job.eligible_at - job.last_retry_at).total_seconds()


@proves("queue-semantics.RetryPolicy.rule.1")
async def test_what_was_left_out_at_an_outer_door_is_four_attempts(
    backend: Contract, store: Store
) -> None:
    assert DEFAULT_MAX_ATTEMPTS == 4
    job = await submitted(backend, max_attempts=0)
    for attempt in range(1, DEFAULT_MAX_ATTEMPTS + 1):
        [taken] = await backend.dequeue_jobs("w", [], 5)
        assert taken.attempt == attempt
        await backend.fail_job(job.id, "boom")
        await store.age(31.0)
    assert await backend.dequeue_jobs("w", [], 5) == []
    dead = await backend.get_job(job.id)
    assert (SEMANTIC[dead.state], dead.retry_count) == (Semantic.FAILED, 3)


@proves("queue-semantics.RetryPolicy.rule.2")
async def test_a_failed_job_needs_a_hand_for_another_attempt(
    backend: Contract, store: Store
) -> None:
    job = await submitted(backend, max_attempts=1)
    await _fail(backend)
    await store.age(1_000_000.0)
    assert await backend.dequeue_jobs("w", [], 5) == []
    assert (await apply(backend, job, Event.RETRY_NOW)).error is None
    await _fail(backend)
    assert await backend.dequeue_jobs("w", [], 5) == []


@proves("queue-semantics.Backoff.rule.1")
async def test_the_delay_doubles_from_the_base_to_the_maximum(
    backend: Contract, store: Store
) -> None:
    backoff = Backoff(BackoffStrategy.EXPONENTIAL, 1.0, 10.0, 2.0)
    await submitted(backend, backoff=backoff)
    for ceiling_s in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        # The jitter of the tests draws one half.
        assert _wait_s(await _fail(backend)) == pytest.approx(ceiling_s * half(), abs=0.001)
        await store.age(ceiling_s)


@proves("queue-semantics.Backoff.rule.2", "queue-semantics.Backoff.rule.3")
async def test_the_default_delay_is_half_a_second_to_thirty(
    backend: Contract, store: Store
) -> None:
    assert (DEFAULT_BACKOFF.initial_delay_s, DEFAULT_BACKOFF.max_delay_s) == (0.5, 30.0)
    await submitted(backend, max_attempts=100, backoff=DEFAULT_BACKOFF)
    waits = []
    for _ in range(9):
        waits.append(_wait_s(await _fail(backend)))
        await store.age(31.0)
    assert waits[0] == pytest.approx(0.25, abs=0.001)
    assert waits[-1] == pytest.approx(15.0, abs=0.001)
    # The power of such a number is more than a float holds.
    assert delay_s(DEFAULT_BACKOFF, 10**6, half) == 15.0


@proves("queue-semantics.Backoff.rule.4")
@pytest.mark.parametrize(("draw", "wait_s"), [(0.0, 0.0), (0.25, 2.5), (0.999, 9.99)])
async def test_the_jitter_spans_the_whole_delay(store: Store, draw: float, wait_s: float) -> None:
    backend = await store.open(rng=lambda: draw)
    await submitted(backend, backoff=Backoff(BackoffStrategy.EXPONENTIAL, 10.0, 10.0))
    assert _wait_s(await _fail(backend)) == pytest.approx(wait_s, abs=0.001)


@proves(
    "queue-semantics.RetryVisibility.rule.1",
    "queue-semantics.RetryVisibility.rule.2",
    "queue-semantics.RetryVisibility.rule.3",
    "queue-semantics.RetryVisibility.rule.4",
)
async def test_a_nack_is_visible_again_at_its_retry_time(backend: Contract, store: Store) -> None:
    backoff = Backoff(BackoffStrategy.CONSTANT, 50.0, 50.0)
    job = await submitted(backend, backoff=backoff)
    failed = await _fail(backend)
    assert (SEMANTIC[failed.state], failed.retry_count) == (Semantic.READY, 1)
    assert _wait_s(failed) == pytest.approx(50.0, abs=0.001)
    assert failed.last_retry_at == failed.updated_at
    await store.age(49.0)
    assert await backend.dequeue_jobs("w", [], 5) == []
    await store.age(2.0)
    assert [one.id for one in await backend.dequeue_jobs("w", [], 5)] == [job.id]


async def test_a_second_retry_counts_on(backend: Contract) -> None:
    job = await submitted(backend)
    for count in (1, 2, 3):
        assert (await _fail(backend)).retry_count == count
    assert (await claim(backend, job)).attempt == 4


_NO_FAILURES = [Event.LOSE, Event.RELEASE, Event.HAND_BACK]


@proves("queue-semantics.Backoff.rule.1")
@pytest.mark.parametrize("event", _NO_FAILURES)
async def test_what_is_no_failure_does_not_lengthen_the_backoff(
    backend: Contract, store: Store, event: Event
) -> None:
    backoff = Backoff(BackoffStrategy.LINEAR, 10.0, 1000.0)
    job = await submitted(backend, backoff=backoff)
    for _ in range(3):
        assert (await apply(backend, job, event, (await claim(backend, job)).token)).error is None
        # A job that is lost again and again waits, too.
        await passed(backend, store, 100)
    await claim(backend, job)
    await backend.mark_worker_unresponsive("worker-1")
    await claim(backend, job)
    await store.age(TTL_S + 1)
    assert len(await backend.expire_leases(lease_ttl_s=TTL_S)) == 1
    await store.age(100)
    failed = [await _fail(backend)]
    await store.age(11.0)
    failed.append(await _fail(backend))
    assert [job.failure_count for job in failed] == [1, 2]
    assert [_wait_s(job) for job in failed] == pytest.approx([10.0, 20.0], abs=0.001)


@proves("queue-semantics.Backoff.rule.4")
async def test_each_failure_draws_anew(store: Store) -> None:
    draws = iter([0.25, 0.5, 0.75, 0.125])
    backend = await store.open(rng=lambda: next(draws))
    backoff = Backoff(BackoffStrategy.EXPONENTIAL, 64.0, 64.0, 1.0)
    jobs = [await submitted(backend, backoff=backoff) for _ in range(4)]
    await backend.dequeue_jobs("w", [], 4)
    boom = ErrorInfo("boom")
    # Two in one batch, and one call each.
    await backend.settle([Outcome(job.id, Event.FAIL, error=boom) for job in jobs[:2]])
    for job in jobs[2:]:
        await backend.fail_job(job.id, "boom")
    waits = [_wait_s(await backend.get_job(job.id)) for job in jobs]
    assert waits == pytest.approx([16.0, 32.0, 48.0, 8.0], abs=0.001)
