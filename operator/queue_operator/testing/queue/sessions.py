"""Workers' streams, in process: reconnecting, draining, heartbeats and cancels."""

import asyncio
from dataclasses import replace

import pytest

from queue_operator.domain.errors import Forbidden, InvalidTransition
from queue_operator.domain.job import Assignment
from queue_operator.domain.lease import LeaseStatus
from queue_operator.domain.states import Event, JobState
from queue_operator.queue.protocol import EndReason, HandlerType
from queue_operator.testing.clauses import proves
from queue_operator.testing.queue.desk import Desk
from queue_operator.testing.queue.rig import LEASE_TTL_S
from queue_operator.testing.queue.worker_end import WorkerEnd, held, spec_of

# What the stores of the suite are opened with, and some more.
_AFTER_CANCEL_TIMEOUT_S = 31.0


async def _alive(desk: Desk, worker: WorkerEnd, *jobs: Assignment, seconds: float) -> None:
    """Lets time pass in which the worker goes on naming its jobs."""
    passed = 0.0
    while passed < seconds:
        await desk.rig.age(LEASE_TTL_S / 2)
        await worker.beat(*jobs)
        passed += LEASE_TTL_S / 2
    await desk.rig.tick()


@proves("queue-api.Sessions.rule.1", "queue-api.Replicas.rule.6")
async def test_worker_that_comes_back_keeps_what_it_brings(desk: Desk) -> None:
    spec = spec_of(desk, 3)
    first = await WorkerEnd.open(desk, spec=spec)
    await desk.submit(3)
    jobs = await first.take(3)
    await first.stream.close()
    # With two replicas it comes back to the other one.
    second = await WorkerEnd.open(desk, spec=spec, brings=jobs, at_calls=True)
    assert [answer.status for answer in second.stream.adopted] == [LeaseStatus.CURRENT] * 3
    assert second.busy == 3
    [answer] = await second.say(jobs[0], Event.COMPLETE)
    assert answer.state is JobState.COMPLETED
    assert {(await desk.get(job.job_id)).attempt for job in jobs} == {1}


@proves("queue-api.Sessions.rule.2")
async def test_worker_that_comes_back_without_a_job_gives_it_up(desk: Desk) -> None:
    spec = spec_of(desk, 3)
    first = await WorkerEnd.open(desk, spec=spec)
    await desk.submit(2)
    kept, dropped = await first.take(2)
    await first.stream.close()
    other = await WorkerEnd.open(desk, 1, at_calls=True)
    second = await WorkerEnd.open(
        desk, spec=replace(spec, capacity=1), brings=[kept], at_calls=True
    )
    [again] = await other.take(1)
    assert (again.job_id, again.attempt) == (dropped.job_id, 1)
    assert second.busy == 1


@proves("queue-api.Sessions.rule.12")
@pytest.mark.parametrize("named", [True, False], ids=["another", "nameless"])
async def test_worker_that_comes_back_as_another_process_has_lost_what_it_had(
    desk: Desk, named: bool
) -> None:
    """A handler may have begun it, and ended the process."""
    spec = spec_of(desk, 1)
    [job] = await desk.submit(max_attempts=2)
    for attempt in (1, 2):
        process = f"process-{attempt}" if named else ""
        worker = await WorkerEnd.open(desk, spec=replace(spec, process=process), at_calls=True)
        [given] = await worker.take(1)
        assert (given.job_id, given.attempt) == (job.id, attempt)
        await worker.stream.close()
    last = await WorkerEnd.open(desk, spec=replace(spec, process=""), at_calls=True)
    await desk.rig.age(LEASE_TTL_S + 1)
    await desk.rig.tick()
    ended = await desk.get(job)
    assert (ended.state, ended.attempt) == (JobState.DEAD_LETTER, 2)
    assert last.busy == 0


@proves("queue-api.Leases.rule.12")
async def test_neighbours_of_a_job_that_ends_its_workers_complete(desk: Desk) -> None:
    poison, *others = await desk.submit(4, max_attempts=3)

    async def kill(worker: WorkerEnd) -> WorkerEnd:
        await worker.stream.close()
        await desk.rig.age(LEASE_TTL_S + 1)
        await desk.rig.tick()
        # Backoffs are over too.
        await desk.rig.age(60)
        return await WorkerEnd.open(desk, 4)

    worker = await WorkerEnd.open(desk, 4)
    for _ in range(2):
        assert len(await worker.take(4)) == 4
        worker = await kill(worker)
    ended: set[str] = set()
    while len(ended) < 4:
        [alone] = await worker.take(1)
        ended.add(alone.job_id)
        if alone.job_id == poison.id:
            worker = await kill(worker)
        else:
            await worker.say(alone, Event.COMPLETE)
    await desk.rig.age(LEASE_TTL_S + 1)
    await desk.rig.tick()
    assert await desk.state(poison) is JobState.DEAD_LETTER
    assert await desk.states(others) == [JobState.COMPLETED] * 3


@proves("queue-api.Sessions.rule.3")
async def test_worker_that_leaves_keeps_what_was_written_to_it(desk: Desk) -> None:
    worker = await WorkerEnd.open(desk, 3)
    await desk.submit()
    [written] = await worker.take(1)
    unwritten = await desk.submit(2)

    async def assigned() -> bool:
        return worker.busy == 3

    await desk.until(assigned)
    await worker.stream.close()
    for job in unwritten:
        stored = await desk.get(job)
        assert (stored.state, stored.attempt) == (JobState.FAILED_RETRY, 0)
    assert (await desk.get(written.job_id)).state is JobState.RUNNING


@proves("queue-api.Sessions.rule.4", "queue-api.Sessions.rule.5")
async def test_worker_session_has_one_connection_and_one_owner(desk: Desk) -> None:
    spec = spec_of(desk, 1, pod_uid="uid-1")
    older = await WorkerEnd.open(desk, spec=spec)
    newer = await WorkerEnd.open(desk, spec=spec, at_calls=True)

    async def replaced() -> bool:
        return older.stream.end_reason is EndReason.REPLACED

    if desk.rig.far:
        await desk.rig.tick()
    await desk.until(replaced)
    assert await older.stream.next() is None
    with pytest.raises(Forbidden):
        await WorkerEnd.open(desk, spec=replace(spec, pod_uid="uid-2"))
    await desk.submit()
    await newer.take(1)


@proves("queue-api.Sessions.rule.7")
async def test_worker_that_drains_is_given_nothing(desk: Desk) -> None:
    draining = await WorkerEnd.open(desk, 3)
    await desk.submit(2)
    kept, unseen = await draining.take(2)
    [waiting] = await desk.submit()

    async def assigned() -> bool:
        return draining.busy == 3

    await desk.until(assigned)
    draining.stream.drain()
    await draining.beat(kept)
    other = await WorkerEnd.open(desk, 2)
    again = await other.take(2)
    assert {job.job_id for job in again} == {unseen.job_id, waiting.id}
    assert {job.attempt for job in again} == {1}
    assert draining.busy == 1


@proves("queue-api.Sessions.rule.10")
async def test_outcomes_of_one_job_are_judged_one_after_the_other(desk: Desk) -> None:
    worker = await WorkerEnd.open(desk)
    [job] = await desk.submit()
    [given] = await worker.take(1)
    first, second, third = await worker.say(given, Event.COMPLETE, Event.FAIL, Event.COMPLETE)
    assert first.state is JobState.COMPLETED
    assert isinstance(second.error, InvalidTransition)
    assert (third.error, third.repeated) == (None, True)
    assert await desk.state(job) is JobState.COMPLETED


@proves("queue-api.Leases.rule.2", "queue-api.Leases.rule.3")
async def test_heartbeat_renews_what_it_names_and_tells_of_the_rest(desk: Desk) -> None:
    worker = await WorkerEnd.open(desk, 4)
    await desk.submit(4)
    named, leaving, unnamed, ended = await worker.take(4)
    await desk.calls.cancel_jobs([], [leaving.job_id])
    # Its handler has heard of it, and takes its time.
    worker.stream.confirm_cancels(held([leaving]))
    await desk.calls.stop_job(ended.job_id, "elsewhere")
    await _alive(desk, worker, named, leaving, seconds=LEASE_TTL_S * 1.5)
    states = [(await desk.get(job.job_id)).state for job in (named, leaving)]
    assert states == [JobState.RUNNING, JobState.CANCELLING]
    # Lost, it was given out anew, to the only one there is.
    [taken] = await worker.take(1)
    assert (taken.job_id, taken.attempt) == (unnamed.job_id, 2)
    answers = await worker.beat(named, leaving, unnamed, ended)
    assert [answer.status for answer in answers] == [
        LeaseStatus.CURRENT,
        LeaseStatus.CURRENT,
        LeaseStatus.TAKEN_OVER,
        LeaseStatus.ENDED,
    ]


@proves("queue-api.Leases.rule.4")
async def test_jobs_that_wait_for_a_worker_are_renewed_by_the_queue(desk: Desk) -> None:
    worker = await WorkerEnd.open(desk, 2)
    jobs = await desk.submit(2)

    async def assigned() -> bool:
        return worker.busy == 2

    await desk.until(assigned)
    for _ in range(4):
        await desk.rig.age(LEASE_TTL_S * 0.6)
        await desk.rig.tick()
    assert {job.job_id for job in await worker.take(2)} == {job.id for job in jobs}
    assert {(await desk.get(job)).attempt for job in jobs} == {1}


@proves("queue-api.Leases.rule.9")
async def test_jobs_past_their_time_are_ended(desk: Desk) -> None:
    worker = await WorkerEnd.open(desk, 2)
    await desk.submit(2, timeout_s=5.0, max_attempts=3)
    late, leaving = await worker.take(2)
    await desk.calls.cancel_jobs([], [leaving.job_id])
    await _alive(desk, worker, late, leaving, seconds=LEASE_TTL_S + 6.0)
    failed = await desk.get(late.job_id)
    assert failed.retry_count == 1
    assert failed.error is not None
    assert failed.error.category == "TIMEOUT"
    assert (await desk.get(leaving.job_id)).state is JobState.UNKNOWN_STOPPED


@proves("queue-api.Slots.rule.7", "queue-api.Slots.rule.6")
async def test_slot_of_a_lost_job_waits_for_its_handler(desk: Desk) -> None:
    worker = await WorkerEnd.open(desk, 2)
    await desk.submit(2)
    lost, going = await worker.take(2)
    await worker.beat(lost, going)
    await desk.calls.stop_job(lost.job_id, "by somebody else")
    await desk.submit(2)
    await desk.rig.tick()
    assert worker.busy == 2
    await worker.beat(going)
    await worker.take(1)
    assert worker.busy == 2


@proves("queue-api.Dispatch.rule.11")
async def test_types_keep_to_their_concurrency(desk: Desk) -> None:
    types = (HandlerType(type="mail", concurrency=1), HandlerType(type="video"))
    worker = await WorkerEnd.open(desk, spec=spec_of(desk, 4, types=types))
    await desk.submit(3, type="mail")
    await desk.submit(1, type="video")
    await desk.submit(2, type="other")
    first = await worker.take(2)
    assert sorted(job.type for job in first) == ["mail", "video"]
    await desk.settled()
    assert worker.busy == 2
    [mail] = [job for job in first if job.type == "mail"]
    await worker.say(mail, Event.COMPLETE)
    assert [job.type for job in await worker.take(1)] == ["mail"]


@proves("queue-api.Dispatch.rule.8", "queue-api.Dispatch.rule.9")
async def test_equal_workers_share_evenly(desk: Desk) -> None:
    workers = [await WorkerEnd.open(desk, 10) for _ in range(3)]
    await desk.submit(8)

    async def given() -> bool:
        return sum(worker.busy for worker in workers) == 8

    await desk.until(given)
    assert sorted(worker.busy for worker in workers) == [2, 3, 3]
    for worker in workers:
        for job in await worker.take(worker.busy):
            await worker.say(job, Event.COMPLETE)

    async def taken() -> bool:
        return any(worker.busy for worker in workers)

    takers = []
    for _ in range(6):
        await desk.submit()
        await desk.until(taken)
        [taker] = [worker for worker in workers if worker.busy]
        takers.append(taker)
        await taker.say((await taker.take(1))[0], Event.COMPLETE)
    assert all(takers.count(worker) == 2 for worker in workers)


@proves(
    "queue-api.Cancellation.rule.1",
    "queue-api.Cancellation.rule.2",
    "queue-api.Replicas.rule.4",
)
async def test_cancel_is_pushed_within_a_second_and_once(desk: Desk) -> None:
    worker = await WorkerEnd.open(desk)
    [job] = await desk.submit()
    await worker.take(1)
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    await desk.calls.cancel_jobs([], [job.id], reason="why not")
    first = await worker.cancel()
    assert loop.time() - begin_s < 1.0
    assert (first.job_id, first.force, first.reason) == (job.id, False, "why not")
    await desk.calls.cancel_jobs([], [job.id])
    await desk.calls.cancel_jobs([], [job.id], force=True)
    assert (await worker.cancel()).force


@proves("queue-api.Cancellation.rule.3")
async def test_cancel_that_was_missed_is_told_with_the_next_heartbeat(desk: Desk) -> None:
    spec = spec_of(desk, 1)
    worker = await WorkerEnd.open(desk, spec=spec)
    await desk.submit()
    [job] = await worker.take(1)
    await worker.stream.close()
    await desk.calls.cancel_jobs([], [job.job_id], force=True)
    back = await WorkerEnd.open(desk, spec=spec, brings=[job])
    [adopted] = back.stream.adopted
    [beat] = await back.beat(job)
    for answer in (adopted, beat):
        assert (answer.cancel_requested, answer.cancel_forced) == (True, True)


@proves("queue-api.Cancellation.rule.4", "queue-api.Cancellation.rule.5")
async def test_cancel_that_nobody_answers_ends_the_job(desk: Desk) -> None:
    worker = await WorkerEnd.open(desk, 3)
    await desk.submit(3)
    forced, unseen, seen = jobs = await worker.take(3)
    await desk.calls.cancel_jobs([], [forced.job_id], force=True)
    await desk.calls.cancel_jobs([], [unseen.job_id, seen.job_id])
    worker.stream.confirm_cancels(held([seen]))
    await _alive(desk, worker, *jobs, seconds=_AFTER_CANCEL_TIMEOUT_S)

    async def ended() -> bool:
        states = [(await desk.get(job.job_id)).state for job in jobs]
        return states == [JobState.UNKNOWN_STOPPED] * 2 + [JobState.CANCELLING]

    await desk.until(ended)


@proves(
    "queue-api.Cancellation.rule.8",
    "queue-api.Cancellation.rule.9",
    "queue-api.Cancellation.rule.10",
    "queue-api.Cancellation.rule.11",
)
async def test_cancelled_jobs_end_by_what_their_worker_says(desk: Desk) -> None:
    ends = {
        Event.FAIL: JobState.STOPPED,
        Event.COMPLETE: JobState.COMPLETED,
        Event.HAND_BACK: JobState.STOPPED,
        Event.ACK_EXECUTING: JobState.STOPPED,
        Event.ACK_UNKNOWN: JobState.UNKNOWN_STOPPED,
    }
    worker = await WorkerEnd.open(desk, len(ends))
    await desk.submit(len(ends))
    jobs = await worker.take(len(ends))
    await desk.calls.cancel_jobs([], [job.job_id for job in jobs])
    for job, (event, state) in zip(jobs, ends.items(), strict=True):
        [answer] = await worker.say(job, event)
        assert answer.state is state, event
    assert [(await desk.get(job.job_id)).retry_count for job in jobs] == [1, 0, 0, 0, 0]


_SOON_S = 0.25
_ROUNDS = 5


@proves("queue-api.Replicas.rule.2", "queue-api.ResetRunningJobs.effect.3")
@pytest.mark.parametrize("how", ["lost", "reset", "failed", "released"])
async def test_jobs_that_come_back_reach_a_worker_elsewhere_soon(desk: Desk, how: str) -> None:
    """In most of the rounds within a pulse of the store, whatever else the machine has to do."""
    waits = []
    for _ in range(_ROUNDS):
        there = await WorkerEnd.open(desk, 1, at_calls=True)
        await desk.submit()
        [back] = await there.take(1)
        there.stream.drain()
        # What comes back lies before the last that was claimed here.
        here = await WorkerEnd.open(desk, 1)
        await desk.submit()
        [later] = await here.take(1)
        await here.say(later, Event.COMPLETE)
        begun_s = asyncio.get_running_loop().time()
        match how:
            case "lost":
                await desk.calls.mark_worker_unresponsive(there.stream.spec.assignee_id)
            case "reset":
                await desk.calls.reset_running_jobs()
            case "failed":
                await desk.calls.fail_job(back.job_id, "it broke", token=back.token)
            case "released":
                await there.say(back, Event.HAND_BACK)
        [again] = await here.take(1)
        waits.append(asyncio.get_running_loop().time() - begun_s)
        assert again.job_id == back.job_id
        await here.say(again, Event.COMPLETE)
        await here.stream.close()
        await there.stream.close()
    assert sorted(waits)[_ROUNDS // 2] < _SOON_S, waits


@proves("queue-api.Replicas.rule.8", "queue-api.Replicas.rule.2", "queue-api.Replicas.rule.1")
async def test_jobs_reach_a_worker_elsewhere_without_a_poll(desk: Desk) -> None:
    here = await WorkerEnd.open(desk, 1)
    there = await WorkerEnd.open(desk, 1, at_calls=True)
    first, second = await desk.submit(2)
    [mine], [theirs] = await here.take(1), await there.take(1)
    await there.say(theirs, Event.COMPLETE)
    await desk.calls.cancel_jobs([], [mine.job_id])
    await here.say(mine, Event.ACK_EXECUTING)
    assert {mine.job_id, theirs.job_id} == {first.id, second.id}
    unwritten = await desk.submit(1)

    async def assigned() -> bool:
        return here.busy + there.busy == 1

    await desk.until(assigned)
    leaving, staying = (here, there) if here.busy else (there, here)
    await leaving.stream.close()
    [again] = await staying.take(1)
    assert again.job_id == unwritten[0].id
    await staying.say(again, Event.FAIL)
    assert [job.job_id for job in await staying.take(1)] == [again.job_id]
