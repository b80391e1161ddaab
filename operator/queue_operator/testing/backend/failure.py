"""What counts, what waits how long, and when a job is given up."""

from datetime import timedelta

import pytest

from queue_operator.domain.job import Demand, Job, TypeDefaults
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.retry import DEFAULT_BACKOFF, Backoff, BackoffStrategy
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.transition import RESULT_NOT_STORABLE
from queue_operator.domain.validation import Limits
from queue_operator.testing.driving import apply, claim, job_in, running, settle, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import COUNTS_AS_RETRY, RETURNS_ATTEMPT, WHILE_CANCELLING

_FROM_RUNNING = [
    Event.COMPLETE,
    Event.FAIL,
    Event.EXHAUST,
    Event.STOP,
    Event.RELEASE,
    Event.HAND_BACK,
    Event.LOSE,
]


@pytest.mark.parametrize("event", _FROM_RUNNING)
async def test_what_each_event_counts(backend: Contract, event: Event) -> None:
    job, token = await running(backend)
    before = await backend.get_job(job.id)
    await apply(backend, job, event, token)
    after = await backend.get_job(job.id)
    retries = int(event in COUNTS_AS_RETRY)
    assert after.retry_count == retries
    assert (after.last_retry_at is not None) == bool(retries)
    assert after.failure_count == int(event is Event.FAIL)
    assert after.attempt == 1 - int(event in RETURNS_ATTEMPT)
    # Never cleared, by nothing.
    assert (after.assignee_id, after.assigned_at) == (before.assignee_id, before.assigned_at)
    assert after.started_at == before.started_at
    assert after.lease_version == 1


async def test_started_at_is_the_first_start_and_assigned_at_the_last(backend: Contract) -> None:
    job, token = await running(backend)
    first = await backend.get_job(job.id)
    await apply(backend, job, Event.FAIL, token)
    await claim(backend, job, "worker-2")
    second = await backend.get_job(job.id)
    assert second.started_at == first.started_at
    assert second.assigned_at != first.assigned_at
    assert (second.assignee_id, second.attempt, second.lease_version) == ("worker-2", 2, 2)


async def test_losses_by_a_caller_do_not_use_up_attempts(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=1)
    for n in range(3):
        await claim(backend, job)
        assert (await backend.get_job(job.id)).attempt == 1
        assert await backend.mark_worker_unresponsive("worker-1") == {"worker-1": 1}
        stored = await backend.get_job(job.id)
        assert (stored.attempt, stored.lease_version) == (0, n + 1)


async def test_three_retries_read_three(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=4)
    for n in range(1, 5):
        token = (await claim(backend, job)).token
        await backend.fail_job(job.id, f"boom {n}", token=token)
    dead = await backend.get_job(job.id)
    assert (dead.state, dead.reason) == (JobState.DEAD_LETTER, "ATTEMPTS_EXHAUSTED")
    assert (dead.attempt, dead.retry_count, dead.failure_count) == (4, 3, 3)
    assert dead.error_message == "boom 4"


async def test_without_a_bound_a_job_fails_for_ever(backend: Contract) -> None:
    job = await submitted(backend)
    for _ in range(6):
        token = (await claim(backend, job)).token
        assert await backend.fail_job(job.id, "boom", token=token) == {"worker-1": 1}
    assert (await backend.get_job(job.id)).state is JobState.FAILED_RETRY


async def test_a_failure_without_a_reason_is_bounded_too(backend: Contract) -> None:
    job, token = await running(backend, max_attempts=1)
    answer = await settle(backend, Outcome(job.id, Event.FAIL, token=token))
    assert answer.state is JobState.DEAD_LETTER


async def test_a_permanent_failure_ends_at_once(backend: Contract) -> None:
    job, token = await running(backend, max_attempts=9)
    error = ErrorInfo("no such user", ErrorCategory.PERMANENT, "NO_USER", "trace", {"user": "x"})
    outcome = Outcome(job.id, Event.FAIL, token=token, error=error)
    assert (await settle(backend, outcome)).state is JobState.DEAD_LETTER
    dead = await backend.get_job(job.id)
    assert (dead.error, dead.reason) == (error, "PERMANENT_FAILURE")


async def test_a_result_that_cannot_be_stored_ends_the_job(store: Store) -> None:
    backend = await store.open(limits=Limits(result_bytes=10))
    job, token = await running(backend)
    outcome = Outcome(job.id, Event.COMPLETE, token=token, result=b"x" * 11)
    assert (await settle(backend, outcome)).state is JobState.DEAD_LETTER
    dead = await backend.get_job(job.id)
    assert dead.error is not None
    assert (dead.error.category, dead.error.code) == (ErrorCategory.PERMANENT, RESULT_NOT_STORABLE)
    assert (await settle(backend, outcome)).repeated


async def _wait_after_failures(backend: Contract, job: Job) -> float:
    stored = await backend.get_job(job.id)
    assert stored.eligible_at is not None
    assert stored.last_retry_at is not None
    return (stored.eligible_at - stored.last_retry_at).total_seconds()


_BACKOFFS = [
    (Backoff(BackoffStrategy.CONSTANT, 5.0), [5.0, 5.0, 5.0]),
    (Backoff(BackoffStrategy.LINEAR, 5.0, 12.0), [5.0, 10.0, 12.0]),
    (Backoff(BackoffStrategy.CUSTOM, delays_s=(1.0, 7.0)), [1.0, 7.0, 7.0]),
    # The jitter of the tests draws one half.
    (Backoff(BackoffStrategy.EXPONENTIAL, 4.0, 10.0, 2.0), [2.0, 4.0, 5.0]),
    (None, [0.0, 0.0, 0.0]),
]


@pytest.mark.parametrize(("backoff", "waits_s"), _BACKOFFS)
async def test_a_failed_job_waits_for_its_backoff(
    backend: Contract, store: Store, backoff: Backoff | None, waits_s: list[float]
) -> None:
    job = await submitted(backend, backoff=backoff)
    for wait_s in waits_s:
        [claimed] = await backend.dequeue_jobs("w", [], 5)
        await backend.fail_job(claimed.id, "boom")
        assert await _wait_after_failures(backend, job) == pytest.approx(wait_s, abs=0.001)
        if wait_s:
            assert await backend.dequeue_jobs("w", [], 5) == []
            await store.age(wait_s + 0.1)


async def test_the_handler_may_say_when_to_retry(backend: Contract) -> None:
    job, token = await running(backend, backoff=Backoff(BackoffStrategy.CONSTANT, 5.0))
    outcome = Outcome(job.id, Event.FAIL, token=token, error=ErrorInfo("x"), retry_after_s=77.0)
    await settle(backend, outcome)
    assert await _wait_after_failures(backend, job) == pytest.approx(77.0)


@pytest.mark.parametrize("event", [Event.RELEASE, Event.HAND_BACK])
async def test_a_job_given_back_is_eligible_at_once(backend: Contract, event: Event) -> None:
    job, token = await running(backend, backoff=Backoff(BackoffStrategy.CONSTANT, 500.0))
    await apply(backend, job, event, token)
    assert (await claim(backend, job, "worker-2")).attempt == 1


async def test_what_was_left_out_is_resolved_at_the_first_claim_and_never_again(
    backend: Contract,
) -> None:
    job = await submitted(backend, max_attempts=0)
    demand = Demand(assignee_id="w", limit=1)
    defaults = {job.type: TypeDefaults(max_attempts=2, timeout_s=30.0)}
    [first] = await backend.claim([demand], lease_ttl_s=TTL_S, defaults=defaults)
    assert first.timeout_s == 30.0
    stored = await backend.get_job(job.id)
    assert (stored.max_attempts, stored.timeout_s, stored.backoff) == (2, 30.0, DEFAULT_BACKOFF)
    await apply(backend, job, Event.RELEASE, first.token)
    defaults = {job.type: TypeDefaults(max_attempts=50, timeout_s=99.0)}
    [second] = await backend.claim([demand], lease_ttl_s=TTL_S, defaults=defaults)
    assert second.timeout_s == 30.0
    assert (await backend.get_job(job.id)).max_attempts == 2


async def test_without_a_registration_the_systems_defaults_hold(backend: Contract) -> None:
    job, _ = await running(backend, max_attempts=0)
    assert (await backend.get_job(job.id)).max_attempts == 4


async def test_a_library_job_gets_no_bound_and_no_backoff(backend: Contract) -> None:
    job, _ = await running(backend)
    stored = await backend.get_job(job.id)
    assert (stored.max_attempts, stored.backoff, stored.timeout_s) == (None, None, None)


async def test_a_success_keeps_the_error_of_the_attempt_before(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.fail_job(job.id, "first", token=token)
    await backend.complete_job(job.id, b"ok", token=(await claim(backend, job)).token)
    stored = await backend.get_job(job.id)
    assert (stored.result, stored.error_message) == (b"ok", "first")
    assert stored.finalized_at is not None
    assert stored.started_at is not None
    assert stored.finalized_at - stored.started_at >= timedelta(0)


@pytest.mark.parametrize("event", sorted(WHILE_CANCELLING))
async def test_what_a_workers_outcome_counts_while_it_is_being_cancelled(
    backend: Contract, event: Event
) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    error = ErrorInfo("x", ErrorCategory.PERMANENT) if event is Event.EXHAUST else ErrorInfo("x")
    answer = await settle(
        backend, Outcome(job.id, event, token=token, error=error, worker_plane=True)
    )
    after, retries = WHILE_CANCELLING[event]
    assert (answer.state, answer.freed_assignee_id) == (after, "worker-1")
    stored = await backend.get_job(job.id)
    assert (stored.retry_count, stored.failure_count) == (retries, 0)
    assert (stored.last_retry_at is not None) == bool(retries)
    # The statistics count the same, also of a job that has ended.
    assert (await backend.get_job_stats([])).total_retries == retries
