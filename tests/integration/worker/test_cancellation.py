"""Wherever a job is, and however its handler ends: a cancel that comes through this replica or
another reaches it within a second, and the job ends as the state table says.

The second is measured by the database: from the cancel's transition to the end of the job.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from tests.waiting import DEADLINE_S

from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.queue.protocol import StreamSpec
from queue_operator.testing.clauses import proves

PROGRAMS = Path(__file__).with_name("programs")
BOUND: Final = timedelta(seconds=1)
ENDINGS: Final = ("stop", "complete", "fail", "progress", "checkpoint", "poll")


@pytest.fixture
async def other(operator: Any, dsn: str) -> AsyncIterator[Any]:
    """A second replica on the same database."""
    running = type(operator)(dsn, operator.namespace)
    await running.start()
    yield running
    await running.stop()


@pytest.fixture(params=["same replica", "other replica"])
def caller(request: pytest.FixtureRequest, operator: Any, other: Any) -> Any:
    """Who is asked to cancel; the streams are of `operator`."""
    return operator if request.param == "same replica" else other


async def cancel(caller: Any, job_ids: Collection[str], *, force: bool) -> None:
    done = await caller.queue.cancel_jobs(
        [], list(job_ids), namespace=caller.namespace, force=force
    )
    assert sorted(done.cancelled_job_ids) == sorted(job_ids)


async def took(operator: Any, job: Job) -> timedelta:
    history = await operator.queue.backend.get_history(job.id, namespace=operator.namespace)
    [asked] = [one for one in history.transitions if one.event == Event.CANCEL]
    assert job.finalized_at is not None
    spent: timedelta = job.finalized_at - asked.at
    return spent


async def running_in(operator: Any, job_ids: Collection[str]) -> None:
    """Once every handler has said that it runs."""
    async with asyncio.timeout(DEADLINE_S):
        for job_id in job_ids:
            while True:
                job = await operator.queue.get_job(job_id, namespace=operator.namespace)
                if job.progress is not None:
                    break


@pytest.mark.parametrize("force", [False, True])
@proves(
    "queue-api.Cancellation.rule.1",
    "queue-api.Cancellation.rule.8",
    "queue-api.Cancellation.rule.9",
    "external-api.JobContext.rule.8",
    "external-api.JobContext.expect.4",
)
async def test_a_running_job_ends_as_its_handler_does(
    operator: Any, start_worker: Any, caller: Any, force: bool
) -> None:
    start_worker("w-1", program="plane:worker", folder=PROGRAMS, CAPACITY="32")
    jobs: dict[str, tuple[str, str]] = {}
    for place in ("async", "thread", "process"):
        for how in ENDINGS:
            job_id = await operator.submit(f"cancel-{place}", json.dumps(how).encode())
            jobs[job_id] = place, how
    await running_in(operator, jobs)
    await cancel(caller, jobs, force=force)
    late: dict[tuple[str, str], timedelta] = {}
    for job_id, (place, how) in jobs.items():
        job = await operator.reached(job_id, JobState.STOPPED, JobState.COMPLETED)
        if place == "process" and force:
            # Ended from outside, unless the handler saw its flag before.
            assert job.state is JobState.STOPPED or how == "complete"
        elif how == "complete":
            assert (job.state, json.loads(job.result)) == (JobState.COMPLETED, "done")
        else:
            failed = how == "fail"
            assert (job.state, job.retry_count) == (JobState.STOPPED, int(failed))
            assert (job.error is not None and job.error.code == "ValueError") == failed
        if (spent := await took(operator, job)) >= BOUND:
            late[place, how] = spent
    assert late == {}


@pytest.mark.parametrize("force", [False, True])
async def test_a_job_that_nobody_runs_ends_at_once(operator: Any, caller: Any, force: bool) -> None:
    waiting = await operator.submit("nobody")
    retrying = await operator.submit("nobody")
    stream = await operator.queue.open_stream(spec(operator, "picker", capacity=2))
    tokens: dict[str, str] = {}
    while len(tokens) < 2:
        push = await asyncio.wait_for(stream.next(), DEADLINE_S)
        stream.delivered(push)
        tokens |= {job.job_id: job.token for job in push.assignments}
    for job_id, event in ((waiting, Event.RELEASE), (retrying, Event.FAIL)):
        error = ErrorInfo("boom")
        await operator.queue.backend.settle(
            [
                Outcome(
                    job_id,
                    event,
                    namespace=operator.namespace,
                    token=tokens[job_id],
                    error=error,
                    retry_after_s=3600.0 if event is Event.FAIL else None,
                )
            ]
        )
        stream.drain()
    await stream.close()
    new = await operator.submit("nobody")
    await cancel(caller, [waiting, retrying, new], force=force)
    states = [
        (await operator.queue.get_job(job_id, namespace=operator.namespace)).state
        for job_id in (waiting, retrying, new)
    ]
    assert states == [JobState.STOPPED, JobState.STOPPED, JobState.UNSCHEDULED]


def spec(operator: Any, name: str, capacity: int = 1) -> StreamSpec:
    return StreamSpec(
        assignee_id=f"{operator.namespace}-{name}",
        capacity=capacity,
        namespace=operator.namespace,
        worker_name=name,
    )


@pytest.mark.parametrize("force", [False, True])
@proves("queue-api.Cancellation.rule.6")
async def test_a_job_that_waits_in_a_streams_buffer_never_leaves_it(
    operator: Any, caller: Any, force: bool
) -> None:
    stream = await operator.queue.open_stream(spec(operator, "reads nothing"))
    job_id = await operator.submit("buffered")
    await operator.reached(job_id, JobState.RUNNING)
    await cancel(caller, [job_id], force=force)
    job = await operator.reached(job_id, JobState.STOPPED)
    assert await took(operator, job) < BOUND
    # Its slot is free: the stream gets another job instead.
    after = await operator.submit("buffered")
    push = await asyncio.wait_for(stream.next(), DEADLINE_S)
    assert [one.job_id for one in push.assignments] == [after]
    assert push.cancels == ()
    await stream.close()


_ANSWERS: Final = {
    Event.ACK_EXECUTING: JobState.STOPPED,
    Event.ACK_UNKNOWN: JobState.UNKNOWN_STOPPED,
    Event.COMPLETE: JobState.COMPLETED,
    Event.FAIL: JobState.STOPPED,
    Event.HAND_BACK: JobState.STOPPED,
}


@pytest.mark.parametrize("force", [False, True])
@proves("queue-api.Cancellation.rule.10", "queue-api.Cancellation.rule.11")
async def test_a_job_on_its_way_ends_as_the_worker_answers(
    operator: Any, caller: Any, force: bool
) -> None:
    """Whether it was running there or not."""
    stream = await operator.queue.open_stream(spec(operator, "w", capacity=len(_ANSWERS)))
    answers = {await operator.submit("handed out"): event for event in _ANSWERS}
    held: set[str] = set()
    while held != set(answers):
        push = await asyncio.wait_for(stream.next(), DEADLINE_S)
        stream.delivered(push)
        held |= {job.job_id for job in push.assignments}
    await cancel(caller, answers, force=force)
    while held:
        push = await asyncio.wait_for(stream.next(), DEADLINE_S)
        for request in push.cancels:
            assert request.force is force
            event = answers[request.job_id]
            error = ErrorInfo("boom") if event is Event.FAIL else None
            outcome = Outcome(
                request.job_id,
                event,
                namespace=operator.namespace,
                token=request.token,
                error=error,
                worker_plane=True,
            )
            [settled] = await stream.settle([outcome])
            assert settled.state is _ANSWERS[event]
            held.discard(request.job_id)
    for job_id in answers:
        job = await operator.queue.get_job(job_id, namespace=operator.namespace)
        assert await took(operator, job) < BOUND
    await stream.close()


@pytest.mark.parametrize("force", [False, True])
async def test_a_job_whose_worker_is_away_ends_with_its_lease(
    operator: Any, caller: Any, force: bool
) -> None:
    stream = await operator.queue.open_stream(spec(operator, "leaves"))
    job_id = await operator.submit("left behind")
    push = await asyncio.wait_for(stream.next(), DEADLINE_S)
    stream.delivered(push)
    await stream.close()
    await cancel(caller, [job_id], force=force)
    job = await operator.reached(job_id, JobState.UNKNOWN_STOPPED)
    # The lease of a second, until the next sweep, and what a busy machine adds.
    assert await took(operator, job) < timedelta(seconds=3)


@proves("queue-api.Cancellation.rule.2")
async def test_a_force_after_a_cancel_that_was_ignored_interrupts(
    operator: Any, start_worker: Any, caller: Any
) -> None:
    start_worker("w-1", program="plane:worker", folder=PROGRAMS)
    job_id = await operator.submit("ignores")
    await running_in(operator, [job_id])
    await cancel(caller, [job_id], force=False)
    async with asyncio.timeout(DEADLINE_S):
        while not await operator.queue.backend.job_log(job_id, namespace=operator.namespace):
            pass
    await cancel(caller, [job_id], force=True)
    job = await operator.reached(job_id, JobState.STOPPED)
    assert job.result is None
