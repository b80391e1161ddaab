"""CompleteJob."""

import pytest

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import job_call_cancelled, needs_the_store, shape
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, claim, job_in, running, submitted
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.table import TERMINAL

# Spelled out: taken from the table, a wrong table would agree with itself.
_FROM = (
    JobState.RUNNING,
    JobState.CANCELLING,
    JobState.UNKNOWN_RETRY,
    JobState.UNKNOWN_STOPPED,
)
_LATE = (JobState.UNKNOWN_RETRY, JobState.UNKNOWN_STOPPED)


@proves(
    "backend-api.CompleteJob.pre.1",
    "backend-api.CompleteJob.error.4",
    "backend-api.CompleteJob.must.1",
)
async def test_complete_job_cancelled(backend: Contract) -> None:
    await job_call_cancelled(
        backend, JobState.RUNNING, lambda job: backend.complete_job(job.id, b"r")
    )


@proves("backend-api.CompleteJob.pre.2")
async def test_complete_job_without_an_id(backend: Contract) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.complete_job("", b"r")
    assert raised.value.field == "job_id"


@proves(
    "backend-api.CompleteJob.pre.3",
    "backend-api.CompleteJob.error.1",
    "backend-api.CompleteJob.must.3",
)
async def test_complete_job_that_is_not_stored(backend: Contract) -> None:
    job = await submitted(backend, namespace="here")
    await backend.dequeue_jobs("w", [], 1, namespace="here")
    for job_id, namespace in (("missing", "here"), (job.id, "default"), (job.id, "nowhere")):
        with pytest.raises(JobNotFound) as raised:
            await backend.complete_job(job_id, b"r", namespace=namespace)
        assert (raised.value.job_id, raised.value.namespace) == (job_id, namespace)
    assert await backend.complete_job(job.id, b"r", namespace="here") == {"w": 1}


@proves(
    "backend-api.CompleteJob.pre.4",
    "backend-api.CompleteJob.post.1",
    "backend-api.CompleteJob.post.2",
    "backend-api.CompleteJob.must.1",
    "backend-api.CompleteJob.must.2",
)
@pytest.mark.parametrize("state", _FROM)
async def test_complete_job_from_each_state(backend: Contract, state: JobState) -> None:
    job, token = await job_in(backend, state)
    result = bytes(range(256))
    await backend.complete_job(job.id, result, token=token)
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.result) == (JobState.COMPLETED, result)


@proves(
    "backend-api.CompleteJob.move.1",
    "backend-api.CompleteJob.move.2",
    "backend-api.CompleteJob.move.3",
    "backend-api.CompleteJob.move.4",
)
async def test_complete_job_moves_by_the_table(backend: Contract) -> None:
    moved = {}
    for state in JobState:
        job, token = await job_in(backend, state)
        try:
            await backend.complete_job(job.id, b"r")
        except InvalidTransition:
            assert token is None or state not in _FROM
        moved[state] = (await backend.get_job(job.id)).state
    assert moved == {s: JobState.COMPLETED if s in _FROM else s for s in JobState}


@proves(
    "backend-api.CompleteJob.post.3",
    "backend-api.CompleteJob.post.4",
    "backend-api.CompleteJob.post.5",
    "backend-api.CompleteJob.must.2",
    "backend-api.CompleteJob.must.4",
)
@pytest.mark.parametrize("state", _FROM)
async def test_complete_job_sets_the_end_and_keeps_the_rest(
    backend: Contract, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    before = await backend.get_job(job.id)
    await backend.complete_job(job.id, b"r", token=token)
    after = await backend.get_job(job.id)
    assert after.finalized_at is not None
    assert before.assigned_at is not None
    assert after.finalized_at > before.assigned_at
    # A late success ends the job anew.
    assert before.finalized_at is None or after.finalized_at > before.finalized_at
    assert after.started_at == before.started_at is not None
    assert (after.assignee_id, after.assigned_at) == (before.assignee_id, before.assigned_at)
    assert (after.retry_count, after.attempt) == (before.retry_count, before.attempt)


@proves("backend-api.CompleteJob.post.4")
async def test_complete_job_keeps_the_time_of_the_first_start(backend: Contract) -> None:
    job, token = await running(backend)
    first = (await backend.get_job(job.id)).started_at
    await backend.fail_job(job.id, "boom", token=token)
    await backend.complete_job(job.id, b"r", token=(await claim(backend, job)).token)
    assert (await backend.get_job(job.id)).started_at == first is not None


@proves("backend-api.CompleteJob.post.6", "backend-api.CompleteJob.must.6")
@pytest.mark.parametrize("state", _LATE)
async def test_complete_job_that_held_no_slot_frees_none(
    backend: Contract, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    assert await backend.complete_job(job.id, b"r", token=token) == {}


@proves(
    "backend-api.CompleteJob.post.7",
    "backend-api.CompleteJob.effect.2",
    "backend-api.CompleteJob.must.6",
)
@pytest.mark.parametrize("state", sorted(set(_FROM) - set(_LATE)))
async def test_complete_job_frees_the_slot(backend: Contract, state: JobState) -> None:
    job, token = await job_in(backend, state)
    assert await backend.complete_job(job.id, b"r", token=token) == {"worker-1": 1}
    # Freed once: nothing is left to be freed.
    assert await backend.mark_worker_unresponsive("worker-1") == {}


@proves(
    "backend-api.CompleteJob.post.8",
    "backend-api.CompleteJob.error.2",
    "backend-api.CompleteJob.must.3",
    "backend-api.CompleteJob.must.5",
)
@pytest.mark.parametrize("state", sorted(set(JobState) - set(_FROM)))
async def test_complete_job_in_another_state_changes_nothing(
    backend: Contract, state: JobState
) -> None:
    job, _ = await job_in(backend, state)
    before = await backend.get_job(job.id)
    with pytest.raises(InvalidTransition) as raised:
        await backend.complete_job(job.id, b"r")
    assert (raised.value.job_id, raised.value.state) == (job.id, state)
    assert await backend.get_job(job.id) == before


@proves("backend-api.CompleteJob.effect.1")
@pytest.mark.parametrize("state", _FROM)
async def test_complete_job_is_for_ever(backend: Contract, state: JobState) -> None:
    job, token = await job_in(backend, state)
    await backend.complete_job(job.id, b"r", token=token)
    assert await backend.dequeue_jobs("w", [], 10) == []
    assert (await backend.cancel_jobs([], [job.id])).unknown_job_ids == (job.id,)
    await backend.reset_running_jobs()
    assert (await backend.get_job(job.id)).state is JobState.COMPLETED
    assert JobState.COMPLETED in TERMINAL


@proves(
    "backend-api.CompleteJob.error.3",
    "backend-api.FailJob.error.4",
    "backend-api.StopJob.error.3",
    "backend-api.StopJobWithRetry.error.3",
    "backend-api.MarkJobUnknownStopped.error.2",
)
async def test_complete_fail_and_stop_without_the_store(backend: Contract, store: Store) -> None:
    job, token = await running(backend)
    leaving, _ = await job_in(backend, JobState.CANCELLING)
    before = await shape(backend, job), await shape(backend, leaving)
    await needs_the_store(
        store,
        backend,
        lambda: backend.complete_job(job.id, b"r"),
        lambda: backend.fail_job(job.id, "boom"),
        lambda: backend.stop_job(job.id, "boom"),
        lambda: backend.stop_job_with_retry(leaving.id, "boom"),
        lambda: backend.mark_job_unknown_stopped(job.id, "boom"),
    )
    assert (await shape(backend, job), await shape(backend, leaving)) == before
    assert await backend.complete_job(job.id, b"r", token=token) == {"worker-1": 1}


async def test_complete_job_with_an_empty_result(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.complete_job(job.id, b"", token=token)
    assert (await backend.get_job(job.id)).result == b""


async def test_complete_job_leaves_other_jobs_alone(backend: Contract) -> None:
    job, token = await running(backend)
    other = a_job(id=f"{job.id}-2")
    await backend.enqueue_job(other)
    before = await backend.get_job(other.id)
    await backend.complete_job(job.id, b"r", token=token)
    assert await backend.get_job(other.id) == before
