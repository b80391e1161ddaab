"""StreamJobs: what is given, to whom and when."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Consumer, Desk
from queue_operator.testing.queue.rig import BOUND_S, LEASE_TTL_S
from queue_operator.testing.table import ELIGIBLE


@proves("queue-api.StreamJobs.pre.2", "queue-api.StreamJobs.pre.3")
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("", [], 1), "assignee_id"),
        (("w", [], 0), "max_assigned_jobs"),
        (("w", [], -3), "max_assigned_jobs"),
        (("w", [], 1.5), "max_assigned_jobs"),
        (("w", [""], 1), "tags"),
    ],
)
async def test_stream_with_a_wrong_argument(
    desk: Desk, arguments: tuple[Any, ...], field: str
) -> None:
    await desk.submit()
    with pytest.raises(InvalidArgument) as raised:
        async with asyncio.timeout(BOUND_S):
            await anext(desk.pair.streams.stream_jobs(*arguments, namespace=desk.namespace))
    assert raised.value.field == field
    assert (await desk.stats()).pending_jobs == 1


@proves("queue-api.Sessions.rule.13")
async def test_stream_that_is_opened_again_waits_for_the_leases_of_the_last(desk: Desk) -> None:
    """Its program may have ended with the job in hand: that attempt counts."""
    first, [job] = await desk.holding(1, max_attempts=2)
    await first.close()
    second = desk.stream(1, assignee=first.assignee).start()
    await desk.rig.tick()
    await desk.nothing_more(second)
    assert await desk.state(job) is JobState.RUNNING
    await desk.rig.age(LEASE_TTL_S + 1)
    await desk.rig.tick()
    again = await second.one()
    assert (again.id, again.attempt) == (job.id, 2)


@proves("queue-api.StreamJobs.pre.4", "queue-api.WorkerPattern.then.1")
async def test_stream_gives_a_new_iterator_for_each_call(desk: Desk) -> None:
    streams = [desk.stream(1, assignee="twice").start() for _ in range(2)]
    assert streams[0].iterator is not streams[1].iterator
    jobs = await desk.submit(2)
    given = [await stream.one() for stream in streams]
    assert {job.id for job in given} == {job.id for job in jobs}
    assert {job.assignee_id for job in given} == {"twice"}


@proves(
    "queue-api.StreamJobs.post.4",
    "queue-api.StreamJobs.post.5",
    "queue-api.StreamJobs.post.6",
    "queue-api.StreamJobs.expect.3",
    "queue-api.Interface.rule.2",
)
async def test_stream_gives_running_jobs_of_its_own(desk: Desk) -> None:
    await desk.submit(3)
    begin = await desk.now()
    stream = desk.stream(3)
    batch = await stream.batch()
    assert isinstance(batch, list)
    assert batch
    for job in batch:
        stored = await desk.get(job)
        for shown in (job, stored):
            assert (shown.state, shown.assignee_id) == (JobState.RUNNING, stream.assignee)
            assert shown.assigned_at is not None
            assert begin < shown.assigned_at < await desk.now()


@proves(
    "queue-api.TagMatching.rule.1",
    "queue-api.TagMatching.rule.3",
    "queue-api.TagMatching.rule.5",
    "queue-api.TagMatching.rule.6",
    "queue-api.TagMatching.rule.7",
)
async def test_stream_is_given_what_carries_all_of_its_tags(desk: Desk) -> None:
    tags = [{"a", "b"}, {"a", "b", "c"}, {"a"}, {"A", "b"}, {"b"}, {"c"}, set()]
    jobs = [desk.job(tags=frozenset(some)) for some in tags]
    await desk.calls.enqueue_jobs(jobs)
    stream = desk.stream(tags=["b", "a"])
    assert {job.id for job in await stream.take(2)} == {job.id for job in jobs[:2]}
    await desk.nothing_more(stream)


@proves(
    "queue-api.StreamJobs.post.7",
    "queue-api.StreamJobs.expect.2",
    "queue-api.CoreConcepts.rule.3",
    "queue-api.StreamJobsUsage.rule.4",
    "queue-api.Invariants.rule.4",
)
async def test_stream_tags_are_its_own(desk: Desk) -> None:
    streams = {tag: await desk.waiting(tags=[tag, "x"]) for tag in ("a", "b")}
    jobs = [desk.job(tags=frozenset({tag, "x", "more"})) for tag in ("a", "b", "c") for _ in "12"]
    await desk.calls.enqueue_jobs(jobs)
    for tag, stream in streams.items():
        given = await stream.take(2)
        assert {job.id for job in given} == {job.id for job in jobs if tag in job.tags}
        assert all(job.tags >= {tag, "x"} for job in given)
    await desk.nothing_more(*streams.values())


@proves(
    "queue-api.StreamJobs.post.8",
    "queue-api.TagMatching.rule.2",
    "queue-api.TagMatching.rule.4",
    "queue-api.TagMatching.rule.8",
    "queue-api.StreamJobs.rule.1",
)
async def test_stream_without_tags_is_given_everything_of_its_namespace(desk: Desk) -> None:
    jobs = [desk.job(tags=frozenset(tags), type=t) for tags in ((), "a", "bc") for t in ("t", "u")]
    stranger = desk.job(namespace=f"{desk.namespace}-else")
    await desk.calls.enqueue_jobs([*jobs, stranger])
    stream = desk.stream()
    assert {job.id for job in await stream.take(6)} == {job.id for job in jobs}
    await desk.nothing_more(stream)
    stored = await desk.pair.calls.get_job(stranger.id, namespace=stranger.namespace)
    assert stored.state is JobState.INITIAL_PENDING


@proves("queue-api.StreamJobs.post.9", "queue-api.Invariants.rule.3")
async def test_stream_is_given_the_oldest_first(desk: Desk) -> None:
    now = await desk.now()
    ages = [3, 1, 5, 2, 4]
    jobs = [desk.job(created_at=now - timedelta(minutes=age)) for age in ages]
    urgent = desk.job(created_at=now, priority=Priority.CRITICAL)
    await desk.calls.enqueue_jobs([*jobs, urgent])
    stream = desk.stream(1)
    oldest = [job.id for _, job in sorted(zip(ages, jobs, strict=True), key=lambda p: -p[0])]
    for due in (urgent.id, *oldest):
        job = await stream.one()
        assert job.id == due
        await desk.calls.complete_job(job.id, b"")


@proves("queue-api.StreamJobs.post.10")
async def test_stream_batches_are_the_oldest_in_whatever_order(desk: Desk) -> None:
    now = await desk.now()
    jobs = [desk.job(created_at=now - timedelta(minutes=n)) for n in (1, 9, 2, 8, 3, 7)]
    await desk.calls.enqueue_jobs(jobs)
    assert {job.id for job in await desk.stream(3).take(3)} == {job.id for job in jobs[1::2]}


@proves("queue-api.StreamJobs.effect.1", "queue-api.StreamJobsUsage.rule.1")
async def test_stream_begins_with_what_is_there_in_one_batch(desk: Desk) -> None:
    jobs = await desk.submit(8)
    assert {job.id for job in await desk.stream(10).batch()} == {job.id for job in jobs}


@proves("queue-api.StreamJobs.effect.2")
async def test_stream_finds_all_that_waits_without_any_news(desk: Desk) -> None:
    # More than one claim takes.
    for count in (1000, 1000, 200):
        await desk.submit(count)
    # What is told of these is heard before there is anybody whom it could wake.
    await desk.settled()
    given = await desk.stream(2500).take(2200)
    assert len({job.id for job in given}) == 2200


@proves("queue-api.ResetRunningJobs.effect.5", "queue-api.ResetRunningJobs.rule.1")
async def test_stream_that_begins_after_a_reset_finds_what_was_reset(desk: Desk) -> None:
    jobs = await desk.jobs_in(*[JobState.RUNNING] * 12)
    # Opening and closing another queue resets nothing.
    other = await desk.rig.open()
    await desk.rig.shut(other)
    assert set(await desk.states(jobs)) == {JobState.RUNNING}
    await desk.calls.reset_running_jobs()
    # No stream polls here: it is the news of the reset that makes another replica look at what
    # lies behind its marks.
    given = await desk.stream(20).take(12)
    assert {job.id for job in given} == {job.id for job in jobs}


@proves(
    "queue-api.StreamJobs.expect.1",
    "queue-api.CoreConcepts.rule.4",
    "queue-api.CoreConcepts.rule.5",
    "queue-api.Invariants.rule.5",
)
async def test_stream_is_given_eligible_jobs_only(desk: Desk) -> None:
    jobs = await desk.jobs_in(*JobState)
    states = dict(zip(JobState, jobs, strict=True))
    stream = desk.stream(20)
    assert {job.id for job in await stream.take(3)} == {states[state].id for state in ELIGIBLE}
    await desk.nothing_more(stream)
    others = set(JobState) - set(ELIGIBLE)
    assert set(await desk.states(states[state] for state in others)) == others


@proves(
    "queue-api.JobStatus.rule.1",
    "queue-api.JobStatus.rule.2",
    "queue-api.JobStatus.rule.7",
    "queue-api.JobStatus.rule.8",
)
async def test_stream_states_of_eligible_and_held_jobs(desk: Desk) -> None:
    pending, lost = await desk.jobs_in(JobState.INITIAL_PENDING, JobState.UNKNOWN_RETRY)
    stream, other = desk.stream(2), desk.stream(2)
    assert {job.id for job in await stream.take(2)} == {pending.id, lost.id}
    await desk.nothing_more(other)
    await desk.calls.cancel_jobs([], [lost.id])
    await desk.nothing_more(stream, other)
    [following] = await desk.submit()
    assert (await other.one()).id == following.id
    # The one that is being cancelled holds its slot.
    await desk.submit()
    assert (await other.take(1))[0].state is JobState.RUNNING
    await desk.submit()
    await desk.nothing_more(stream)


@proves(
    "queue-api.StreamJobs.effect.6",
    "queue-api.StreamJobs.expect.7",
    "queue-api.ObservableStateChanges.rule.3",
)
async def test_stream_is_given_jobs_when_room_and_jobs_meet(desk: Desk) -> None:
    stream = await desk.waiting(1)
    [new] = await desk.submit()
    job = await stream.one()
    assert job.id == new.id
    await desk.calls.fail_job(job.id, "again")
    assert (await stream.one()).id == new.id
    await desk.calls.mark_worker_unresponsive(stream.assignee)
    assert (await stream.one()).id == new.id
    await desk.calls.reset_running_jobs()
    assert (await stream.one()).id == new.id
    following = await desk.submit(2)
    await desk.nothing_more(stream)
    await desk.calls.complete_job(new.id, b"")
    first = await stream.one()
    await desk.calls.stop_job(first.id, "")
    assert {first.id, (await stream.one()).id} == {job.id for job in following}


@proves("queue-api.StreamJobs.effect.7", "queue-api.Invariants.rule.8")
async def test_stream_that_nobody_reads_holds_up_nobody(desk: Desk) -> None:
    deaf = await desk.waiting(3)
    await desk.submit()
    await deaf.one()
    await desk.submit(2)

    async def assigned() -> bool:
        return (await desk.stats()).running_jobs == 3

    await desk.until(assigned)
    reader = desk.stream(5).start()
    await desk.nothing_more(reader)
    theirs = await desk.submit(2)
    assert {job.id for job in await reader.take(2)} == {job.id for job in theirs}
    await desk.settled()
    assert len(await deaf.take(2)) == 2


@proves(
    "queue-api.StreamJobsUsage.rule.5",
    "queue-api.StreamJobsUsage.rule.7",
    "queue-api.WorkerPattern.then.3",
)
async def test_stream_keeps_jobs_for_a_busy_consumer(desk: Desk) -> None:
    busy = await desk.waiting(4)
    [first] = await desk.submit()
    assert (await busy.one()).id == first.id
    for _ in range(3):
        await desk.submit()

    async def assigned() -> bool:
        return (await desk.stats()).running_jobs == 4

    await desk.until(assigned)
    await desk.rig.tick()
    # What came meanwhile is one batch, unless it was written as it came.
    assert len(await (busy.take(3) if desk.rig.carries else busy.batch())) == 3
    await desk.calls.complete_job(first.id, b"")


@proves("queue-api.StreamJobsUsage.rule.2", "queue-api.StreamJobs.expect.6")
async def test_stream_waits_without_asking(desk: Desk) -> None:
    waiting = [await desk.waiting(tags=[f"t{n}"]) for n in range(5)]
    before = [desk.rig.looks(stream.assignee) for stream in waiting]
    for _ in range(5):
        await desk.settled()
    assert [desk.rig.looks(stream.assignee) for stream in waiting] == before
    assert all(stream.waits for stream in waiting)


@proves("queue-api.StreamJobs.expect.5", "queue-api.StreamJobs.effect.3")
async def test_stream_batches_are_no_longer_than_its_capacity(desk: Desk) -> None:
    await desk.submit(20)
    stream = desk.stream(7)
    batch = await stream.batch()
    rest = await stream.take(7 - len(batch)) if len(batch) < 7 else []
    assert len(batch) + len(rest) == 7
    await desk.nothing_more(stream)


@proves("queue-api.StreamJobs.rule.5")
async def test_stream_step_that_times_out_loses_nothing(desk: Desk) -> None:
    stream = desk.stream(2)
    for _ in range(10):
        step = asyncio.ensure_future(anext(stream.iterator))
        [job] = await desk.submit()
        for _ in range(3):
            await asyncio.sleep(0)
        step.cancel()
        await asyncio.wait([step])
        given = await stream.one() if step.cancelled() else step.result()[0]
        assert given.id == job.id
        await desk.calls.complete_job(job.id, b"")


@proves("queue-api.Interface.rule.3")
async def test_calls_are_for_one_namespace(desk: Desk) -> None:
    other = Desk(desk.rig, desk.pair)
    jobs = await desk.jobs_in(*JobState)
    before = [await desk.get(job) for job in jobs]
    await other.calls.cancel_jobs([], [job.id for job in jobs])
    await other.calls.delete_jobs([], [job.id for job in jobs])
    await other.calls.reset_running_jobs()
    await other.calls.cleanup_expired_jobs(0.000001)
    assert (await other.stats()).total_jobs == 0
    assert [await desk.get(job) for job in jobs] == before
    default = Job(id=f"{desk.namespace}-default", type="work")
    await desk.pair.calls.enqueue_job(default)
    assert (await desk.pair.calls.get_job(default.id)).namespace == "default"
    await desk.pair.calls.cancel_jobs([], [default.id])
    await desk.pair.calls.delete_jobs([], [default.id])


async def _finish(desk: Desk, stream: Consumer, count: int) -> set[str]:
    """Works as a worker does, to the last job."""
    done: set[str] = set()
    while len(done) < count:
        for job in await stream.batch():
            # Failed once, each is given again.
            if job.attempt == 1 and len(done) % 2:
                await desk.calls.fail_job(job.id, "once more")
            else:
                await desk.calls.complete_job(job.id, b"ok")
                done.add(job.id)
    return done


@proves(
    "queue-api.WorkerPattern.then.2",
    "queue-api.WorkerPattern.then.4",
    "queue-api.WorkerPattern.then.5",
    "queue-api.CapacityManagement.rule.6",
)
async def test_stream_gives_a_worker_everything_to_the_last_job(desk: Desk) -> None:
    jobs = await desk.submit(12)
    assert await _finish(desk, desk.stream(3), 12) == {job.id for job in jobs}
    assert (await desk.stats()).completed_jobs == 12
