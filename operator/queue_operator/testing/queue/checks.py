"""What is asked of every call that ends the run of a job, written once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import pytest

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import in_a_cancelled_task
from queue_operator.testing.queue.desk import Consumer, Desk

Call = Callable[[Desk, str], Awaitable[object]]
"""Makes the call for the job of that id."""

BY_CALLER = (JobState.RUNNING, JobState.CANCELLING)


class Applied(NamedTuple):
    """One job before and after the call, and whether it was refused."""

    before: Job
    after: Job
    refused: bool


async def applied(desk: Desk, call: Call, *states: JobState) -> Mapping[JobState, Applied]:
    """Makes the call on a job in each of the states, all ten by default."""
    states = states or tuple(JobState)
    jobs = await desk.jobs_in(*states)
    before = await asyncio.gather(*map(desk.get, jobs))
    refused = [
        await _refuses(call(desk, job.id), state) for job, state in zip(jobs, states, strict=True)
    ]
    after = await asyncio.gather(*map(desk.get, jobs))
    rows = zip(states, before, after, refused, strict=True)
    return {state: Applied(was, now, no) for state, was, now, no in rows}


async def _refuses(made: Awaitable[object], state: JobState) -> bool:
    try:
        await made
    except InvalidTransition as error:
        told = error.state
    else:
        return False
    assert told == state
    return True


async def moves(desk: Desk, call: Call, target: JobState, *sources: JobState) -> None:
    """Asserts that the call leads from just these states to `target` and that from all others
    it is InvalidTransition and changes nothing.
    """
    for state, one in (await applied(desk, call)).items():
        if state in sources:
            assert (one.after.state, one.refused) == (target, False), state
        else:
            assert one.refused, f"{state} was accepted"
            assert one.after == one.before


async def keeps_the_assignment(desk: Desk, call: Call, *states: JobState) -> None:
    """Asserts that who had the job, and since when, can be read afterwards."""
    for one in (await applied(desk, call, *states)).values():
        assert one.before.assignee_id
        assert one.before.assigned_at is not None
        assert one.after.assignee_id == one.before.assignee_id
        assert one.after.assigned_at == one.before.assigned_at
        assert one.after.started_at == one.before.started_at


async def ends_now(desk: Desk, call: Call, *states: JobState) -> None:
    """Asserts that finalized_at is the time of the call."""
    jobs = await desk.jobs_in(*states)
    begin = await desk.now()
    for job in jobs:
        await call(desk, job.id)
    end = await desk.now()
    for stored in await asyncio.gather(*map(desk.get, jobs)):
        assert stored.finalized_at is not None
        assert begin <= stored.finalized_at <= end


async def needs_an_id(desk: Desk, call: Call, field: str = "job_id") -> None:
    with pytest.raises(InvalidArgument) as raised:
        await call(desk, "")
    assert raised.value.field == field


async def needs_a_job(desk: Desk, call: Call) -> None:
    """Asserts that a job that is not stored, or of another namespace, is JobNotFound."""
    [elsewhere] = await desk.submit(namespace=f"{desk.namespace}-else")
    for job_id in ("nobody", elsewhere.id):
        with pytest.raises(JobNotFound) as raised:
            await call(desk, job_id)
        assert (raised.value.job_id, raised.value.namespace) == (job_id, desk.namespace)


async def refused_for_nothing(desk: Desk, call: Call, wrong: JobState) -> None:
    """Asserts that a call that is refused gives no slot back and wakes nobody."""
    stream, [held] = await desk.holding(1)
    await desk.submit()
    await desk.nothing_more(stream)
    await needs_a_job(desk, call)
    assert (await applied(desk, call, wrong))[wrong].refused
    await desk.nothing_more(stream)
    assert await desk.state(held) is JobState.RUNNING


async def ready(desk: Desk, state: JobState, job: Job) -> None:
    """Brings a running job into the state, RUNNING or CANCELLING, from which it is to leave."""
    if state is JobState.CANCELLING:
        await desk.calls.cancel_jobs([], [job.id])
    assert await desk.state(job) is state


async def frees_one(desk: Desk, call: Call, *states: JobState) -> None:
    """Asserts that the stream that had the job is given exactly one other for it, and another
    stream of the same assignee none.
    """
    for state in states:
        # Nothing that is left over from one state is for the streams of the next.
        tags = frozenset({f"while-{state}"})
        stream, jobs = await desk.holding(2, tags=tags)
        twin = desk.stream(1, tags, stream.assignee)
        await desk.submit(4, tags=tags)
        await twin.take(1)
        await ready(desk, state, jobs[0])
        await desk.nothing_more(stream)
        await call(desk, jobs[0].id)
        assert (await stream.one()).id != jobs[0].id
        await desk.nothing_more(stream, twin)


async def late(desk: Desk, state: JobState) -> tuple[Consumer, Job]:
    """A full stream, and a job that it had and lost, in UNKNOWN_RETRY or UNKNOWN_STOPPED."""
    first = await desk.now()
    stream, [job] = await desk.holding(1)
    # Older than the lost one, so that the stream is given this and not that.
    await desk.submit(created_at=first, tags=frozenset({"older"}))
    await desk.settled()
    if state is JobState.UNKNOWN_STOPPED:
        await desk.calls.cancel_jobs([], [job.id])
    await desk.calls.mark_worker_unresponsive(stream.assignee)
    assert (await stream.one()).id != job.id
    assert await desk.state(job) is state
    return stream, job


async def frees_nothing_late(desk: Desk, call: Call, *states: JobState) -> None:
    """Asserts that a call on a job whose slot has come back frees none a second time."""
    for state in states:
        stream, job = await late(desk, state)
        await desk.submit()
        await call(desk, job.id)
        await desk.nothing_more(stream)
        await stream.close()


async def is_never_given_again(desk: Desk, call: Call, *states: JobState) -> None:
    """Asserts that no stream is given the job after the call, whatever else happens."""
    jobs = await desk.jobs_in(*states)
    for job in jobs:
        await call(desk, job.id)
    await desk.calls.reset_running_jobs()
    stream = desk.stream(len(jobs) + 1)
    await desk.nothing_more(stream)
    [other] = await desk.submit()
    assert (await stream.one()).id == other.id
    await desk.nothing_more(stream)
    await stream.close()
    await desk.calls.complete_job(other.id, b"")


async def is_applied_once(desk: Desk, call: Call, state: JobState) -> None:
    """Asserts that of calls that race one is applied, and frees the slot once."""
    stream, jobs = await desk.holding(2)
    await desk.submit(3)
    await ready(desk, state, jobs[0])
    answers = await asyncio.gather(
        *(call(desk, jobs[0].id) for _ in range(5)), return_exceptions=True
    )
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(errors) == 4
    assert all(isinstance(error, InvalidTransition) for error in errors)
    await stream.one()
    await desk.nothing_more(stream)


async def cancelled_on_entry(desk: Desk, *calls: Call) -> None:
    """Asserts that each call raises CancelledError in a task that is being cancelled. It may have
    reached the store before, and then has happened as a whole.
    """
    jobs = await desk.jobs_in(*[JobState.CANCELLING] * len(calls))
    for call, job in zip(calls, jobs, strict=True):
        await in_a_cancelled_task(lambda call=call, job=job: call(desk, job.id))  # type: ignore[misc]
        stored = await desk.get(job)
        assert (stored.finalized_at is None) == (stored.state is JobState.CANCELLING)
