"""Reset, clean-up, deletion, statistics."""

import pytest
from tests.contract.driving import apply, claim, job_in, running, submitted
from tests.contract.store import TTL_S, Store

from queue_operator.backends.protocol import Backend
from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.job import JobStats
from queue_operator.domain.states import SLOT_HOLDING, TERMINAL, Event, JobState


async def test_a_reset_loses_every_running_job(backend: Backend) -> None:
    jobs = {state: (await job_in(backend, state))[0] for state in JobState}
    assert await backend.reset_running_jobs() == {"worker-1": 2}
    expected = {
        **{state: state for state in JobState},
        JobState.RUNNING: JobState.UNKNOWN_RETRY,
        JobState.CANCELLING: JobState.UNKNOWN_STOPPED,
    }
    for state, job in jobs.items():
        stored = await backend.get_job(job.id)
        assert stored.state is expected[state]
        if state in SLOT_HOLDING:
            assert (stored.assignee_id, stored.attempt) == ("worker-1", 0)
    assert await backend.reset_running_jobs() == {}


async def test_a_reset_may_be_of_one_namespace(backend: Backend) -> None:
    for namespace in ("a", "b"):
        await submitted(backend, namespace=namespace)
        await backend.dequeue_jobs(f"w-{namespace}", [], 1, namespace=namespace)
    assert await backend.reset_running_jobs(namespace="a") == {"w-a": 1}
    assert await backend.reset_running_jobs(namespace="nowhere") == {}
    assert await backend.reset_running_jobs() == {"w-b": 1}


async def test_an_unresponsive_workers_jobs_are_lost_and_its_token_still_counts(
    backend: Backend,
) -> None:
    mine, token = await running(backend)
    other = await submitted(backend)
    await claim(backend, other, "worker-2")
    assert await backend.mark_worker_unresponsive("worker-1") == {"worker-1": 1}
    assert (await backend.get_job(other.id)).state is JobState.RUNNING
    stored = await backend.get_job(mine.id)
    assert (stored.state, stored.attempt) == (JobState.UNKNOWN_RETRY, 0)
    assert await backend.complete_job(mine.id, b"late", token=token) == {}
    assert await backend.mark_worker_unresponsive("nobody") == {}


async def test_clean_up_deletes_old_completed_jobs_and_nothing_else(
    backend: Backend, store: Store
) -> None:
    jobs = {state: (await job_in(backend, state))[0] for state in JobState}
    await store.age(100)
    fresh, token = await running(backend)
    await backend.complete_job(fresh.id, b"", token=token)
    assert await backend.cleanup_expired_jobs(1000) == 0
    assert await backend.cleanup_expired_jobs(50, namespace="other") == 0
    assert await backend.cleanup_expired_jobs(50) == 1
    with pytest.raises(JobNotFound):
        await backend.get_job(jobs.pop(JobState.COMPLETED).id)
    for job in [*jobs.values(), fresh]:
        await backend.get_job(job.id)


async def test_every_ended_job_can_be_deleted(backend: Backend) -> None:
    jobs = [(await job_in(backend, state))[0] for state in TERMINAL]
    kept = await submitted(backend)
    assert await backend.delete_jobs([], [job.id for job in jobs] + ["missing"]) == len(jobs)
    for job in jobs:
        with pytest.raises(JobNotFound):
            await backend.get_job(job.id)
    assert (await backend.get_job_stats([])).total_jobs == 1
    # The id is free again.
    await backend.enqueue_job(jobs[0])
    assert (await backend.get_job(kept.id)).state is JobState.INITIAL_PENDING


@pytest.mark.parametrize("state", sorted(set(JobState) - set(TERMINAL)))
async def test_one_live_job_keeps_all_from_being_deleted(backend: Backend, state: JobState) -> None:
    ended, _ = await job_in(backend, JobState.COMPLETED)
    live, _ = await job_in(backend, state)
    with pytest.raises(InvalidTransition):
        await backend.delete_jobs([], [ended.id, live.id])
    assert (await backend.get_job(ended.id)).state is JobState.COMPLETED
    assert (await backend.get_job(live.id)).state is state


async def test_deletion_by_tags(backend: Backend) -> None:
    tagged = [await submitted(backend, tags=frozenset({"a", f"n={n}"})) for n in range(3)]
    await submitted(backend)
    with pytest.raises(InvalidTransition):
        await backend.delete_jobs(["a"], [])
    await backend.cancel_jobs(["a"], [])
    assert await backend.delete_jobs(["a", "n=1"], [tagged[1].id]) == 1
    assert await backend.delete_jobs(["a"], []) == 2
    with pytest.raises(InvalidArgument):
        await backend.delete_jobs([], [])


async def test_a_resubmitted_id_starts_anew(backend: Backend) -> None:
    job, token = await running(backend)
    await backend.complete_job(job.id, b"old", token=token)
    await backend.delete_jobs([], [job.id])
    await backend.enqueue_job(job)
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.result, stored.attempt) == (JobState.INITIAL_PENDING, None, 0)
    assert (await apply(backend, job, Event.COMPLETE, token)).error is not None


async def test_statistics_equal_a_recount(backend: Backend, store: Store) -> None:
    for n, state in enumerate(JobState):
        for _ in range(n + 1):
            await job_in(backend, state)
    expected = {state: n + 1 for n, state in enumerate(JobState)}
    stats = await backend.get_job_stats([])
    assert stats.by_state == expected
    assert stats.total_jobs == sum(expected.values())
    assert stats.pending_jobs == expected[JobState.INITIAL_PENDING]
    assert stats.running_jobs == expected[JobState.RUNNING]
    assert stats.completed_jobs == expected[JobState.COMPLETED]
    assert stats.failed_jobs == (expected[JobState.FAILED_RETRY] + expected[JobState.UNKNOWN_RETRY])
    assert stats.stopped_jobs == sum(
        expected[state] for state in TERMINAL if state is not JobState.COMPLETED
    )
    assert stats.total_retries == expected[JobState.FAILED_RETRY]
    # Folding the counts must not change them.
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert await backend.get_job_stats([]) == stats


async def test_statistics_count_by_all_tags_in_one_namespace(backend: Backend) -> None:
    await submitted(backend, tags=frozenset({"a", "b"}))
    await submitted(backend, tags=frozenset({"a"}))
    await submitted(backend, tags=frozenset({"a", "b"}), namespace="other")
    assert (await backend.get_job_stats(["a"])).total_jobs == 2
    assert (await backend.get_job_stats(["b", "a"])).total_jobs == 1
    assert (await backend.get_job_stats(["a", "b"], namespace="other")).total_jobs == 1
    assert (await backend.get_job_stats(["nobody"])) == JobStats.from_counts(
        frozenset({"nobody"}), {}, 0
    )


async def test_ping_answers(backend: Backend) -> None:
    await backend.ping()
