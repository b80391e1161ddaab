"""Errors of every call: a cancelled task, a wrong argument, a store that is away."""

import asyncio
from typing import Any

import pytest

from queue_operator.domain.errors import (
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    QueueError,
    Unavailable,
)
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import in_a_cancelled_task
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue import checks
from queue_operator.testing.queue.acknowledge import not_mine, stopped
from queue_operator.testing.queue.complete import complete
from queue_operator.testing.queue.desk import Desk
from queue_operator.testing.queue.fail import fail
from queue_operator.testing.queue.stop import stop, stop_with_retry
from queue_operator.testing.queue.unknown_stopped import mark
from queue_operator.testing.walking import cancelled_after


@proves(
    "queue-api.CompleteJob.pre.1",
    "queue-api.FailJob.pre.1",
    "queue-api.StopJob.pre.1",
    "queue-api.StopJobWithRetry.pre.1",
    "queue-api.MarkJobUnknownStopped.pre.1",
)
async def test_outcomes_in_a_cancelled_task(desk: Desk) -> None:
    await checks.cancelled_on_entry(desk, complete, fail, stop, stop_with_retry, mark)


@proves(
    "queue-api.AcknowledgeCancellation.pre.1",
    "queue-api.CancelJobs.pre.1",
    "queue-api.GetJob.pre.1",
    "queue-api.GetJobStats.pre.1",
)
async def test_questions_and_cancels_in_a_cancelled_task(desk: Desk) -> None:
    await checks.cancelled_on_entry(desk, stopped, not_mine)
    [job] = await desk.submit()
    await in_a_cancelled_task(lambda: desk.calls.cancel_jobs([], [job.id]))
    await in_a_cancelled_task(lambda: desk.calls.get_job(job.id))
    await in_a_cancelled_task(lambda: desk.calls.get_job_stats([]))
    # It may have reached the store, as a whole or not at all.
    assert await desk.state(job) in {JobState.INITIAL_PENDING, JobState.UNSCHEDULED}


@proves(
    "queue-api.MarkWorkerUnresponsive.pre.1",
    "queue-api.ResetRunningJobs.pre.1",
    "queue-api.CleanupExpiredJobs.pre.1",
    "queue-api.DeleteJobs.pre.1",
    "queue-api.ErrorConditions.rule.1",
)
async def test_maintenance_in_a_cancelled_task(desk: Desk) -> None:
    stream, [held] = await desk.holding(1)
    done, kept = await desk.jobs_in(JobState.COMPLETED, JobState.STOPPED)
    assignee = (await desk.get(held)).assignee_id
    await desk.rig.age(10)
    await in_a_cancelled_task(lambda: desk.calls.mark_worker_unresponsive(assignee))
    await in_a_cancelled_task(lambda: desk.calls.reset_running_jobs())
    await in_a_cancelled_task(lambda: desk.calls.cleanup_expired_jobs(1.0))
    await in_a_cancelled_task(lambda: desk.calls.delete_jobs([], [done.id]))
    # Each happened as a whole or not at all, and the queue goes on.
    assert await desk.state(kept) is JobState.STOPPED
    assert await desk.state(held) in {JobState.RUNNING, JobState.UNKNOWN_RETRY}
    await desk.calls.reset_running_jobs()
    assert (await stream.one()).id == held.id


# From before a call is on its way until long after a quick one was answered.
_TURNS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)


@proves("queue-api.FailJob.pre.1", "queue-api.ErrorHandling.rule.2")
async def test_failures_whose_caller_is_cancelled_on_the_way(desk: Desk) -> None:
    jobs = await desk.jobs_in(*[JobState.RUNNING] * len(_TURNS))
    await asyncio.gather(
        *(
            cancelled_after(turns, fail(desk, job.id))
            for turns, job in zip(_TURNS, jobs, strict=True)
        )
    )
    await desk.settled(compare=False)
    for job in jobs:
        stored = await desk.get(job)
        whole = (stored.state, stored.retry_count, stored.error is not None)
        assert whole in {(JobState.RUNNING, 0, False), (JobState.FAILED_RETRY, 1, True)}


@proves(
    "queue-api.CompleteJob.pre.1",
    "queue-api.StopJob.pre.1",
    "queue-api.ErrorHandling.rule.2",
)
async def test_outcomes_whose_caller_is_cancelled_on_the_way(desk: Desk) -> None:
    """Each is stored whole or not at all, its slot comes back once, and others go on."""
    calls = {JobState.COMPLETED: complete, JobState.STOPPED: stop}
    ends = [(turns, state) for turns in _TURNS for state in calls]
    stream, jobs = await desk.holding(len(ends))
    # Beside one another, so that those that are cut off share statements with those that stay.
    await asyncio.gather(
        *(
            cancelled_after(turns, calls[state](desk, job.id))
            for job, (turns, state) in zip(jobs, ends, strict=True)
        )
    )
    await desk.settled(compare=False)
    for job, (_, state) in zip(jobs, ends, strict=True):
        stored = await desk.get(job)
        if stored.state is JobState.RUNNING:
            assert (stored.result, stored.error, stored.finalized_at) == (None, None, None)
            await complete(desk, job.id)
        else:
            assert stored.state is state
            assert stored.finalized_at is not None
            assert (stored.result is not None) == (state is JobState.COMPLETED)
    await desk.submit(len(ends) + 1)
    await stream.take(len(ends))
    await desk.nothing_more(stream)


@proves(
    "queue-api.EnqueueJobs.expect.1",
    "queue-api.CancelJobs.pre.1",
    "queue-api.DeleteJobs.pre.1",
    "queue-api.ResetRunningJobs.pre.1",
    "queue-api.ErrorHandling.rule.2",
)
async def test_calls_for_many_jobs_whose_caller_is_cancelled_on_the_way(desk: Desk) -> None:
    for turns in _TURNS:
        jobs = [desk.job() for _ in range(3)]
        ids = [job.id for job in jobs]
        going_on, _ = await cancelled_after(turns, desk.calls.enqueue_jobs(jobs))
        await desk.settled(compare=False)
        stored = (await desk.stats()).total_jobs
        assert stored in (0, 3) if going_on else stored == 3
        if not stored:
            await desk.calls.enqueue_jobs(jobs)
        going_on, _ = await cancelled_after(turns, desk.calls.cancel_jobs([], ids))
        await desk.settled(compare=False)
        states = set(await desk.states(jobs))
        assert len(states) == 1 if going_on else states == {JobState.UNSCHEDULED}
        await desk.calls.cancel_jobs([], ids)
        going_on, _ = await cancelled_after(turns, desk.calls.delete_jobs([], ids))
        await desk.settled(compare=False)
        left = (await desk.stats()).total_jobs
        assert left in (0, 3) if going_on else left == 0
        await desk.calls.delete_jobs([], ids)


@proves("queue-api.ErrorConditions.rule.5")
@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("get_job", ("",), "job_id"),
        ("get_job", (7,), "job_id"),
        ("complete_job", ("j", "text"), "result"),
        ("fail_job", ("j", ""), "error_msg"),
        ("mark_worker_unresponsive", ("",), "assignee_id"),
        ("cleanup_expired_jobs", (-1.0,), "ttl_s"),
        ("get_job_stats", ([""],), "tags"),
        ("cancel_jobs", ("text", []), "tags"),
        ("delete_jobs", ([], [""]), "job_ids"),
    ],
)
async def test_a_wrong_argument_is_named(
    desk: Desk, name: str, arguments: tuple[Any, ...], field: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await getattr(desk.calls, name)(*arguments)
    assert raised.value.field == field


@proves("queue-api.ErrorConditions.rule.2", "queue-api.ErrorConditions.rule.3")
async def test_a_wrong_state_and_a_missing_job_are_told_apart(desk: Desk) -> None:
    done = await desk.job_in(JobState.COMPLETED)
    for call in (complete, fail, stop, stop_with_retry, mark, stopped, not_mine):
        with pytest.raises(InvalidTransition) as raised:
            await call(desk, done.id)
        assert (raised.value.job_id, raised.value.state) == (done.id, JobState.COMPLETED)
        with pytest.raises(JobNotFound):
            await call(desk, "nobody")
    answer = await desk.calls.cancel_jobs([], ["nobody"])
    assert (answer.cancelled_job_ids, answer.unknown_job_ids) == ((), ("nobody",))
    await desk.calls.delete_jobs([], ["nobody"])


@proves("queue-api.ErrorHandling.rule.1", "queue-api.JobStatus.rule.3")
async def test_every_failure_is_an_error_of_the_queue(desk: Desk) -> None:
    done = await desk.job_in(JobState.COMPLETED)
    before = await desk.get(done)
    failures = [
        desk.calls.enqueue_job(done),
        desk.calls.complete_job(done.id, b"again"),
        desk.calls.get_job("nobody"),
        desk.calls.cancel_jobs([], []),
        desk.calls.delete_jobs([], []),
        desk.calls.cleanup_expired_jobs(0.0),
    ]
    for answer in await asyncio.gather(*failures, return_exceptions=True):
        assert isinstance(answer, QueueError)
        assert answer.code not in {"", "INTERNAL_ERROR"}
    assert await desk.get(done) == before


@proves("queue-api.ErrorHandling.rule.2")
async def test_a_call_under_a_timeout_ends_with_it(desk: Desk) -> None:
    stream = desk.stream()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await anext(stream.iterator)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(-1):
            await desk.calls.get_job_stats([])
    assert (await desk.stats()).total_jobs == 0


@proves(
    "queue-api.ErrorConditions.rule.4",
    "queue-api.ErrorHandling.rule.5",
    "queue-api.CancelJobs.post.9",
    "queue-api.MarkWorkerUnresponsive.post.6",
    "queue-api.ResetRunningJobs.post.4",
)
async def test_calls_without_the_store_change_nothing(desk: Desk) -> None:
    stream, [held] = await desk.holding(1)
    [pending] = await desk.submit()
    await _unavailable(
        desk,
        lambda: complete(desk, held.id),
        lambda: desk.calls.enqueue_job(desk.job()),
        lambda: desk.calls.get_job(held.id),
        lambda: desk.calls.cancel_jobs([], [held.id, pending.id]),
        lambda: desk.calls.mark_worker_unresponsive(stream.assignee),
        lambda: desk.calls.reset_running_jobs(),
    )
    assert await desk.states([held, pending]) == [JobState.RUNNING, JobState.INITIAL_PENDING]
    await complete(desk, held.id)
    assert (await stream.one()).id == pending.id


@proves("queue-api.CleanupExpiredJobs.post.2", "queue-api.DeleteJobs.post.6")
async def test_deletions_without_the_store_delete_nothing(desk: Desk) -> None:
    done = await desk.job_in(JobState.COMPLETED)
    await desk.rig.age(60)
    await _unavailable(
        desk,
        lambda: desk.calls.cleanup_expired_jobs(1.0),
        lambda: desk.calls.delete_jobs([], [done.id]),
    )
    assert await desk.state(done) is JobState.COMPLETED


async def _unavailable(desk: Desk, *calls: Any) -> None:
    await desk.rig.break_down()
    try:
        answers = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    finally:
        await desk.rig.mend()
    await desk.reachable()
    assert [answer for answer in answers if not isinstance(answer, Unavailable)] == []
