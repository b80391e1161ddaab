"""MarkWorkerUnresponsive and ResetRunningJobs."""

import asyncio
import uuid

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Consumer, Desk

_HELD = (JobState.RUNNING, JobState.CANCELLING)
_LOST = [JobState.UNKNOWN_RETRY, JobState.UNKNOWN_STOPPED]


async def _held(desk: Desk, count: int = 2) -> tuple[Consumer, list[Job]]:
    """A stream that holds jobs, of which the second is being cancelled."""
    stream, jobs = await desk.holding(count)
    await desk.calls.cancel_jobs([], [jobs[1].id])
    return stream, jobs


@proves("queue-api.MarkWorkerUnresponsive.pre.2")
async def test_unresponsive_needs_an_assignee(desk: Desk) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await desk.calls.mark_worker_unresponsive("")
    assert raised.value.field == "assignee_id"


@proves(
    "queue-api.MarkWorkerUnresponsive.post.1",
    "queue-api.MarkWorkerUnresponsive.post.2",
    "queue-api.MarkWorkerUnresponsive.effect.1",
    "queue-api.MarkWorkerUnresponsive.expect.2",
)
async def test_unresponsive_takes_the_jobs_of_the_worker_and_of_nobody_else(desk: Desk) -> None:
    stream, jobs = await _held(desk)
    await stream.close()
    _, others = await _held(desk)
    ended = await desk.jobs_in(JobState.COMPLETED, JobState.FAILED_RETRY, JobState.STOPPED)
    before = [await desk.get(job) for job in (*others, *ended)]
    await desk.calls.mark_worker_unresponsive(stream.assignee)
    assert await desk.states(jobs) == _LOST
    assert [await desk.get(job) for job in (*others, *ended)] == before


@proves("queue-api.MarkWorkerUnresponsive.post.3", "queue-api.MarkWorkerUnresponsive.expect.3")
async def test_unresponsive_keeps_the_assignment(desk: Desk) -> None:
    stream, jobs = await _held(desk)
    await stream.close()
    before = [await desk.get(job) for job in jobs]
    await desk.calls.mark_worker_unresponsive(stream.assignee)
    for was in before:
        stored = await desk.get(was)
        assert (stored.assignee_id, stored.assigned_at) == (stream.assignee, was.assigned_at)


@proves(
    "queue-api.MarkWorkerUnresponsive.post.5",
    "queue-api.MarkWorkerUnresponsive.effect.2",
)
async def test_unresponsive_wakes_waiting_streams_once(desk: Desk) -> None:
    gone, jobs = await desk.holding(4)
    await gone.close()
    waiting = await desk.waiting()
    before = desk.rig.looks(waiting.assignee)
    await desk.calls.mark_worker_unresponsive(gone.assignee)
    given = await waiting.take(4)
    assert {job.id for job in given} == {job.id for job in jobs}
    await desk.settled()
    assert desk.rig.looks(waiting.assignee) == before + 1


@proves("queue-api.MarkWorkerUnresponsive.expect.1")
async def test_unresponsive_is_for_every_namespace(desk: Desk) -> None:
    assignee = uuid.uuid4().hex
    desks = [desk, Desk(desk.rig, desk.pair)]
    jobs = []
    for one in desks:
        [job] = await one.submit()
        stream = one.stream(1, assignee=assignee)
        assert (await stream.one()).id == job.id
        await stream.close()
        jobs.append(job)
    await desk.calls.mark_worker_unresponsive(assignee)
    for one, job in zip(desks, jobs, strict=True):
        assert await one.state(job) is JobState.UNKNOWN_RETRY


@proves("queue-api.MarkWorkerUnresponsive.expect.4")
async def test_unresponsive_without_jobs_changes_nothing(desk: Desk) -> None:
    _, [held] = await desk.holding(1)
    await desk.calls.mark_worker_unresponsive(uuid.uuid4().hex)
    assert await desk.state(held) is JobState.RUNNING


@proves("queue-api.MarkWorkerUnresponsive.rule.1")
async def test_unresponsive_costs_no_attempt(desk: Desk) -> None:
    stream, [job] = await desk.holding(1, max_attempts=1)
    for _ in range(3):
        await desk.calls.mark_worker_unresponsive(stream.assignee)
        assert (await stream.one()).id == job.id
    await desk.calls.fail_job(job.id, "now")
    assert await desk.state(job) is JobState.DEAD_LETTER


@proves("queue-api.JobStatus.then.3", "queue-api.Tokens.rule.3")
async def test_lost_jobs_become_what_their_worker_reports_after_all(desk: Desk) -> None:
    done, failed, stopped = await desk.jobs_in(*[JobState.UNKNOWN_RETRY] * 3)
    await desk.calls.complete_job(done.id, b"after all")
    await desk.calls.fail_job(failed.id, "after all")
    await desk.calls.stop_job(stopped.id, "after all")
    assert await desk.states([done, failed, stopped]) == [
        JobState.COMPLETED,
        JobState.FAILED_RETRY,
        JobState.STOPPED,
    ]
    ended = await desk.job_in(JobState.UNKNOWN_STOPPED)
    await desk.calls.complete_job(ended.id, b"after all")
    assert await desk.state(ended) is JobState.COMPLETED


@proves(
    "queue-api.ResetRunningJobs.post.1",
    "queue-api.ResetRunningJobs.post.2",
    "queue-api.ResetRunningJobs.effect.2",
    "queue-api.ResetRunningJobs.expect.2",
    "queue-api.ResetRunningJobs.expect.3",
)
async def test_reset_moves_what_is_held_and_nothing_else(desk: Desk) -> None:
    jobs = await desk.jobs_in(*JobState)
    before = [await desk.get(job) for job in jobs]
    await desk.calls.reset_running_jobs()
    moved = dict(zip(_HELD, _LOST, strict=True))
    assert await desk.states(jobs) == [moved.get(state, state) for state in JobState]
    for was in before:
        assert was.state in _HELD or await desk.get(was) == was


@proves("queue-api.ResetRunningJobs.post.3", "queue-api.ResetRunningJobs.expect.4")
async def test_reset_keeps_the_assignment(desk: Desk) -> None:
    jobs = await desk.jobs_in(*_HELD)
    before = [await desk.get(job) for job in jobs]
    await desk.calls.reset_running_jobs()
    for was in before:
        stored = await desk.get(was)
        assert stored.assignee_id
        assert (stored.assignee_id, stored.assigned_at) == (was.assignee_id, was.assigned_at)


@proves("queue-api.ResetRunningJobs.post.5", "queue-api.ResetRunningJobs.expect.5")
async def test_reset_of_nothing_changes_nothing(desk: Desk) -> None:
    jobs = await desk.jobs_in(*set(JobState) - set(_HELD))
    before = [await desk.get(job) for job in jobs]
    await desk.calls.reset_running_jobs()
    assert [await desk.get(job) for job in jobs] == before


@proves(
    "queue-api.ResetRunningJobs.effect.1",
    "queue-api.ResetRunningJobs.effect.3",
    "queue-api.ResetRunningJobs.effect.6",
    "queue-api.Replicas.rule.5",
)
async def test_reset_gives_the_jobs_to_the_streams_that_had_them(desk: Desk) -> None:
    first, jobs = await _held(desk)
    second, more = await desk.holding(2)
    await desk.calls.reset_running_jobs()
    again = [*await first.batch(), *await second.batch()]
    while len(again) < 3:
        again += await (first if first.start().step.done() else second).batch()
    assert {job.id for job in again} == {jobs[0].id, more[0].id, more[1].id}
    # Four slots came back, and three jobs.
    await desk.submit(2)
    await asyncio.wait(
        [first.start().step, second.start().step], return_when=asyncio.FIRST_COMPLETED
    )
    await desk.settled()
    stats = await desk.stats()
    assert (stats.running_jobs, stats.pending_jobs) == (4, 1)


@proves("queue-api.ResetRunningJobs.effect.4")
async def test_reset_wakes_each_stream_once(desk: Desk) -> None:
    jobs = await desk.jobs_in(*[JobState.RUNNING] * 5)
    waiting = await desk.waiting()
    before = desk.rig.looks(waiting.assignee)
    await desk.calls.reset_running_jobs()
    assert {job.id for job in await waiting.take(5)} == {job.id for job in jobs}
    await desk.settled()
    assert desk.rig.looks(waiting.assignee) == before + 1


@proves("queue-api.ResetRunningJobs.expect.1")
async def test_reset_of_all_namespaces(desk: Desk) -> None:
    other = Desk(desk.rig, desk.pair)
    mine, theirs = await desk.job_in(JobState.RUNNING), await other.job_in(JobState.RUNNING)
    await desk.calls.reset_running_jobs()
    assert await desk.state(mine) is JobState.UNKNOWN_RETRY
    assert await other.state(theirs) is JobState.RUNNING
    await desk.pair.calls.reset_running_jobs()
    assert await other.state(theirs) is JobState.UNKNOWN_RETRY
