"""GetJob, GetJobStats and the fields of a job."""

import asyncio
from datetime import UTC, datetime
from typing import Final

import pytest

from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Desk
from queue_operator.testing.table import TERMINAL

_PAYLOAD: Final = bytes(range(256))


@proves("queue-api.GetJob.pre.2", "queue-api.GetJob.post.1", "queue-api.GetJob.expect.3")
async def test_get_job_that_is_not_stored(desk: Desk) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await desk.calls.get_job("")
    assert raised.value.field == "job_id"
    [elsewhere] = await desk.submit(namespace=f"{desk.namespace}-else")
    for job_id in ("nobody", elsewhere.id):
        with pytest.raises(JobNotFound):
            await desk.calls.get_job(job_id)
    assert (await desk.pair.calls.get_job(elsewhere.id, namespace=elsewhere.namespace)) is not None


@proves(
    "queue-api.GetJob.expect.1",
    "queue-api.Job.rule.1",
    "queue-api.Job.rule.3",
    "queue-api.Job.rule.4",
    "queue-api.Job.rule.5",
)
async def test_get_job_gives_what_was_submitted(desk: Desk) -> None:
    full = desk.job(type="mail", payload=_PAYLOAD, content_type="a/b", tags=frozenset({"x", "Y"}))
    bare = desk.job(type="other")
    for job in (full, bare):
        assert await desk.calls.enqueue_job(job) == job.id
    batch = {job.id: job for job in await desk.stream().take(2)}
    for given in (full, bare):
        for shown in (await desk.get(given), batch[given.id]):
            assert (shown.id, shown.type, shown.tags) == (given.id, given.type, given.tags)
            assert (shown.payload, shown.content_type) == (given.payload, given.content_type)


@proves(
    "queue-api.Job.rule.2",
    "queue-api.Job.rule.6",
    "queue-api.Job.rule.14",
    "queue-api.ObservableStateChanges.rule.5",
)
async def test_get_job_and_the_batch_show_the_same_times(desk: Desk) -> None:
    own = datetime(2024, 2, 29, 12, tzinfo=UTC)
    dated, plain = desk.job(created_at=own), desk.job()
    begin = await desk.now()
    await desk.calls.enqueue_jobs([dated, plain])
    end = await desk.now()
    assert (await desk.get(dated)).created_at == own
    created = (await desk.get(plain)).created_at
    assert created is not None
    assert begin < created < end
    stream = desk.stream()
    for shown in await stream.take(2):
        stored = await desk.get(shown)
        assert shown.state is stored.state is JobState.RUNNING
        assert (shown.created_at, shown.assigned_at) == (stored.created_at, stored.assigned_at)
        assert shown.assignee_id == stored.assignee_id == stream.assignee


@proves("queue-api.Job.rule.7", "queue-api.Job.rule.11", "queue-api.Job.rule.12")
async def test_a_batch_shows_the_counters_of_earlier_attempts(desk: Desk) -> None:
    stream = desk.stream(1)
    [job] = await desk.submit()
    assert (await desk.get(job)).started_at is None
    started = None
    for retries in range(3):
        shown = await stream.one()
        stored = await desk.get(shown)
        started = started or stored.started_at
        assert shown.started_at == stored.started_at == started is not None
        assert shown.retry_count == stored.retry_count == retries
        assert shown.last_retry_at == stored.last_retry_at
        assert (stored.last_retry_at is None) == (retries == 0)
        await desk.calls.fail_job(job.id, "again")


@proves("queue-api.Job.rule.8", "queue-api.Job.rule.13")
async def test_get_job_shows_the_end_and_the_last_assignee(desk: Desk) -> None:
    jobs = await desk.jobs_in(*JobState)
    for job, state in zip(jobs, JobState, strict=True):
        stored = await desk.get(job)
        assert (stored.finalized_at is not None) == (state in TERMINAL)
        never = state in {JobState.INITIAL_PENDING, JobState.UNSCHEDULED}
        assert bool(stored.assignee_id) != never


@proves("queue-api.Job.rule.10")
async def test_get_job_shows_the_result_byte_for_byte_and_none_before(desk: Desk) -> None:
    for state, job in zip(JobState, await desk.jobs_in(*JobState), strict=True):
        assert ((await desk.get(job)).result is None) == (state is not JobState.COMPLETED), state
    results = [_PAYLOAD, b"", b"\x00", "ü".encode("utf-16"), b'{"a": 1.0 }\n', _PAYLOAD * 256]
    stream = desk.stream(len(results))
    await desk.submit(len(results))
    jobs = await stream.take(len(results))
    for job, result in zip(jobs, results, strict=True):
        assert (job.result, (await desk.get(job)).result) == (None, None)
        await desk.calls.complete_job(job.id, result)
    for job, result in zip(jobs, results, strict=True):
        assert (await desk.get(job)).result == result


@proves("queue-api.Job.rule.9")
async def test_get_job_shows_the_last_message(desk: Desk) -> None:
    stream, [job] = await desk.holding(1)
    assert (await desk.get(job)).error_message == ""
    await desk.calls.fail_job(job.id, "first")
    assert (await desk.get(job)).error_message == "first"
    await stream.one()
    await desk.calls.stop_job(job.id, "last")
    assert (await desk.get(job)).error_message == "last"


@proves("queue-api.GetJob.post.2", "queue-api.GetJobStats.post.3")
async def test_reading_changes_nothing_and_wakes_nobody(desk: Desk) -> None:
    jobs = await desk.jobs_in(*set(JobState) - {JobState.RUNNING})
    waiting = await desk.waiting(tags=["none"])
    before = [await desk.get(job) for job in jobs], await desk.stats()
    looks = desk.rig.looks(waiting.assignee)
    for _ in range(3):
        assert ([await desk.get(job) for job in jobs], await desk.stats()) == before
    await desk.nothing_more(waiting)
    assert desk.rig.looks(waiting.assignee) == looks


@proves("queue-api.GetJob.expect.2", "queue-api.ObservableStateChanges.rule.1")
async def test_get_job_reads_what_the_last_call_wrote_on_either_side(desk: Desk) -> None:
    async def both() -> Job:
        stored = await desk.get(job)
        assert await desk.streams.get_job(job.id) == stored
        return stored

    job = await desk.job_in(JobState.RUNNING)
    assert (await both()).state is JobState.RUNNING
    await desk.streams.fail_job(job.id, "x")
    assert ((await both()).retry_count, (await both()).error_message) == (1, "x")
    stream = desk.stream(1)
    assert (await stream.one()).id == job.id
    assert ((await both()).assignee_id, (await both()).attempt) == (stream.assignee, 2)
    await desk.calls.cancel_jobs([], [job.id])
    assert (await both()).state is JobState.CANCELLING
    await desk.streams.acknowledge_cancellation(job.id, True)
    assert (await both()).state is JobState.STOPPED


@proves(
    "queue-api.JobStats.rule.3",
    "queue-api.JobStats.rule.4",
    "queue-api.JobStats.rule.5",
    "queue-api.JobStats.rule.6",
    "queue-api.JobStats.rule.7",
)
async def test_stats_count_each_state_where_it_belongs(desk: Desk) -> None:
    await desk.jobs_in(*JobState)
    stats = await desk.stats()
    assert (stats.pending_jobs, stats.running_jobs, stats.completed_jobs) == (1, 1, 1)
    assert (stats.stopped_jobs, stats.failed_jobs) == (4, 2)


@proves("queue-api.JobStats.rule.2", "queue-api.GetJobStats.expect.3")
async def test_stats_add_up_with_cancelling(desk: Desk) -> None:
    await desk.jobs_in(*JobState, *[JobState.CANCELLING] * 2)
    stats = await desk.stats()
    six = stats.pending_jobs + stats.running_jobs + stats.completed_jobs
    six += stats.stopped_jobs + stats.failed_jobs
    assert (stats.total_jobs, stats.by_state[JobState.CANCELLING]) == (12, 3)
    assert six + 3 == stats.total_jobs == sum(stats.by_state.values())


@proves("queue-api.JobStats.rule.8", "queue-api.ObservableStateChanges.rule.4")
async def test_stats_follow_every_change(desk: Desk) -> None:
    stream = desk.stream(1)
    [job] = await desk.submit()
    for retries in range(3):
        await stream.one()
        assert (await desk.stats()).running_jobs == 1
        assert (await desk.stats()).total_retries == retries
        if retries < 2:
            await desk.calls.fail_job(job.id, "x")
    await desk.calls.complete_job(job.id, b"")
    stats = await desk.stats()
    assert (stats.running_jobs, stats.completed_jobs, stats.total_retries) == (0, 1, 2)


@proves(
    "queue-api.JobStats.rule.1",
    "queue-api.GetJobStats.post.1",
    "queue-api.GetJobStats.post.2",
    "queue-api.GetJobStats.expect.1",
)
async def test_stats_are_of_the_jobs_that_carry_all_tags(desk: Desk) -> None:
    for tags in ("", "a", "ab", "abc", "A"):
        await desk.submit(2, tags=frozenset(tags))
    for tags, count in (("", 10), ("a", 6), ("ba", 4), ("c", 2), ("d", 0)):
        stats = await desk.stats(*tags)
        assert (stats.tags, stats.total_jobs) == (frozenset(tags), count)
        assert stats.pending_jobs == count


@proves("queue-api.Invariants.rule.6")
async def test_each_move_is_one_step(desk: Desk) -> None:
    stream, [job] = await desk.holding(1)
    steps = [(await desk.get(job)).transition]
    await desk.calls.fail_job(job.id, "x")
    await stream.one()
    await asyncio.gather(*(desk.calls.cancel_jobs([], [job.id]) for _ in range(3)))
    steps.append((await desk.get(job)).transition)
    await desk.calls.acknowledge_cancellation(job.id, True)
    steps.append((await desk.get(job)).transition)
    # Submitted and assigned; failed, assigned and cancelled once; acknowledged.
    assert steps == [2, 5, 6]
