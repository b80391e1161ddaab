"""SuspendJobs and its end: streams are given nothing that is suspended."""

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.states import JobState
from queue_operator.testing.queue.complete import complete
from queue_operator.testing.queue.desk import Desk
from queue_operator.testing.table import TERMINAL


async def test_a_stream_is_given_what_was_suspended_once_it_is_resumed(desk: Desk) -> None:
    consumer = await desk.waiting(tags=["mine"])
    held = await desk.submit(2, tags=frozenset({"mine"}), suspended=True)
    [free] = await desk.submit(tags=frozenset({"mine"}))
    assert (await consumer.one()).id == free.id
    await desk.nothing_more(consumer)
    assert (await desk.get(held[0])).suspended
    assert await desk.calls.resume_jobs([job.id for job in held]) == []
    assert {job.id for job in await consumer.take(2)} == {job.id for job in held}


async def test_what_waits_is_given_to_nobody_once_it_is_suspended(desk: Desk) -> None:
    jobs = await desk.submit(2, tags=frozenset({"mine"}))
    assert await desk.calls.suspend_jobs([jobs[0].id]) == []
    consumer = desk.stream(tags=["mine"])
    assert (await consumer.one()).id == jobs[1].id
    await desk.nothing_more(consumer)


async def test_a_job_that_runs_is_left_to_its_worker(desk: Desk) -> None:
    consumer = await desk.waiting(tags=["mine"])
    [job] = await desk.submit(tags=frozenset({"mine"}))
    assert (await consumer.one()).id == job.id
    assert await desk.calls.suspend_jobs([job.id]) == []
    assert await desk.state(job) is JobState.RUNNING
    await complete(desk, job.id)
    assert await desk.state(job) is JobState.COMPLETED


async def test_what_is_left_alone_is_told(desk: Desk) -> None:
    jobs = await desk.jobs_in(*JobState)
    ended = [job.id for job, state in zip(jobs, JobState, strict=True) if state in TERMINAL]
    names = [*(job.id for job in jobs), "nobody", ended[0]]
    for change in (desk.calls.suspend_jobs, desk.calls.resume_jobs):
        assert sorted(await change(names)) == sorted([*ended, "nobody"])
    assert await desk.calls.suspend_jobs([]) == []


@pytest.mark.parametrize("wrong", ["j", [""], [7]])
async def test_wrong_ids_are_refused_by_name(desk: Desk, wrong: object) -> None:
    for change in (desk.calls.suspend_jobs, desk.calls.resume_jobs):
        with pytest.raises(InvalidArgument) as raised:
            await change(wrong)
        assert raised.value.field == "job_ids"
