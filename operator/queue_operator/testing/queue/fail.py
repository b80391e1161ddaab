"""FailJob."""

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue import checks
from queue_operator.testing.queue.desk import Desk

_FROM = (JobState.RUNNING, JobState.UNKNOWN_RETRY)


async def fail(desk: Desk, job_id: str) -> None:
    await desk.calls.fail_job(job_id, "it broke")


@proves("queue-api.FailJob.pre.2")
async def test_fail_needs_an_id(desk: Desk) -> None:
    await checks.needs_an_id(desk, fail)


@proves("queue-api.FailJob.pre.3")
async def test_fail_needs_a_message(desk: Desk) -> None:
    job = await desk.job_in(JobState.RUNNING)
    before = await desk.get(job)
    with pytest.raises(InvalidArgument) as raised:
        await desk.calls.fail_job(job.id, "")
    assert raised.value.field == "error_msg"
    assert await desk.get(job) == before


@proves(
    "queue-api.FailJob.move.1",
    "queue-api.FailJob.expect.1",
    "queue-api.FailJob.expect.4",
    "queue-api.FailJob.expect.6",
)
async def test_fail_moves_by_the_table(desk: Desk) -> None:
    await checks.moves(desk, fail, JobState.FAILED_RETRY, *_FROM)


@proves(
    "queue-api.FailJob.post.2",
    "queue-api.FailJob.post.3",
    "queue-api.FailJob.post.4",
    "queue-api.FailJob.expect.2",
)
async def test_fail_counts_a_retry_and_keeps_the_message(desk: Desk) -> None:
    begin = await desk.now()
    for one in (await checks.applied(desk, fail, *_FROM)).values():
        assert one.after.error_message == "it broke"
        assert one.after.retry_count == one.before.retry_count + 1 == 1
        assert one.before.last_retry_at is None
        assert one.after.last_retry_at is not None
        assert begin < one.after.last_retry_at < await desk.now()


@proves("queue-api.FailJob.expect.3", "queue-api.FailJob.post.1")
async def test_fail_of_the_last_attempt_is_the_end(desk: Desk) -> None:
    stream, [job] = await desk.holding(1, max_attempts=2)
    await fail(desk, job.id)
    assert (await stream.one()).id == job.id
    once = await desk.get(job)
    assert (once.retry_count, once.finalized_at) == (1, None)
    await fail(desk, job.id)
    twice = await desk.get(job)
    assert (twice.state, twice.error_message) == (JobState.DEAD_LETTER, "it broke")
    assert (twice.retry_count, twice.finalized_at is None) == (1, False)


@proves("queue-api.FailJob.post.5", "queue-api.FailJob.expect.5")
async def test_fail_keeps_the_assignment(desk: Desk) -> None:
    await checks.keeps_the_assignment(desk, fail, *_FROM)


@proves("queue-api.FailJob.post.6", "queue-api.FailJob.effect.2", "queue-api.FailJob.rule.1")
async def test_fail_frees_the_slot_of_the_stream_that_had_the_job(desk: Desk) -> None:
    await checks.frees_one(desk, fail, JobState.RUNNING)


@proves("queue-api.FailJob.move.2")
async def test_fail_too_late_frees_nothing(desk: Desk) -> None:
    await checks.frees_nothing_late(desk, fail, JobState.UNKNOWN_RETRY)


@proves("queue-api.FailJob.post.8")
async def test_fail_refused_frees_no_slot(desk: Desk) -> None:
    await checks.refused_for_nothing(desk, fail, JobState.CANCELLING)


@proves("queue-api.FailJob.post.7", "queue-api.FailJob.effect.1")
async def test_fail_gives_the_job_to_a_waiting_stream_again(desk: Desk) -> None:
    stream, [job] = await desk.holding(1)
    await fail(desk, job.id)
    again = await stream.one()
    assert (again.id, again.attempt) == (job.id, 2)
    await stream.close()
    other = desk.stream(1).start()
    await fail(desk, job.id)
    assert (await other.one()).id == job.id


@proves("queue-api.JobStatus.rule.4")
async def test_fail_with_a_backoff_gives_the_job_again_when_it_is_over(desk: Desk) -> None:
    backoff = Backoff(BackoffStrategy.CONSTANT, initial_delay_s=600, max_delay_s=600)
    stream, [job] = await desk.holding(1, capacity=2, backoff=backoff)
    await fail(desk, job.id)
    await desk.nothing_more(stream)
    assert await desk.state(job) is JobState.FAILED_RETRY
    await desk.rig.age(601)
    assert (await stream.one()).id == job.id


@proves("queue-api.FailJob.effect.3")
async def test_fail_makes_a_waiting_stream_look_once(desk: Desk) -> None:
    waiting = await desk.waiting()
    [job] = await desk.submit()
    assert (await waiting.one()).id == job.id
    await desk.nothing_more(waiting)
    before = desk.rig.looks(waiting.assignee)
    await fail(desk, job.id)
    assert (await waiting.one()).id == job.id
    await desk.settled()
    assert desk.rig.looks(waiting.assignee) == before + 1
