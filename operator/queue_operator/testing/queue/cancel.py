"""CancelJobs."""

import asyncio

import pytest

from queue_operator.domain.errors import InvalidArgument, InvalidTransition
from queue_operator.domain.job import Cancelled, Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue import checks
from queue_operator.testing.queue.complete import complete
from queue_operator.testing.queue.desk import Desk
from queue_operator.testing.table import TERMINAL

_TO = {
    JobState.INITIAL_PENDING: JobState.UNSCHEDULED,
    JobState.RUNNING: JobState.CANCELLING,
    JobState.CANCELLING: JobState.CANCELLING,
    JobState.FAILED_RETRY: JobState.STOPPED,
    JobState.UNKNOWN_RETRY: JobState.STOPPED,
}


async def cancel(desk: Desk, *jobs: Job) -> Cancelled:
    answer: Cancelled = await desk.calls.cancel_jobs([], [job.id for job in jobs])
    return answer


@proves(
    "queue-api.CancelJobs.post.2",
    "queue-api.CancelJobs.post.3",
    "queue-api.CancelJobs.post.4",
    "queue-api.CancelJobs.post.5",
    "queue-api.CancelJobs.expect.2",
)
async def test_cancel_moves_each_job_by_its_state(desk: Desk) -> None:
    jobs = await desk.jobs_in(*JobState)
    await cancel(desk, *jobs)
    assert await desk.states(jobs) == [_TO.get(state, state) for state in JobState]


@proves(
    "queue-api.CancelJobs.post.6",
    "queue-api.CancelJobs.post.7",
    "queue-api.CancelJobs.post.8",
    "queue-api.CancelJobs.expect.3",
    "queue-api.CancelJobs.expect.4",
)
async def test_cancel_tells_what_became_of_each(desk: Desk) -> None:
    jobs = await desk.jobs_in(*JobState)
    before = {job.id: await desk.get(job) for job in jobs}
    terminal = [job.id for job, state in zip(jobs, JobState, strict=True) if state in TERMINAL]
    leaving = next(j for j, s in zip(jobs, JobState, strict=True) if s is JobState.CANCELLING)
    answer = await desk.calls.cancel_jobs([], [*(job.id for job in jobs), "nobody", jobs[0].id])
    assert sorted(answer.unknown_job_ids) == sorted([*terminal, "nobody"])
    assert sorted(answer.cancelled_job_ids) == sorted({*before} - {*terminal})
    for job_id in (*terminal, leaving.id):
        assert await desk.get(job_id) == before[job_id]


@proves("queue-api.CancelJobs.post.1", "queue-api.CancelJobs.expect.1")
async def test_cancel_selects_by_tags_and_by_ids(desk: Desk) -> None:
    both, more, one, named, other = [
        desk.job(tags=frozenset(tags)) for tags in ("ab", "abc", "a", "", "c")
    ]
    await desk.calls.enqueue_jobs([both, more, one, named, other])
    answer = await desk.calls.cancel_jobs(["a", "b"], [named.id, both.id])
    assert sorted(answer.cancelled_job_ids) == sorted(job.id for job in (both, more, named))
    assert await desk.states([one, other]) == [JobState.INITIAL_PENDING] * 2


@proves("queue-api.CancelJobs.rule.1")
async def test_cancel_of_nothing_is_refused(desk: Desk) -> None:
    jobs = await desk.submit(2)
    with pytest.raises(InvalidArgument):
        await desk.calls.cancel_jobs([], [])
    assert set(await desk.states(jobs)) == {JobState.INITIAL_PENDING}
    await cancel(desk, jobs[0])
    assert await desk.states(jobs) == [JobState.UNSCHEDULED, JobState.INITIAL_PENDING]


@proves("queue-api.CancelJobs.effect.2")
async def test_cancel_keeps_the_slot_until_the_worker_answers(desk: Desk) -> None:
    stream, [held] = await desk.holding(1)
    [following] = await desk.submit()
    await cancel(desk, held)
    await desk.nothing_more(stream)
    await desk.rig.tick()
    await desk.nothing_more(stream)
    await desk.calls.acknowledge_cancellation(held.id, True)
    assert (await stream.one()).id == following.id


@proves("queue-api.JobStatus.rule.5", "queue-api.JobStatus.rule.9")
async def test_cancelled_jobs_end_as_the_table_says(desk: Desk) -> None:
    waiting, retrying, running, lost = await desk.jobs_in(
        JobState.INITIAL_PENDING, JobState.FAILED_RETRY, JobState.RUNNING, JobState.RUNNING
    )
    await cancel(desk, waiting, retrying, running, lost)
    await desk.calls.acknowledge_cancellation(running.id, True)
    await desk.calls.acknowledge_cancellation(lost.id, False)
    ended = [waiting, retrying, running, lost]
    assert await desk.states(ended) == [
        JobState.UNSCHEDULED,
        JobState.STOPPED,
        JobState.STOPPED,
        JobState.UNKNOWN_STOPPED,
    ]
    await desk.nothing_more(desk.stream())


@proves("queue-api.JobStatus.rule.6")
async def test_a_job_that_is_cancelled_or_skipped_before_it_ran_is_unscheduled_for_good(
    desk: Desk,
) -> None:
    waiting, parent = await desk.submit(2)
    child = desk.job(depends_on=(parent.id,))
    grandchild = desk.job(depends_on=(child.id,))
    await desk.calls.enqueue_jobs([child, grandchild])
    await cancel(desk, waiting, parent)
    ended = [waiting, parent, child, grandchild]

    async def unscheduled() -> bool:
        return set(await desk.states(ended)) == {JobState.UNSCHEDULED}

    await desk.until(unscheduled)
    before = [await desk.get(job) for job in ended]
    for stored in before:
        assert (stored.assignee_id, stored.assigned_at, stored.started_at) == ("", None, None)
        assert (stored.attempt, stored.finalized_at is None) == (0, False)
    # Nothing brings them back, and nobody is given them.
    for call in (complete, *_CALLS, _acknowledge):
        for job in ended:
            with pytest.raises(InvalidTransition):
                await call(desk, job.id)
    assert (await cancel(desk, *ended)).cancelled_job_ids == ()
    await desk.calls.reset_running_jobs()
    await desk.nothing_more(desk.stream())
    assert [await desk.get(job) for job in ended] == before


@proves("queue-api.JobStatus.then.2")
async def test_nothing_brings_a_job_back_to_its_beginning(desk: Desk) -> None:
    jobs = await desk.jobs_in(*set(JobState) - {JobState.INITIAL_PENDING})
    calls = [complete, *_CALLS]
    for call in calls:
        await asyncio.gather(*(call(desk, job.id) for job in jobs), return_exceptions=True)
        assert JobState.INITIAL_PENDING not in await desk.states(jobs)
    await cancel(desk, *jobs)
    await desk.calls.reset_running_jobs()
    assert JobState.INITIAL_PENDING not in await desk.states(jobs)


async def _fail(desk: Desk, job_id: str) -> None:
    await desk.calls.fail_job(job_id, "x")


async def _stop(desk: Desk, job_id: str) -> None:
    await desk.calls.stop_job(job_id, "")


async def _acknowledge(desk: Desk, job_id: str) -> None:
    await desk.calls.acknowledge_cancellation(job_id, True)


_CALLS: list[checks.Call] = [_fail, _stop]


@proves("queue-api.Cancellation.rule.10")
async def test_cancel_of_an_unread_job_is_settled_by_its_stream(desk: Desk) -> None:
    stream = await desk.waiting(2)
    [first] = await desk.submit()
    assert (await stream.one()).id == first.id
    [unread] = await desk.submit()

    async def assigned() -> bool:
        return await desk.state(unread) is JobState.RUNNING

    await desk.until(assigned)
    await cancel(desk, unread)

    async def stopped() -> bool:
        return await desk.state(unread) is JobState.STOPPED

    if desk.rig.carries:
        # It was written: its stream gives it back when it ends.
        await stream.close()
    # On another replica the news of the cancel is heard, and no comparison is needed.
    await desk.until(stopped)
