"""get_history: what happened to one job."""

from itertools import pairwise
from typing import Final

import pytest

from queue_operator.backends.protocol import JobHistory
from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.driving import apply, claim, happens, job_in, running, settle, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import TARGET

_SUBMIT: Final = "SUBMIT"


async def _history(backend: Contract, job: Job) -> JobHistory:
    """Checked for what holds of every history."""
    history = await backend.get_history(job.id)
    stored = await backend.get_job(job.id)
    first, last = history.transitions[0], history.transitions[-1]
    assert (first.event, first.before, first.after) == (_SUBMIT, None, JobState.INITIAL_PENDING)
    assert last.after is stored.state
    assert len(history.transitions) == stored.transition
    for earlier, later in pairwise(history.transitions):
        assert later.before is earlier.after
        assert later.at >= earlier.at
    assert [one.version for one in history.attempts] == list(range(1, stored.lease_version + 1))
    assert len({one.token for one in history.attempts}) == len(history.attempts)
    return history


def _events(history: JobHistory) -> list[str]:
    return [record.event for record in history.transitions]


async def test_history_of_a_job_that_waits(backend: Contract) -> None:
    job = await submitted(backend)
    history = await _history(backend, job)
    assert history.attempts == ()
    assert _events(history) == [_SUBMIT]
    assert history.transitions[0].at == (await backend.get_job(job.id)).updated_at


async def test_history_of_a_running_attempt_has_no_end(backend: Contract) -> None:
    job, token = await running(backend)
    [attempt] = (await _history(backend, job)).attempts
    stored = await backend.get_job(job.id)
    assert (attempt.number, attempt.token, attempt.assignee_id) == (1, token, "worker-1")
    assert attempt.assigned_at == stored.assigned_at
    assert (attempt.ended_at, attempt.event, attempt.state, attempt.error) == (None,) * 4


async def test_history_names_the_worker_and_its_host(backend: Contract) -> None:
    job = await submitted(backend)
    demand = Demand(assignee_id="session-1", limit=1, worker_name="pod-1", host="node-1")
    await backend.claim([demand], lease_ttl_s=TTL_S)
    assert (await backend.get_job(job.id)).worker_name == "pod-1"
    [attempt] = (await _history(backend, job)).attempts
    assert (attempt.assignee_id, attempt.worker_name, attempt.host) == (
        "session-1",
        "pod-1",
        "node-1",
    )


async def test_history_lists_each_attempt_with_its_end(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=3)
    error = ErrorInfo("boom", ErrorCategory.TIMEOUT, "E", "trace", {"a": "b"})
    first = await claim(backend, job, "worker-1")
    await settle(backend, Outcome(job.id, Event.FAIL, token=first.token, error=error))
    second = await claim(backend, job, "worker-2")
    await backend.complete_job(job.id, b"r", token=second.token)
    history = await _history(backend, job)
    failed, done = history.attempts
    assert (failed.token, failed.assignee_id, failed.number) == (first.token, "worker-1", 1)
    assert (failed.event, failed.state) == (Event.FAIL, JobState.FAILED_RETRY)
    assert failed.error == error
    assert (done.token, done.assignee_id, done.number) == (second.token, "worker-2", 2)
    assert (done.event, done.state, done.error) == (Event.COMPLETE, JobState.COMPLETED, None)
    assert done.ended_at == (await backend.get_job(job.id)).finalized_at
    assert failed.ended_at is not None
    assert failed.assigned_at <= failed.ended_at <= done.assigned_at
    assert _events(history) == [
        _SUBMIT,
        Event.CLAIM,
        Event.FAIL,
        Event.CLAIM,
        Event.COMPLETE,
    ]


@pytest.mark.parametrize("event", [Event.RELEASE, Event.HAND_BACK])
async def test_history_counts_a_job_given_back_as_the_same_attempt(
    backend: Contract, event: Event
) -> None:
    job, token = await running(backend)
    await apply(backend, job, event, token)
    await claim(backend, job, "worker-2")
    first, second = (await _history(backend, job)).attempts
    assert (first.event, first.state) == (event, JobState.FAILED_RETRY)
    assert (first.number, second.number) == (1, 1)
    assert (first.version, second.version) == (1, 2)


async def test_history_of_a_late_outcome(backend: Contract, store: Store) -> None:
    job, token = await running(backend)
    await store.age(TTL_S + 1)
    await backend.expire_leases(lease_ttl_s=TTL_S)
    lost = await _history(backend, job)
    assert _events(lost) == [_SUBMIT, Event.CLAIM, Event.LOSE]
    assert lost.attempts[0].event == Event.LOSE
    await backend.complete_job(job.id, b"late", token=token)
    history = await _history(backend, job)
    assert _events(history) == [_SUBMIT, Event.CLAIM, Event.LOSE, Event.COMPLETE]
    [attempt] = history.attempts
    assert (attempt.event, attempt.state) == (Event.COMPLETE, JobState.COMPLETED)


async def test_history_of_a_cancel_tells_the_reason(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.cancel_jobs([], [job.id], reason="changed my mind")
    await backend.cancel_jobs([], [job.id], force=True)
    await backend.acknowledge_cancellation(job.id, True, token=token)
    history = await _history(backend, job)
    assert _events(history) == [_SUBMIT, Event.CLAIM, Event.CANCEL, Event.ACK_EXECUTING]
    assert history.transitions[2].reason == "changed my mind"
    assert history.attempts[0].state is JobState.STOPPED


async def test_history_of_a_retry_by_hand(backend: Contract) -> None:
    job, token = await running(backend, max_attempts=1)
    await backend.fail_job(job.id, "boom", token=token)
    await apply(backend, job, Event.RETRY_NOW)
    history = await _history(backend, job)
    assert _events(history) == [_SUBMIT, Event.CLAIM, Event.EXHAUST, Event.RETRY_NOW]
    # What the attempt ended with is what it was, whatever the job became since.
    assert history.attempts[0].state is JobState.DEAD_LETTER


async def test_history_of_a_skipped_job(backend: Contract) -> None:
    parent, _ = await job_in(backend, JobState.STOPPED)
    child = await submitted(backend, depends_on=(parent.id,))
    history = await _history(backend, child)
    assert _events(history) == [_SUBMIT, Event.SKIP]
    assert history.attempts == ()


async def test_history_of_an_update_of_the_status(backend: Contract) -> None:
    job, _ = await running(backend)
    await backend.update_job_status(job.id, JobState.STOPPED, None, "enough")
    history = await _history(backend, job)
    assert _events(history)[-1] == Event.STOP
    assert history.transitions[-1].after is JobState.STOPPED


@pytest.mark.parametrize(
    ("event", "state"), sorted(set(TARGET) - {(Event.RETRY_NOW, JobState.UNSCHEDULED)})
)
async def test_history_of_each_row_of_the_state_table(
    backend: Contract, event: Event, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    assert await happens(backend, job, event, token)
    last = (await _history(backend, job)).transitions[-1]
    assert (last.event, last.before, last.after) == (event, state, TARGET[event, state])


async def test_history_of_a_missing_job(backend: Contract) -> None:
    job = await submitted(backend, namespace="here")
    for job_id, namespace in ((job.id, "default"), ("missing", "here")):
        with pytest.raises(JobNotFound):
            await backend.get_history(job_id, namespace=namespace)
    assert len((await backend.get_history(job.id, namespace="here")).transitions) == 1


async def test_history_of_an_id_that_was_used_again_is_the_new_jobs(backend: Contract) -> None:
    job, _ = await job_in(backend, JobState.COMPLETED)
    await backend.delete_jobs([], [job.id])
    await backend.enqueue_job(job)
    history = await _history(backend, job)
    assert (_events(history), history.attempts) == ([_SUBMIT], ())
