"""Orders in which an outcome, its repeat, a sweep and other claims may come.

A worker whose answer was lost says its outcome again. Either the store has it, and the repeat is a
success that writes nothing; or it never came, and what is said again is the first that is heard.
That counts while nobody else has ended the attempt, and is refused for good where somebody has.
"""

from typing import Final

import pytest

from queue_operator.domain.errors import InvalidTransition, QueueError, StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.overdue import TIMED_OUT, WORKER_LOST
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.driving import apply, claim, running, settle
from queue_operator.testing.store import TTL_S, Contract, Store

_TIMEOUT_S: Final = 100.0


async def _fail(backend: Contract, job: Job, token: str, state: JobState) -> None:
    """The failure counts, and is the first that the store hears of it."""
    answer = await apply(backend, job, Event.FAIL, token)
    assert (answer.error, answer.repeated, answer.state) == (None, False, state)


async def _is_a_repeat(backend: Contract, job: Job, token: str, state: JobState) -> None:
    """The failure is stored: whoever says it again hears so, and nothing is written."""
    before = await backend.get_job(job.id), await backend.get_history(job.id)
    answer = await apply(backend, job, Event.FAIL, token)
    assert (answer.error, answer.repeated, answer.freed_assignee_id) == (None, True, None)
    assert (answer.state, before[0].state) == (state, state)
    assert (await backend.get_job(job.id), await backend.get_history(job.id)) == before


async def _is_refused(
    backend: Contract, job: Job, token: str, error: type[QueueError], *events: Event
) -> None:
    """Somebody else ended the attempt: what its holder says does not count, however often."""
    before = await backend.get_job(job.id), await backend.get_history(job.id)
    for event in (*events, *events):
        answer = await apply(backend, job, event, token)
        assert type(answer.error) is error, event
        assert (answer.repeated, answer.freed_assignee_id) == (False, None)
    assert (await backend.get_job(job.id), await backend.get_history(job.id)) == before


async def _lose(backend: Contract, store: Store, job: Job) -> None:
    await store.age(TTL_S + 1)
    [lost] = await backend.expire_leases(lease_ttl_s=TTL_S)
    assert lost.job_id == job.id


async def _time_out(backend: Contract, store: Store, job: Job) -> None:
    """Past its time and one TTL more, in which its holder would have said so."""
    await store.age(_TIMEOUT_S + TTL_S + 1)
    [ended] = await backend.expire_leases(lease_ttl_s=TTL_S)
    assert ended.job_id == job.id


# The outcome was stored, and its answer was lost.


async def test_a_stored_failure_is_known_while_others_run_and_end_the_job(
    backend: Contract,
) -> None:
    job, token = await running(backend)
    await _fail(backend, job, token, JobState.FAILED_RETRY)
    await _is_a_repeat(backend, job, token, JobState.FAILED_RETRY)
    second = await claim(backend, job, "worker-2")
    await _is_a_repeat(backend, job, token, JobState.RUNNING)
    await _fail(backend, job, second.token, JobState.FAILED_RETRY)
    third = await claim(backend, job, "worker-3")
    await apply(backend, job, Event.COMPLETE, third.token)
    await _is_a_repeat(backend, job, token, JobState.COMPLETED)
    await _is_a_repeat(backend, job, second.token, JobState.COMPLETED)


async def test_a_stored_failure_is_known_whatever_becomes_of_the_next_attempt(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend, timeout_s=_TIMEOUT_S)
    await _fail(backend, job, token, JobState.FAILED_RETRY)
    await claim(backend, job, "worker-2")
    await _time_out(backend, store, job)
    await _is_a_repeat(backend, job, token, JobState.FAILED_RETRY)
    await claim(backend, job, "worker-3")
    await _lose(backend, store, job)
    await _is_a_repeat(backend, job, token, JobState.UNKNOWN_RETRY)


async def test_no_sweep_ends_an_attempt_whose_failure_is_stored(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend, timeout_s=_TIMEOUT_S)
    await _fail(backend, job, token, JobState.FAILED_RETRY)
    await store.age(_TIMEOUT_S + TTL_S + 1)
    assert await backend.expire_leases(lease_ttl_s=TTL_S) == []
    await _is_a_repeat(backend, job, token, JobState.FAILED_RETRY)
    stored = await backend.get_job(job.id)
    assert (stored.error, stored.failure_count) == (ErrorInfo("boom"), 1)


async def test_a_stored_failure_of_the_last_attempt_is_known_after_a_manual_retry(
    backend: Contract,
) -> None:
    job, token = await running(backend, max_attempts=1)
    await _fail(backend, job, token, JobState.DEAD_LETTER)
    await _is_a_repeat(backend, job, token, JobState.DEAD_LETTER)
    assert (await settle(backend, Outcome(job.id, Event.RETRY_NOW))).error is None
    await _is_a_repeat(backend, job, token, JobState.FAILED_RETRY)
    await claim(backend, job, "worker-2")
    await _is_a_repeat(backend, job, token, JobState.RUNNING)


async def test_a_stored_failure_is_known_when_the_job_was_cancelled_since(
    backend: Contract,
) -> None:
    job, token = await running(backend)
    await _fail(backend, job, token, JobState.FAILED_RETRY)
    await backend.cancel_jobs([], [job.id])
    await _is_a_repeat(backend, job, token, JobState.STOPPED)


# The outcome was not stored, and the lease ran out.


async def test_a_failure_that_comes_after_the_lease_counts_once(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    await _lose(backend, store, job)
    await _fail(backend, job, token, JobState.FAILED_RETRY)
    assert (await backend.get_job(job.id)).failure_count == 1
    await _is_a_repeat(backend, job, token, JobState.FAILED_RETRY)
    await claim(backend, job, "worker-2")
    await _is_a_repeat(backend, job, token, JobState.RUNNING)


async def test_a_failure_that_comes_after_the_next_claim_is_stale(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    await _lose(backend, store, job)
    second = await claim(backend, job, "worker-2")
    await _is_refused(backend, job, token, StaleLease, Event.FAIL, Event.COMPLETE)
    # The same words of the other are no repeat of these, nor these of the other's.
    await _fail(backend, job, second.token, JobState.FAILED_RETRY)
    await _is_refused(backend, job, token, StaleLease, Event.FAIL)


async def test_a_failure_that_comes_after_a_cancel_of_the_lost_job_is_refused(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    await _lose(backend, store, job)
    await backend.cancel_jobs([], [job.id])
    assert (await backend.get_job(job.id)).state is JobState.STOPPED
    await _is_refused(backend, job, token, InvalidTransition, Event.FAIL)


async def test_a_failure_that_comes_when_the_lost_job_was_given_up_is_refused(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend, max_attempts=1)
    await _lose(backend, store, job)
    await store.age(TTL_S + 1)
    assert await backend.expire_leases(lease_ttl_s=TTL_S) == []
    given_up = await backend.get_job(job.id)
    assert (given_up.state, given_up.error) == (JobState.DEAD_LETTER, WORKER_LOST)
    await _is_refused(backend, job, token, InvalidTransition, Event.FAIL, Event.EXHAUST)


# The outcome was not stored, and the sweeper ended the attempt as timed out.


async def test_a_failure_that_comes_after_the_timeout_is_refused(
    backend: Contract, store: Store
) -> None:
    """Also where both say that time was up: the holder's words are not the ones that are kept."""
    job, token = await running(backend, timeout_s=_TIMEOUT_S)
    await _time_out(backend, store, job)
    ended = await backend.get_job(job.id)
    assert (ended.state, ended.error) == (JobState.FAILED_RETRY, TIMED_OUT)
    again = Outcome(job.id, Event.FAIL, token=token, error=TIMED_OUT)
    assert isinstance((await settle(backend, again)).error, InvalidTransition)
    late = Event.FAIL, Event.EXHAUST, Event.COMPLETE
    await _is_refused(backend, job, token, InvalidTransition, *late)
    second = await claim(backend, job, "worker-2")
    await _is_refused(backend, job, token, StaleLease, *late)
    await apply(backend, job, Event.COMPLETE, second.token)
    await _is_refused(backend, job, token, StaleLease, *late)


async def test_a_failure_that_comes_after_the_last_timeout_is_refused(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend, timeout_s=_TIMEOUT_S, max_attempts=1)
    await _time_out(backend, store, job)
    ended = await backend.get_job(job.id)
    assert (ended.state, ended.error) == (JobState.DEAD_LETTER, TIMED_OUT)
    late = Event.FAIL, Event.EXHAUST, Event.COMPLETE
    await _is_refused(backend, job, token, InvalidTransition, *late)
    assert (await settle(backend, Outcome(job.id, Event.RETRY_NOW))).error is None
    await _is_refused(backend, job, token, StaleLease, *late)
    await claim(backend, job, "worker-2")
    await _is_refused(backend, job, token, StaleLease, *late)


async def test_a_failure_that_comes_when_the_timed_out_job_was_cancelled_is_refused(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend, timeout_s=_TIMEOUT_S)
    await _time_out(backend, store, job)
    await backend.cancel_jobs([], [job.id])
    assert (await backend.get_job(job.id)).state is JobState.STOPPED
    late = Event.FAIL, Event.EXHAUST, Event.COMPLETE
    await _is_refused(backend, job, token, InvalidTransition, *late)


async def test_of_a_cancelled_job_that_timed_out_only_a_completion_counts(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend, timeout_s=_TIMEOUT_S)
    await backend.cancel_jobs([], [job.id])
    await _time_out(backend, store, job)
    assert (await backend.get_job(job.id)).state is JobState.UNKNOWN_STOPPED
    await _is_refused(backend, job, token, InvalidTransition, Event.FAIL, Event.STOP)
    assert (await apply(backend, job, Event.COMPLETE, token)).error is None
    assert (await apply(backend, job, Event.COMPLETE, token)).repeated
    await _is_refused(backend, job, token, InvalidTransition, Event.FAIL, Event.STOP)


# Somebody ended the attempt without its token.


@pytest.mark.parametrize("event", [Event.FAIL, Event.EXHAUST])
async def test_a_failure_that_comes_after_an_administrators_is_refused_whatever_follows(
    backend: Contract, event: Event
) -> None:
    job, token = await running(backend)
    assert (await apply(backend, job, event)).error is None
    await _is_refused(backend, job, token, InvalidTransition, event)
    if event is Event.EXHAUST:
        assert (await settle(backend, Outcome(job.id, Event.RETRY_NOW))).error is None
    second = await claim(backend, job, "worker-2")
    await _is_refused(backend, job, token, StaleLease, event, Event.COMPLETE)
    assert (await apply(backend, job, Event.COMPLETE, second.token)).error is None
    await _is_refused(backend, job, token, StaleLease, event, Event.COMPLETE)
