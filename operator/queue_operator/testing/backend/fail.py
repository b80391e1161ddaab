"""FailJob."""

from itertools import pairwise

import pytest

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import job_call_cancelled
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import claim, job_in, running, submitted
from queue_operator.testing.store import Contract, Store

# Spelled out: taken from the table, a wrong table would agree with itself.
_FROM = (
    JobState.RUNNING,
    JobState.UNKNOWN_RETRY,
)


@proves(
    "backend-api.FailJob.pre.1",
    "backend-api.FailJob.error.5",
    "backend-api.FailJob.must.1",
    "backend-api.FailJob.must.2",
)
async def test_fail_job_cancelled(backend: Contract) -> None:
    await job_call_cancelled(
        backend, JobState.RUNNING, lambda job: backend.fail_job(job.id, "boom")
    )


@proves("backend-api.FailJob.pre.2")
async def test_fail_job_without_an_id(backend: Contract) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.fail_job("", "boom")
    assert raised.value.field == "job_id"


@proves("backend-api.FailJob.pre.3", "backend-api.FailJob.error.3")
async def test_fail_job_without_a_message(backend: Contract) -> None:
    job, _ = await running(backend)
    before = await backend.get_job(job.id)
    with pytest.raises(InvalidArgument) as raised:
        await backend.fail_job(job.id, "")
    assert raised.value.field == "error_msg"
    assert await backend.get_job(job.id) == before


@proves("backend-api.FailJob.pre.4", "backend-api.FailJob.error.1", "backend-api.FailJob.must.4")
async def test_fail_job_that_is_not_stored(backend: Contract) -> None:
    job = await submitted(backend, namespace="here")
    await backend.dequeue_jobs("w", [], 1, namespace="here")
    for job_id, namespace in (("missing", "here"), (job.id, "default")):
        with pytest.raises(JobNotFound):
            await backend.fail_job(job_id, "boom", namespace=namespace)
    assert await backend.fail_job(job.id, "boom", namespace="here") == {"w": 1}


@proves(
    "backend-api.FailJob.pre.5",
    "backend-api.FailJob.post.1",
    "backend-api.FailJob.post.2",
    "backend-api.FailJob.move.1",
    "backend-api.FailJob.move.2",
)
@pytest.mark.parametrize("state", _FROM)
async def test_fail_job_from_each_state(backend: Contract, state: JobState) -> None:
    job, token = await job_in(backend, state)
    await backend.fail_job(job.id, "böse\n\tÜberraschung", token=token)
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.error_message) == (
        JobState.FAILED_RETRY,
        "böse\n\tÜberraschung",
    )


@proves("backend-api.FailJob.post.1", "backend-api.FailJob.post.3")
async def test_fail_job_on_the_last_attempt_ends_it(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=2)
    await backend.fail_job(job.id, "first", token=(await claim(backend, job)).token)
    assert (await backend.get_job(job.id)).state is JobState.FAILED_RETRY
    await backend.fail_job(job.id, "last", token=(await claim(backend, job)).token)
    dead = await backend.get_job(job.id)
    assert (dead.state, dead.error_message, dead.retry_count) == (JobState.DEAD_LETTER, "last", 1)
    assert dead.finalized_at is not None


@proves(
    "backend-api.FailJob.post.3",
    "backend-api.FailJob.post.4",
    "backend-api.FailJob.post.5",
    "backend-api.FailJob.must.2",
    "backend-api.FailJob.must.5",
)
@pytest.mark.parametrize("state", _FROM)
async def test_fail_job_counts_the_retry_and_keeps_the_assignee(
    backend: Contract, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    before = await backend.get_job(job.id)
    await backend.fail_job(job.id, "boom", token=token)
    after = await backend.get_job(job.id)
    assert (after.retry_count, after.failure_count) == (before.retry_count + 1, 1)
    assert before.assigned_at is not None
    assert after.last_retry_at is not None
    assert after.last_retry_at > before.assigned_at
    assert (after.assignee_id, after.assigned_at) == (before.assignee_id, before.assigned_at)
    assert after.started_at == before.started_at
    assert after.finalized_at is None


@proves("backend-api.FailJob.post.3", "backend-api.FailJob.post.4", "backend-api.FailJob.must.3")
async def test_fail_job_counts_each_retry(backend: Contract) -> None:
    job = await submitted(backend)
    times = []
    for n in range(1, 4):
        await backend.fail_job(job.id, f"boom {n}", token=(await claim(backend, job)).token)
        stored = await backend.get_job(job.id)
        assert (stored.retry_count, stored.error_message) == (n, f"boom {n}")
        assert stored.last_retry_at is not None
        times.append(stored.last_retry_at)
    assert all(earlier < later for earlier, later in pairwise(times))


@proves("backend-api.FailJob.post.6", "backend-api.FailJob.must.7")
async def test_fail_job_that_held_no_slot_frees_none(backend: Contract) -> None:
    job, token = await job_in(backend, JobState.UNKNOWN_RETRY)
    assert await backend.fail_job(job.id, "boom", token=token) == {}


@proves("backend-api.FailJob.post.7", "backend-api.FailJob.effect.2", "backend-api.FailJob.must.7")
@pytest.mark.parametrize("max_attempts", [None, 1])
async def test_fail_job_frees_the_slot(backend: Contract, max_attempts: int | None) -> None:
    job, token = await running(backend, max_attempts=max_attempts)
    assert await backend.fail_job(job.id, "boom", token=token) == {"worker-1": 1}
    assert await backend.mark_worker_unresponsive("worker-1") == {}


@proves(
    "backend-api.FailJob.post.8",
    "backend-api.FailJob.error.2",
    "backend-api.FailJob.must.4",
    "backend-api.FailJob.must.6",
)
@pytest.mark.parametrize("state", sorted(set(JobState) - set(_FROM)))
async def test_fail_job_in_another_state_changes_nothing(
    backend: Contract, state: JobState
) -> None:
    job, _ = await job_in(backend, state)
    before = await backend.get_job(job.id)
    with pytest.raises(InvalidTransition) as raised:
        await backend.fail_job(job.id, "boom")
    assert (raised.value.job_id, raised.value.state) == (job.id, state)
    assert await backend.get_job(job.id) == before


@proves(
    "backend-api.FailJob.effect.1", "backend-api.FailJob.expect.1", "backend-api.FailJob.must.1"
)
async def test_fail_job_makes_it_eligible_where_it_is(backend: Contract, store: Store) -> None:
    at_once, token = await running(backend)
    await backend.fail_job(at_once.id, "boom", token=token)
    later, token = await running(backend, backoff=Backoff(BackoffStrategy.CONSTANT, 50.0, 50.0))
    await backend.fail_job(later.id, "boom", token=token)
    for job in (at_once, later):
        assert (await backend.get_job(job.id)).state is JobState.FAILED_RETRY
    assert [job.id for job in await backend.dequeue_jobs("w", [], 5)] == [at_once.id]
    await store.age(51.0)
    assert [job.id for job in await backend.dequeue_jobs("w", [], 5)] == [later.id]
