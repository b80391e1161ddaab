"""Tokens: which of two attempts may still say how it ended."""

import uuid
from collections.abc import Awaitable, Callable

import pytest

from queue_operator.domain.errors import InvalidTransition, StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Consumer, Desk

Outcome = Callable[[Desk, Job], Awaitable[object]]

_OUTCOMES: dict[str, Outcome] = {
    "complete": lambda desk, job: desk.calls.complete_job(job.id, b"r", token=job.token),
    "fail": lambda desk, job: desk.calls.fail_job(job.id, "x", token=job.token),
    "stop": lambda desk, job: desk.calls.stop_job(job.id, "x", token=job.token),
    "mark": lambda desk, job: desk.calls.mark_job_unknown_stopped(job.id, "x", token=job.token),
}


async def _twice(desk: Desk) -> tuple[Consumer, Job, Job]:
    """A job as it was given the first and the second time; the second attempt runs."""
    stream, [first] = await desk.holding(1)
    await desk.calls.mark_worker_unresponsive(stream.assignee)
    second = await stream.one()
    assert first.id == second.id
    return stream, first, second


@proves("queue-api.Tokens.rule.1", "queue-api.Tokens.rule.7")
async def test_tokens_are_new_with_each_assignment(desk: Desk) -> None:
    _, first, second = await _twice(desk)
    assert first.token
    assert second.token
    assert first.token != second.token


@proves("queue-api.Tokens.rule.2", "queue-api.CompleteJob.rule.1")
@pytest.mark.parametrize("name", _OUTCOMES)
async def test_tokens_of_an_older_attempt_are_stale(desk: Desk, name: str) -> None:
    outcome = _OUTCOMES[name]
    stream, first, second = await _twice(desk)
    [following] = await desk.submit()
    before = await desk.get(second)
    for token in (first.token, str(uuid.uuid4())):
        with pytest.raises(StaleLease):
            await outcome(desk, desk.job(id=second.id, token=token))
    assert await desk.get(second) == before
    await desk.nothing_more(stream)
    await outcome(desk, second)
    assert await desk.state(second) is not JobState.RUNNING
    given = await stream.one()
    assert given.id in {following.id, second.id}


@proves("queue-api.Tokens.rule.4", "queue-api.Tokens.rule.5")
async def test_tokens_make_a_repeat_harmless(desk: Desk) -> None:
    stream, [job] = await desk.holding(1)
    await desk.submit(2)
    await desk.calls.complete_job(job.id, b"once", token=job.token)
    await stream.one()
    before = await desk.get(job)
    await desk.calls.complete_job(job.id, b"twice", token=job.token)
    assert await desk.get(job) == before
    await desk.nothing_more(stream)
    # First whether it is a repeat, then the token, then the state.
    with pytest.raises(StaleLease):
        await desk.calls.complete_job(job.id, b"", token=str(uuid.uuid4()))
    with pytest.raises(InvalidTransition):
        await desk.calls.fail_job(job.id, "x", token=job.token)


@proves("queue-api.Tokens.rule.6")
async def test_tokens_left_out_leave_a_repeat_to_the_state(desk: Desk) -> None:
    job = await desk.job_in(JobState.RUNNING)
    await desk.calls.complete_job(job.id, b"once")
    with pytest.raises(InvalidTransition):
        await desk.calls.complete_job(job.id, b"once")


@proves("queue-api.Slots.rule.11")
async def test_a_job_given_again_takes_one_slot(desk: Desk) -> None:
    stream, jobs = await desk.holding(2)
    await desk.calls.mark_worker_unresponsive(stream.assignee)
    again = await stream.take(2)
    assert {job.id for job in again} == {job.id for job in jobs}
    await desk.submit(2)
    await desk.nothing_more(stream)
    await desk.calls.complete_job(again[0].id, b"", token=again[0].token)
    await stream.one()
    await desk.nothing_more(stream)
