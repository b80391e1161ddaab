"""GetJob and GetJobStats."""

from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.domain.job import Job, JobStats
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import (
    in_a_cancelled_task,
    needs_the_store,
    whole_or_not_at_all,
)
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import claim, job_in, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.table import TERMINAL


@proves("backend-api.GetJob.pre.1", "backend-api.GetJob.error.3")
async def test_get_job_cancelled(backend: Contract) -> None:
    job = await submitted(backend)
    await in_a_cancelled_task(lambda: backend.get_job(job.id))

    async def bring() -> Job:
        return job

    await whole_or_not_at_all(
        bring, lambda job: backend.get_job(job.id), lambda job: backend.get_job(job.id)
    )


@proves("backend-api.GetJob.pre.2")
@pytest.mark.parametrize("job_id", ["", None, 7, "a\x00"])
async def test_get_job_without_an_id(backend: Contract, job_id: Any) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.get_job(job_id)
    assert raised.value.field == "job_id"


@proves("backend-api.GetJob.post.1", "backend-api.GetJob.error.1", "backend-api.GetJob.must.3")
async def test_get_job_gives_the_job_or_an_error(backend: Contract) -> None:
    job = await submitted(backend, namespace="here")
    assert (await backend.get_job(job.id, namespace="here")).id == job.id
    for namespace in ("default", "nowhere"):
        with pytest.raises(JobNotFound) as raised:
            await backend.get_job(job.id, namespace=namespace)
        assert (raised.value.job_id, raised.value.namespace) == (job.id, namespace)


@proves(
    "backend-api.GetJob.post.2",
    "backend-api.EnqueueJob.must.6",
    "backend-api.GetJob.must.1",
    "backend-api.GetJob.must.5",
)
async def test_get_job_fills_in_every_field(backend: Contract) -> None:
    job = await submitted(backend, tags=frozenset({"b", "a"}), max_attempts=3)
    token = (await claim(backend, job, "worker-3")).token
    await backend.fail_job(job.id, "boom", token=token)
    await backend.complete_job(job.id, b"ok", token=(await claim(backend, job, "w")).token)
    stored = await backend.get_job(job.id)
    assert (stored.tags, stored.result, stored.error_message) == (
        frozenset({"a", "b"}),
        b"ok",
        "boom",
    )
    assert (stored.attempt, stored.retry_count, stored.lease_version) == (2, 1, 2)
    assert (stored.state, stored.assignee_id, stored.max_attempts) == (JobState.COMPLETED, "w", 3)
    times = (
        stored.created_at,
        stored.started_at,
        stored.last_retry_at,
        stored.assigned_at,
        stored.finalized_at,
    )
    known = [at for at in times if at is not None]
    assert len(known) == len(times)
    assert known == sorted(known)
    assert all(at.tzinfo is not None for at in known)
    assert stored.updated_at == stored.finalized_at
    # Stored, claimed, failed, claimed, completed.
    assert stored.transition == 5


@proves("backend-api.GetJob.post.3", "backend-api.GetJobStats.post.3")
@pytest.mark.parametrize("state", JobState)
async def test_get_job_and_stats_change_nothing(backend: Contract, state: JobState) -> None:
    job, _ = await job_in(backend, state)
    first, stats = await backend.get_job(job.id), await backend.get_job_stats([])
    assert await backend.get_job(job.id) == first
    assert await backend.get_job_stats([]) == stats


@proves("backend-api.GetJob.expect.1", "backend-api.GetJob.must.2")
async def test_get_job_gives_what_another_backend_wrote(store: Store) -> None:
    here, there = await store.open(), await store.open()
    job, token = await running(here)
    assert (await there.get_job(job.id)).state is JobState.RUNNING
    await there.complete_job(job.id, b"done", token=token)
    assert (await here.get_job(job.id)).result == b"done"


@proves("backend-api.GetJob.error.2", "backend-api.GetJobStats.error.1")
async def test_get_job_and_stats_without_the_store(store: Store, backend: Contract) -> None:
    job = await submitted(backend)
    await needs_the_store(
        store,
        backend,
        lambda: backend.get_job(job.id),
        lambda: backend.get_job_stats([]),
        backend.ping,
    )
    assert (await backend.get_job(job.id)).id == job.id
    assert (await backend.get_job_stats([])).total_jobs == 1


@proves("backend-api.GetJobStats.pre.1", "backend-api.GetJobStats.error.2")
async def test_get_job_stats_cancelled(backend: Contract) -> None:
    await submitted(backend)
    await in_a_cancelled_task(lambda: backend.get_job_stats([]))

    async def nothing() -> None:
        return None

    await whole_or_not_at_all(
        nothing, lambda _: backend.get_job_stats([]), lambda _: backend.get_job_stats([])
    )


@proves("backend-api.GetJobStats.pre.2")
@pytest.mark.parametrize("tags", ["tag", None, [""], [7]])
async def test_get_job_stats_with_bad_tags(backend: Contract, tags: Any) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.get_job_stats(tags)
    assert raised.value.field == "tags"


@proves(
    "backend-api.GetJobStats.post.1",
    "backend-api.GetJobStats.post.2",
    "backend-api.GetJobStats.pre.2",
    "backend-api.GetJobStats.must.1",
    "backend-api.TestingRequirements.must.9",
)
async def test_get_job_stats_counts_by_all_tags_in_one_namespace(backend: Contract) -> None:
    await submitted(backend, tags=frozenset({"a", "b"}))
    await submitted(backend, tags=frozenset({"a"}))
    await submitted(backend)
    await submitted(backend, tags=frozenset({"a", "b"}), namespace="other")
    assert (await backend.get_job_stats([])).total_jobs == 3
    assert (await backend.get_job_stats(["a"])).total_jobs == 2
    assert (await backend.get_job_stats(["b", "a"])).total_jobs == 1
    assert (await backend.get_job_stats(["A"])).total_jobs == 0
    assert (await backend.get_job_stats(["a", "b"], namespace="other")).total_jobs == 1
    assert (await backend.get_job_stats(["nobody"])) == JobStats.from_counts(
        frozenset({"nobody"}), {}, 0
    )


async def _one_more_of_each(backend: Contract) -> dict[JobState, int]:
    """Another number of jobs in each state, so that none can stand for another."""
    for n, state in enumerate(JobState):
        for _ in range(n + 1):
            await job_in(backend, state)
    return {state: n + 1 for n, state in enumerate(JobState)}


@proves(
    "backend-api.GetJobStats.must.5",
    "backend-api.GetJobStats.must.6",
    "backend-api.GetJobStats.must.7",
    "backend-api.GetJobStats.must.8",
)
async def test_get_job_stats_equals_a_recount(backend: Contract) -> None:
    expected = await _one_more_of_each(backend)
    stats = await backend.get_job_stats([])
    assert stats.by_state == expected
    assert stats.total_jobs == sum(expected.values())
    assert stats.pending_jobs == expected[JobState.INITIAL_PENDING]
    assert stats.running_jobs == expected[JobState.RUNNING]
    assert stats.completed_jobs == expected[JobState.COMPLETED]


@proves("backend-api.GetJobStats.must.9", "backend-api.GetJobStats.must.10")
async def test_get_job_stats_sums_the_stopped_and_the_failed(backend: Contract) -> None:
    expected = await _one_more_of_each(backend)
    stats = await backend.get_job_stats([])
    assert stats.failed_jobs == expected[JobState.FAILED_RETRY] + expected[JobState.UNKNOWN_RETRY]
    ended = [count for state, count in expected.items() if state in TERMINAL]
    assert stats.stopped_jobs == sum(ended) - expected[JobState.COMPLETED]
    # Whatever a sweep tidies up must not change the counts.
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert await backend.get_job_stats([]) == stats


@proves("backend-api.GetJobStats.must.11")
async def test_get_job_stats_sums_the_retries(backend: Contract) -> None:
    for failures in range(4):
        job = await submitted(backend, tags=frozenset({"even" if failures % 2 == 0 else "odd"}))
        for _ in range(failures):
            await backend.fail_job(job.id, "boom", token=(await claim(backend, job)).token)
        if failures == 3:
            await backend.complete_job(job.id, b"", token=(await claim(backend, job)).token)
    assert (await backend.get_job_stats([])).total_retries == 0 + 1 + 2 + 3
    assert (await backend.get_job_stats(["even"])).total_retries == 2
    assert (await backend.get_job_stats(["odd"])).total_retries == 4


@proves(
    "backend-api.ObservableStateChanges.effect.1", "backend-api.ObservableStateChanges.effect.4"
)
async def test_get_job_shows_each_step_of_a_life(backend: Contract) -> None:
    job = await submitted(backend)
    assert (await backend.get_job(job.id)).assignee_id == ""
    token = (await claim(backend, job, "w1")).token
    first = await backend.get_job(job.id)
    assert (first.state, first.assignee_id, first.retry_count) == (JobState.RUNNING, "w1", 0)
    await backend.fail_job(job.id, "boom", token=token)
    failed = await backend.get_job(job.id)
    assert (failed.state, failed.retry_count) == (JobState.FAILED_RETRY, 1)
    assert failed.assigned_at == first.assigned_at
    token = (await claim(backend, job, "w2")).token
    second = await backend.get_job(job.id)
    assert (second.state, second.assignee_id) == (JobState.RUNNING, "w2")
    assert second.assigned_at is not None
    assert first.assigned_at is not None
    assert second.assigned_at > first.assigned_at
    await backend.stop_job(job.id, "enough", token=token)
    assert (await backend.get_job(job.id)).finalized_at is not None


@proves("backend-api.ObservableStateChanges.effect.3")
async def test_get_job_stats_follows_every_step(backend: Contract) -> None:
    job = await submitted(backend, tags=frozenset({"a"}))
    for step in ("claim", "fail", "claim", "complete"):
        before = await backend.get_job_stats(["a"])
        if step == "claim":
            token = (await claim(backend, job)).token
        elif step == "fail":
            await backend.fail_job(job.id, "boom", token=token)
        else:
            await backend.complete_job(job.id, b"", token=token)
        after = await backend.get_job_stats(["a"])
        state = (await backend.get_job(job.id)).state
        assert after != before
        assert {s: n for s, n in after.by_state.items() if n} == {state: 1}


async def test_ping_answers(backend: Contract) -> None:
    await backend.ping()
