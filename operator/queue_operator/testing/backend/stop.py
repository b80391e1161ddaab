"""StopJob, StopJobWithRetry and MarkJobUnknownStopped: what ends a job without a result."""

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from queue_operator.backends.protocol import Freed
from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.breaking import job_call_cancelled
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import claim, job_in, submitted
from queue_operator.testing.store import Contract
from queue_operator.testing.table import SLOT_HOLDING

# Spelled out: taken from the table, a wrong table would agree with itself.
_STOP: Final = (
    JobState.RUNNING,
    JobState.CANCELLING,
    JobState.UNKNOWN_RETRY,
)
_MARK: Final = (
    JobState.RUNNING,
    JobState.CANCELLING,
    JobState.UNKNOWN_RETRY,
)

_Call = Callable[..., Awaitable[Freed]]


async def _refuses_a_bad_id(call: _Call) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await call("", "boom")
    assert raised.value.field == "job_id"


async def _refuses_a_missing_job(backend: Contract, call: _Call) -> None:
    job = await submitted(backend, namespace="here")
    await backend.dequeue_jobs("w", [], 1, namespace="here")
    before = await backend.get_job(job.id, namespace="here")
    for job_id, namespace in (("missing", "here"), (job.id, "default")):
        with pytest.raises(JobNotFound):
            await call(job_id, "boom", namespace=namespace)
    assert await backend.get_job(job.id, namespace="here") == before


async def _refuses_a_state(backend: Contract, call: _Call, state: JobState) -> None:
    job, _ = await job_in(backend, state)
    before = await backend.get_job(job.id)
    with pytest.raises(InvalidTransition) as raised:
        await call(job.id, "boom")
    assert (raised.value.job_id, raised.value.state) == (job.id, state)
    assert await backend.get_job(job.id) == before


async def _ended(backend: Contract, before: Job) -> Job:
    """The job, checked for what holds after every end without a result."""
    after = await backend.get_job(before.id)
    assert before.assigned_at is not None
    assert after.finalized_at is not None
    assert after.finalized_at > before.assigned_at
    assert after.finalized_at == after.updated_at
    assert (after.assignee_id, after.assigned_at) == (before.assignee_id, before.assigned_at)
    assert (after.started_at, after.result) == (before.started_at, None)
    return after


async def _never_again(backend: Contract, job: Job) -> None:
    assert await backend.dequeue_jobs("w", [], 10) == []
    assert (await backend.cancel_jobs([], [job.id])).unknown_job_ids == (job.id,)


# StopJob


@proves("backend-api.StopJob.pre.1", "backend-api.StopJob.error.4", "backend-api.StopJob.must.1")
async def test_stop_job_cancelled(backend: Contract) -> None:
    await job_call_cancelled(
        backend, JobState.RUNNING, lambda job: backend.stop_job(job.id, "boom")
    )


@proves("backend-api.StopJob.pre.2")
async def test_stop_job_without_an_id(backend: Contract) -> None:
    await _refuses_a_bad_id(backend.stop_job)


@proves("backend-api.StopJob.pre.4", "backend-api.StopJob.error.1", "backend-api.StopJob.must.3")
async def test_stop_job_that_is_not_stored(backend: Contract) -> None:
    await _refuses_a_missing_job(backend, backend.stop_job)


@proves("backend-api.StopJob.pre.3", "backend-api.StopJob.post.2", "backend-api.StopJob.must.2")
@pytest.mark.parametrize("message", ["", "enough"])
async def test_stop_job_stores_its_message(backend: Contract, message: str) -> None:
    job, token = await job_in(backend, JobState.RUNNING)
    await backend.stop_job(job.id, message, token=token)
    stored = await backend.get_job(job.id)
    assert (stored.error_message, stored.finalized_at) == (message, stored.updated_at)


@proves(
    "backend-api.StopJob.pre.5",
    "backend-api.StopJob.post.1",
    "backend-api.StopJob.post.3",
    "backend-api.StopJob.post.4",
    "backend-api.StopJob.must.4",
)
@pytest.mark.parametrize("state", _STOP)
async def test_stop_job_from_each_state(backend: Contract, state: JobState) -> None:
    job, token = await job_in(backend, state)
    before = await backend.get_job(job.id)
    await backend.stop_job(job.id, "enough", token=token)
    after = await _ended(backend, before)
    assert (after.state, after.retry_count) == (JobState.STOPPED, before.retry_count)


@proves(
    "backend-api.StopJob.move.1",
    "backend-api.StopJob.move.2",
    "backend-api.StopJob.move.3",
    "backend-api.StopJob.must.1",
)
async def test_stop_job_moves_by_the_table(backend: Contract) -> None:
    for state in _STOP:
        job, token = await job_in(backend, state)
        await backend.stop_job(job.id, "", token=token)
        last = (await backend.get_history(job.id)).transitions[-1]
        assert (last.event, last.before, last.after) == (Event.STOP, state, JobState.STOPPED)


@proves(
    "backend-api.StopJob.post.5",
    "backend-api.StopJob.post.6",
    "backend-api.StopJob.effect.2",
    "backend-api.StopJob.must.6",
)
@pytest.mark.parametrize("state", _STOP)
async def test_stop_job_frees_the_slot_if_it_had_one(backend: Contract, state: JobState) -> None:
    job, token = await job_in(backend, state)
    expected = {"worker-1": 1} if state in SLOT_HOLDING else {}
    assert await backend.stop_job(job.id, "enough", token=token) == expected
    assert await backend.mark_worker_unresponsive("worker-1") == {}


@proves(
    "backend-api.StopJob.post.7",
    "backend-api.StopJob.error.2",
    "backend-api.StopJob.must.3",
    "backend-api.StopJob.must.5",
)
@pytest.mark.parametrize("state", sorted(set(JobState) - set(_STOP)))
async def test_stop_job_in_another_state_changes_nothing(
    backend: Contract, state: JobState
) -> None:
    await _refuses_a_state(backend, backend.stop_job, state)


@proves("backend-api.StopJob.effect.1")
@pytest.mark.parametrize("state", _STOP)
async def test_stop_job_is_for_ever(backend: Contract, state: JobState) -> None:
    job, token = await job_in(backend, state)
    await backend.stop_job(job.id, "enough", token=token)
    await _never_again(backend, job)


# StopJobWithRetry


@proves(
    "backend-api.StopJobWithRetry.pre.1",
    "backend-api.StopJobWithRetry.error.4",
    "backend-api.StopJobWithRetry.must.1",
)
async def test_stop_job_with_retry_cancelled(backend: Contract) -> None:
    await job_call_cancelled(
        backend, JobState.CANCELLING, lambda job: backend.stop_job_with_retry(job.id, "boom")
    )


@proves("backend-api.StopJobWithRetry.pre.2")
async def test_stop_job_with_retry_without_an_id(backend: Contract) -> None:
    await _refuses_a_bad_id(backend.stop_job_with_retry)


@proves(
    "backend-api.StopJobWithRetry.pre.3",
    "backend-api.StopJobWithRetry.error.1",
    "backend-api.StopJobWithRetry.must.4",
)
async def test_stop_job_with_retry_that_is_not_stored(backend: Contract) -> None:
    await _refuses_a_missing_job(backend, backend.stop_job_with_retry)


@proves(
    "backend-api.StopJobWithRetry.post.1",
    "backend-api.StopJobWithRetry.post.2",
    "backend-api.StopJobWithRetry.post.5",
    "backend-api.StopJobWithRetry.post.6",
    "backend-api.StopJobWithRetry.move.1",
)
@pytest.mark.parametrize("message", ["", "boom"])
async def test_stop_job_with_retry_ends_the_job(backend: Contract, message: str) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    before = await backend.get_job(job.id)
    await backend.stop_job_with_retry(job.id, message, token=token)
    after = await _ended(backend, before)
    assert (after.state, after.error_message) == (JobState.STOPPED, message)


@proves(
    "backend-api.StopJobWithRetry.post.3",
    "backend-api.StopJobWithRetry.post.4",
    "backend-api.StopJobWithRetry.must.1",
    "backend-api.StopJobWithRetry.must.2",
    "backend-api.StopJobWithRetry.must.5",
)
async def test_stop_job_with_retry_counts_it(backend: Contract) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    before = await backend.get_job(job.id)
    assert (before.retry_count, before.last_retry_at) == (0, None)
    await backend.stop_job_with_retry(job.id, "boom", token=token)
    after = await backend.get_job(job.id)
    assert (after.state, after.retry_count) == (JobState.STOPPED, 1)
    assert after.last_retry_at == after.finalized_at is not None
    assert (after.assignee_id, after.assigned_at) == (before.assignee_id, before.assigned_at)


@proves(
    "backend-api.StopJobWithRetry.post.8",
    "backend-api.StopJobWithRetry.effect.2",
    "backend-api.StopJobWithRetry.must.7",
)
async def test_stop_job_with_retry_frees_the_slot(backend: Contract) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    assert await backend.stop_job_with_retry(job.id, "boom", token=token) == {"worker-1": 1}
    assert await backend.mark_worker_unresponsive("worker-1") == {}


@proves(
    "backend-api.StopJobWithRetry.pre.4",
    "backend-api.StopJobWithRetry.post.7",
    "backend-api.StopJobWithRetry.post.9",
    "backend-api.StopJobWithRetry.error.2",
    "backend-api.StopJobWithRetry.must.6",
)
@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.CANCELLING}))
async def test_stop_job_with_retry_in_another_state_changes_nothing(
    backend: Contract, state: JobState
) -> None:
    await _refuses_a_state(backend, backend.stop_job_with_retry, state)
    # And the slot is still taken where it was.
    held = {"worker-1": 1} if state in SLOT_HOLDING else {}
    assert await backend.reset_running_jobs() == held


@proves("backend-api.StopJobWithRetry.effect.1")
async def test_stop_job_with_retry_is_for_ever(backend: Contract) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    await backend.stop_job_with_retry(job.id, "boom", token=token)
    await _never_again(backend, job)


# MarkJobUnknownStopped


@proves(
    "backend-api.MarkJobUnknownStopped.pre.1",
    "backend-api.MarkJobUnknownStopped.error.3",
    "backend-api.MarkJobUnknownStopped.must.1",
)
async def test_mark_job_unknown_stopped_cancelled(backend: Contract) -> None:
    await job_call_cancelled(
        backend, JobState.RUNNING, lambda job: backend.mark_job_unknown_stopped(job.id, "gone")
    )


@proves("backend-api.MarkJobUnknownStopped.pre.2")
async def test_mark_job_unknown_stopped_without_an_id(backend: Contract) -> None:
    await _refuses_a_bad_id(backend.mark_job_unknown_stopped)


@proves(
    "backend-api.MarkJobUnknownStopped.pre.3",
    "backend-api.MarkJobUnknownStopped.post.7",
    "backend-api.MarkJobUnknownStopped.error.1",
    "backend-api.MarkJobUnknownStopped.must.3",
    "backend-api.MarkJobUnknownStopped.must.5",
)
async def test_mark_job_unknown_stopped_that_is_not_stored(backend: Contract) -> None:
    await _refuses_a_missing_job(backend, backend.mark_job_unknown_stopped)


@proves(
    "backend-api.MarkJobUnknownStopped.post.1",
    "backend-api.MarkJobUnknownStopped.post.2",
    "backend-api.MarkJobUnknownStopped.post.3",
    "backend-api.MarkJobUnknownStopped.post.4",
    "backend-api.MarkJobUnknownStopped.must.4",
)
@pytest.mark.parametrize("state", _MARK)
async def test_mark_job_unknown_stopped_from_each_state(backend: Contract, state: JobState) -> None:
    job, token = await job_in(backend, state)
    before = await backend.get_job(job.id)
    await backend.mark_job_unknown_stopped(job.id, "gone", token=token)
    after = await _ended(backend, before)
    assert (after.state, after.error_message) == (JobState.UNKNOWN_STOPPED, "gone")


@proves(
    "backend-api.MarkJobUnknownStopped.move.1",
    "backend-api.MarkJobUnknownStopped.move.2",
    "backend-api.MarkJobUnknownStopped.move.3",
    "backend-api.MarkJobUnknownStopped.must.1",
)
async def test_mark_job_unknown_stopped_moves_by_the_table(backend: Contract) -> None:
    for state in _MARK:
        job, token = await job_in(backend, state)
        await backend.mark_job_unknown_stopped(job.id, "", token=token)
        last = (await backend.get_history(job.id)).transitions[-1]
        assert (last.event, last.before, last.after) == (
            Event.MARK_UNKNOWN_STOPPED,
            state,
            JobState.UNKNOWN_STOPPED,
        )


@proves(
    "backend-api.MarkJobUnknownStopped.post.5",
    "backend-api.MarkJobUnknownStopped.post.6",
    "backend-api.MarkJobUnknownStopped.effect.2",
    "backend-api.MarkJobUnknownStopped.must.6",
)
@pytest.mark.parametrize("state", _MARK)
async def test_mark_job_unknown_stopped_frees_the_slot_if_it_had_one(
    backend: Contract, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    expected = {"worker-1": 1} if state in SLOT_HOLDING else {}
    assert await backend.mark_job_unknown_stopped(job.id, "gone", token=token) == expected
    assert await backend.mark_worker_unresponsive("worker-1") == {}


@proves(
    "backend-api.MarkJobUnknownStopped.post.3",
    "backend-api.MarkJobUnknownStopped.post.5",
    "backend-api.MarkJobUnknownStopped.expect.1",
)
async def test_mark_job_unknown_stopped_again_changes_nothing(backend: Contract) -> None:
    job, _ = await job_in(backend, JobState.UNKNOWN_STOPPED)
    before = await backend.get_job(job.id)
    assert await backend.mark_job_unknown_stopped(job.id, "again") == {}
    assert await backend.get_job(job.id) == before


@proves("backend-api.MarkJobUnknownStopped.expect.1")
@pytest.mark.parametrize("state", sorted(set(JobState) - {*_MARK, JobState.UNKNOWN_STOPPED}))
async def test_mark_job_unknown_stopped_in_another_state_changes_nothing(
    backend: Contract, state: JobState
) -> None:
    await _refuses_a_state(backend, backend.mark_job_unknown_stopped, state)


@proves("backend-api.MarkJobUnknownStopped.effect.1")
@pytest.mark.parametrize("state", _MARK)
async def test_mark_job_unknown_stopped_is_not_eligible_again(
    backend: Contract, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    await backend.mark_job_unknown_stopped(job.id, "gone", token=token)
    await _never_again(backend, job)


@proves(
    "backend-api.StopJob.post.2",
    "backend-api.StopJobWithRetry.post.2",
    "backend-api.StopJob.must.2",
    "backend-api.StopJobWithRetry.must.3",
)
@pytest.mark.parametrize("event", [Event.STOP, Event.STOP_WITH_RETRY])
async def test_an_empty_message_takes_the_place_of_an_older_one(
    backend: Contract, event: Event
) -> None:
    job = await submitted(backend)
    await backend.fail_job(job.id, "older", token=(await claim(backend, job)).token)
    token = (await claim(backend, job)).token
    await backend.cancel_jobs([], [job.id])
    stop = backend.stop_job if event is Event.STOP else backend.stop_job_with_retry
    await stop(job.id, "", token=token)
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.error_message) == (JobState.STOPPED, "")
    assert stored.finalized_at == stored.updated_at


@proves("backend-api.MarkJobUnknownStopped.post.2", "backend-api.MarkJobUnknownStopped.must.2")
async def test_an_empty_message_of_a_job_given_up_takes_the_place_of_an_older_one(
    backend: Contract,
) -> None:
    job = await submitted(backend)
    await backend.fail_job(job.id, "older", token=(await claim(backend, job)).token)
    token = (await claim(backend, job)).token
    await backend.mark_job_unknown_stopped(job.id, "", token=token)
    stored = await backend.get_job(job.id)
    assert (stored.error_message, stored.finalized_at) == ("", stored.updated_at)


@proves("backend-api.StopJobWithRetry.post.3")
async def test_retries_of_stopped_jobs_are_in_the_statistics(backend: Contract) -> None:
    job = await submitted(backend, tags=frozenset({"a"}))
    await backend.fail_job(job.id, "older", token=(await claim(backend, job)).token)
    token = (await claim(backend, job)).token
    await backend.cancel_jobs([], [job.id])
    await backend.stop_job_with_retry(job.id, "again", token=token)
    for tags in ([], ["a"]):
        stats = await backend.get_job_stats(tags)
        assert (stats.stopped_jobs, stats.total_retries) == (1, 2)
    await backend.delete_jobs([], [job.id])
    assert (await backend.get_job_stats([])).total_retries == 0
