"""CleanupExpiredJobs and DeleteJobs."""

import pytest

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Desk
from queue_operator.testing.table import TERMINAL


async def _gone(desk: Desk, *jobs: Job) -> None:
    for job in jobs:
        with pytest.raises(JobNotFound):
            await desk.get(job)


@proves("queue-api.CleanupExpiredJobs.pre.2")
@pytest.mark.parametrize("ttl_s", [0.0, -1.0])
async def test_cleanup_needs_a_time(desk: Desk, ttl_s: float) -> None:
    done = await desk.job_in(JobState.COMPLETED)
    await desk.rig.age(10)
    with pytest.raises(InvalidArgument) as raised:
        await desk.calls.cleanup_expired_jobs(ttl_s)
    assert raised.value.field == "ttl_s"
    assert await desk.state(done) is JobState.COMPLETED


@proves(
    "queue-api.CleanupExpiredJobs.post.1",
    "queue-api.CleanupExpiredJobs.effect.1",
    "queue-api.CleanupExpiredJobs.effect.2",
    "queue-api.CleanupExpiredJobs.expect.1",
    "queue-api.CleanupExpiredJobs.expect.2",
)
async def test_cleanup_deletes_old_successes_only(desk: Desk) -> None:
    old = await desk.jobs_in(*JobState)
    # No lease ends meanwhile.
    await desk.rig.age(10)
    young = await desk.job_in(JobState.COMPLETED)
    await desk.calls.cleanup_expired_jobs(5.0)
    states = [s for s in JobState if s is not JobState.COMPLETED]
    left = [job for job, s in zip(old, JobState, strict=True) if s is not JobState.COMPLETED]
    [done] = [job for job in old if job not in left]
    await _gone(desk, done)
    assert await desk.states([*left, young]) == [*states, JobState.COMPLETED]
    assert (await desk.stats()).completed_jobs == 1
    await desk.calls.enqueue_job(desk.job(id=done.id))
    assert await desk.state(done) is JobState.INITIAL_PENDING


@proves(
    "queue-api.DeleteJobs.post.1",
    "queue-api.DeleteJobs.post.2",
    "queue-api.DeleteJobs.post.3",
    "queue-api.DeleteJobs.effect.1",
    "queue-api.DeleteJobs.effect.2",
)
async def test_delete_takes_what_has_ended(desk: Desk) -> None:
    ended = await desk.jobs_in(*TERMINAL)
    [stays] = await desk.submit()
    await desk.calls.delete_jobs([], [job.id for job in ended])
    await _gone(desk, *ended)
    assert await desk.state(stays) is JobState.INITIAL_PENDING
    assert (await desk.stats()).total_jobs == 1


@proves(
    "queue-api.DeleteJobs.post.4",
    "queue-api.DeleteJobs.post.5",
    "queue-api.DeleteJobs.expect.2",
    "queue-api.DeleteJobs.expect.3",
    "queue-api.DeleteJobs.expect.4",
)
async def test_delete_with_one_that_has_not_ended_deletes_none(desk: Desk) -> None:
    ended = await desk.jobs_in(*TERMINAL)
    live = await desk.jobs_in(*set(JobState) - set(TERMINAL))
    for one in live:
        with pytest.raises(InvalidTransition) as raised:
            await desk.calls.delete_jobs([], [*(job.id for job in ended), one.id])
        assert raised.value.job_id == one.id
    assert await desk.states(ended) == list(TERMINAL)
    assert (await desk.stats()).total_jobs == 10


@proves("queue-api.DeleteJobs.expect.1")
async def test_delete_selects_by_tags_and_by_ids(desk: Desk) -> None:
    tagged, other, named, stays = [desk.job(tags=frozenset(tags)) for tags in ("ab", "a", "", "b")]
    jobs = [tagged, other, named, stays]
    await desk.calls.enqueue_jobs(jobs)
    await desk.calls.cancel_jobs([], [job.id for job in jobs])
    with pytest.raises(InvalidArgument):
        await desk.calls.delete_jobs([], [])
    await desk.calls.delete_jobs(["a", "b"], [named.id])
    await _gone(desk, tagged, named)
    assert await desk.states([other, stays]) == [JobState.UNSCHEDULED] * 2


@proves("queue-api.JobStatus.then.1", "queue-api.Interface.rule.4")
async def test_dead_letters_are_terminal(desk: Desk) -> None:
    dead = await desk.job_in(JobState.DEAD_LETTER)
    stats = await desk.stats()
    assert (stats.stopped_jobs, stats.total_jobs) == (1, 1)
    answer = await desk.calls.cancel_jobs([], [dead.id])
    assert (answer.cancelled_job_ids, answer.unknown_job_ids) == ((), (dead.id,))
    await desk.nothing_more(desk.stream())
    await desk.calls.delete_jobs([], [dead.id])
    await _gone(desk, dead)
