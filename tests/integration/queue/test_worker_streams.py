"""The worker plane's streams: heartbeats, cancels, limits, reconnects, sweeps."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.waiting import DEADLINE_S, take, until

from queue_operator.domain.errors import Forbidden, JobNotFound, StaleLease
from queue_operator.domain.job import Assignment, CancelRequest, Job
from queue_operator.domain.lease import Held, LeaseStatus
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.queue.protocol import EndReason, HandlerType, Stream, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves

NewJobs = Callable[..., list[Job]]
OpenQueue = Callable[..., Awaitable[QueueService]]


async def take_cancel(stream: Stream) -> CancelRequest:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            push = await stream.next()
            assert push is not None, "the stream has ended"
            stream.delivered(push)
            if push.cancels:
                return push.cancels[0]


def said(job: Assignment, event: Event = Event.COMPLETE, **fields: object) -> Outcome:
    if event is Event.FAIL:
        fields.setdefault("error", ErrorInfo("it broke"))
    return Outcome(
        job.job_id,
        event,
        job.namespace,
        job.token,
        worker_plane=True,
        **fields,  # type: ignore[arg-type]
    )


def held(jobs: Sequence[Assignment]) -> list[Held]:
    return [Held(job.job_id, job.token, job.namespace) for job in jobs]


async def state(queue: QueueService, job: Assignment | Job) -> JobState:
    job_id = job.job_id if isinstance(job, Assignment) else job.id
    return (await queue.get_job(job_id, namespace=job.namespace)).state


def busy(queue: QueueService, stream: Stream) -> int:
    return next(u.busy for u in queue.usage() if u.spec == stream.spec)


async def test_outcomes_are_answered_one_by_one(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(3))
    stream = await queue.open_stream(new_spec())
    done, failed, stale = await take(stream, 3)
    missing = Outcome("nobody", Event.COMPLETE, done.namespace, str(uuid.uuid4()))
    wrong = Outcome(
        stale.job_id, Event.COMPLETE, stale.namespace, str(uuid.uuid4()), worker_plane=True
    )
    answers = await stream.settle(
        [said(done, result=b"42"), said(failed, Event.FAIL), wrong, missing]
    )
    assert [answer.state for answer in answers[:2]] == [
        JobState.COMPLETED,
        JobState.FAILED_RETRY,
    ]
    assert isinstance(answers[2].error, StaleLease)
    assert isinstance(answers[3].error, JobNotFound)
    assert await state(queue, stale) is JobState.RUNNING
    repeated = (await stream.settle([said(done, result=b"42")]))[0]
    assert (repeated.state, repeated.repeated) == (JobState.COMPLETED, True)


async def test_a_permanent_failure_ends_the_job(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    await queue.enqueue_job(new_jobs()[0])
    stream = await queue.open_stream(new_spec())
    job = (await take(stream, 1))[0]
    error = ErrorInfo("never", ErrorCategory.PERMANENT)
    answer = (await stream.settle([said(job, Event.FAIL, error=error)]))[0]
    assert answer.state is JobState.DEAD_LETTER
    assert busy(queue, stream) == 0


async def test_a_claim_never_exceeds_the_concurrency_of_a_type(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    types = (HandlerType(type="mail", concurrency=2), HandlerType(type="video"))
    await queue.enqueue_jobs([*new_jobs(8, "mail"), *new_jobs(8, "video"), *new_jobs(3, "other")])
    stream = await queue.open_stream(new_spec(6, types=types))
    running: dict[str, Assignment] = {}
    finished: Counter[str] = Counter()
    while finished.total() < 16:
        for job in await take(stream, 1):
            running[job.job_id] = job
        await stream.heartbeat(held(list(running.values())))
        mails = [job for job in running.values() if job.type == "mail"]
        assert len(mails) <= 2
        assert len(running) <= 6
        leaving = list(running.values())
        if finished.total() + len(running) < 16:
            leaving = mails[:1] or leaving[:1]
        await stream.settle([said(job) for job in leaving])
        for job in leaving:
            del running[job.job_id]
            finished[job.type] += 1
    assert finished == {"mail": 8, "video": 8}


async def test_equal_streams_get_equal_shares(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    streams = [await queue.open_stream(new_spec(100)) for _ in range(4)]
    await queue.enqueue_jobs(new_jobs(40))
    shares = await asyncio.gather(*(take(stream, 10) for stream in streams))
    assert [len(share) for share in shares] == [10] * 4


async def test_single_jobs_go_round(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    streams = [await queue.open_stream(new_spec(100)) for _ in range(3)]
    takers: Counter[int] = Counter()
    waiting = {asyncio.ensure_future(take(stream, 1)): n for n, stream in enumerate(streams)}
    for _ in range(9):
        await queue.enqueue_job(new_jobs()[0])
        done, _ = await asyncio.wait(
            waiting, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            number = waiting.pop(task)
            takers[number] += 1
            await streams[number].settle([said(job) for job in task.result()])
            waiting[asyncio.ensure_future(take(streams[number], 1))] = number
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert takers == {0: 3, 1: 3, 2: 3}


async def test_heartbeats_renew_and_tell_what_became_of_the_rest(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(3))
    stream = await queue.open_stream(new_spec(3))
    current, ended, taken = await take(stream, 3)
    await queue.stop_job(ended.job_id, "elsewhere", namespace=ended.namespace)
    stream.drain()
    await queue.mark_worker_unresponsive(stream.spec.assignee_id)
    other = await queue.open_stream(new_spec(1))
    reassigned = (await take(other, 1))[0]
    lost = [job for job in (current, taken) if job.job_id != reassigned.job_id]
    answers = {a.job_id: a.status for a in await stream.heartbeat(held([current, ended, taken]))}
    assert answers == {
        lost[0].job_id: LeaseStatus.LOST,
        ended.job_id: LeaseStatus.ENDED,
        reassigned.job_id: LeaseStatus.TAKEN_OVER,
    }
    answer = (await other.heartbeat(held([reassigned])))[0]
    assert answer.status is LeaseStatus.CURRENT


async def test_a_worker_whose_lost_job_still_runs_is_not_overfilled(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(2))
    stream = await queue.open_stream(new_spec(2))
    jobs = await take(stream, 2)
    await stream.heartbeat(held(jobs))
    for job in jobs:
        await queue.stop_job(job.job_id, "by somebody else", namespace=job.namespace)
    assert busy(queue, stream) == 2
    await stream.heartbeat(held(jobs[:1]))
    assert busy(queue, stream) == 1
    await stream.heartbeat([])
    assert busy(queue, stream) == 0


async def test_a_slot_freed_elsewhere_is_found_by_comparing_with_the_store(
    open_queue: OpenQueue, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    here = await open_queue(QueueSettings(lease_ttl_s=0.4))
    there = await open_queue()
    await here.enqueue_job(new_jobs()[0])
    stream = await here.open_stream(new_spec(1))
    job = (await take(stream, 1))[0]
    await there.complete_job(job.job_id, b"", namespace=job.namespace)

    async def slot_is_back() -> bool:
        await here.ping()
        return busy(here, stream) == 0

    await until(slot_is_back)
    assert await state(here, job) is JobState.COMPLETED


async def test_cancels_are_pushed_once_and_again_when_forced(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(1))
    stream = await queue.open_stream(new_spec())
    job = (await take(stream, 1))[0]
    ids = [job.job_id]
    await queue.cancel_jobs([], ids, namespace=job.namespace, reason="why not")
    await queue.cancel_jobs([], ids, namespace=job.namespace)
    await queue.notifier.fetch_cancels()
    first = await take_cancel(stream)
    assert (first.job_id, first.token, first.force) == (job.job_id, job.token, False)
    assert first.reason == "why not"
    await queue.cancel_jobs([], ids, namespace=job.namespace, force=True)
    assert (await take_cancel(stream)).force
    answer = (await stream.settle([said(job, Event.ACK_EXECUTING)]))[0]
    assert answer.state is JobState.STOPPED
    assert busy(queue, stream) == 0


async def test_a_worker_that_did_not_have_the_job_gets_its_slot_back_by_comparison(
    open_queue: OpenQueue, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    queue = await open_queue()
    await queue.enqueue_jobs(new_jobs(1))
    stream = await queue.open_stream(new_spec())
    job = (await take(stream, 1))[0]
    await queue.cancel_jobs([], [job.job_id], namespace=job.namespace)
    answer = (await stream.settle([said(job, Event.ACK_UNKNOWN)]))[0]
    assert answer.state is JobState.UNKNOWN_STOPPED
    assert answer.freed_assignee_id is None
    assert busy(queue, stream) == 1
    await queue.keeper.reconcile()
    assert busy(queue, stream) == 0


async def test_a_failure_while_cancelling_stops_the_job(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(1))
    stream = await queue.open_stream(new_spec())
    job = (await take(stream, 1))[0]
    await queue.cancel_jobs([], [job.job_id], namespace=job.namespace)
    answer = (await stream.settle([said(job, Event.FAIL)]))[0]
    assert answer.state is JobState.STOPPED
    assert busy(queue, stream) == 0


async def test_cancels_asked_for_on_another_replica_reach_the_worker(
    open_queue: OpenQueue, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    here, there = await open_queue(), await open_queue()
    stream = await here.open_stream(new_spec())
    await there.enqueue_jobs(new_jobs(1))
    job = (await take(stream, 1))[0]
    await there.cancel_jobs([], [job.job_id], namespace=job.namespace, force=True)
    request = await take_cancel(stream)
    assert (request.job_id, request.token, request.force) == (job.job_id, job.token, True)


async def test_undelivered_jobs_go_back_and_delivered_ones_stay(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    stream = await queue.open_stream(new_spec())
    await queue.enqueue_jobs(new_jobs(1))
    delivered = (await take(stream, 1))[0]
    await queue.enqueue_jobs(new_jobs(2))
    written: list[Assignment] = []
    while len(written) < 2:
        push = await asyncio.wait_for(stream.next(), DEADLINE_S)
        assert push is not None
        written += push.assignments
    await stream.close()
    assert await state(queue, delivered) is JobState.RUNNING
    for job in written:
        stored = await queue.get_job(job.job_id, namespace=job.namespace)
        assert (stored.state, stored.attempt) == (JobState.FAILED_RETRY, 0)
    assert await stream.next() is None
    assert stream.end_reason is EndReason.CLOSED


async def test_a_reconnecting_worker_keeps_what_it_presents(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    spec = new_spec(3, process="p")
    await queue.enqueue_jobs(new_jobs(4))
    first = await queue.open_stream(spec)
    kept, dropped, ended = await take(first, 3)
    await first.close()
    await queue.stop_job(ended.job_id, "meanwhile", namespace=ended.namespace)
    second = await queue.open_stream(spec, held([kept, ended]))
    statuses = {answer.job_id: answer.status for answer in second.adopted}
    assert statuses == {kept.job_id: LeaseStatus.CURRENT, ended.job_id: LeaseStatus.ENDED}
    stored = await queue.get_job(dropped.job_id, namespace=dropped.namespace)
    assert stored.attempt == (1 if stored.state is JobState.RUNNING else 0)
    # Two of three slots are the worker's own; one is left, whatever comes.
    await take(second, 1)
    assert busy(queue, second) == 3
    answer = (await second.settle([said(kept)]))[0]
    assert answer.state is JobState.COMPLETED


async def test_a_worker_that_comes_back_to_another_replica_keeps_its_jobs(
    open_queue: OpenQueue, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    here, there = await open_queue(), await open_queue()
    spec = new_spec(2, types=(HandlerType(type="mail", concurrency=1), HandlerType(type="video")))
    await here.enqueue_jobs(new_jobs(3, "mail"))
    job = (await take(await here.open_stream(spec), 1))[0]
    await here.close()
    stream = await there.open_stream(spec, held([job]))
    assert [answer.status for answer in stream.adopted] == [LeaseStatus.CURRENT]
    await there.enqueue_jobs(new_jobs(1, "video"))
    assert [got.type for got in await take(stream, 1)] == ["video"]
    assert (await stream.settle([said(job)]))[0].state is JobState.COMPLETED
    assert [got.type for got in await take(stream, 1)] == ["mail"]


async def test_the_newer_of_two_connections_wins(
    queue: QueueService, new_spec: Callable[..., StreamSpec]
) -> None:
    spec = new_spec(pod_uid="uid-1")
    older = await queue.open_stream(spec)
    newer = await queue.open_stream(spec)
    assert await older.next() is None
    assert older.end_reason is EndReason.REPLACED
    assert newer.end_reason is None
    with pytest.raises(Forbidden):
        await queue.open_stream(new_spec(assignee_id=spec.assignee_id, pod_uid="uid-2"))
    assert newer.end_reason is None


@proves("queue-api.Sessions.rule.7")
async def test_a_draining_worker_gets_nothing_new(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    draining, other = [await queue.open_stream(new_spec(1)) for _ in range(2)]
    await queue.enqueue_jobs(new_jobs(2))
    mine = (await take(draining, 1))[0]
    theirs = (await take(other, 1))[0]
    draining.drain()
    await queue.enqueue_jobs(new_jobs(1))
    await draining.settle([said(mine)])
    await other.settle([said(theirs)])
    await take(other, 1)
    assert busy(queue, draining) == 0


async def test_a_silent_worker_loses_its_jobs_to_another(
    open_queue: OpenQueue, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    queue = await open_queue(QueueSettings(lease_ttl_s=0.3))
    silent = await queue.open_stream(new_spec(1))
    await queue.enqueue_jobs(new_jobs(1))
    job = (await take(silent, 1))[0]
    silent.drain()
    other = await queue.open_stream(new_spec(1))
    again = (await take(other, 1))[0]
    assert (again.job_id, again.attempt) == (job.job_id, 2)
    answer = (await silent.settle([said(job)]))[0]
    assert isinstance(answer.error, StaleLease)
    assert (await other.settle([said(again)]))[0].state is JobState.COMPLETED


async def test_jobs_waiting_for_a_slow_reader_keep_their_lease(
    open_queue: OpenQueue,
    new_spec: Callable[..., StreamSpec],
    new_jobs: NewJobs,
) -> None:
    queue = await open_queue(QueueSettings(lease_ttl_s=0.3))
    stream = await queue.open_stream(new_spec(1))
    job = new_jobs()[0]
    await queue.enqueue_job(job)
    loop = asyncio.get_running_loop()
    start_s = loop.time()

    async def three_ttls_are_over() -> bool:
        await queue.ping()
        return loop.time() > start_s + 0.9

    await until(three_ttls_are_over)
    assert [(got.job_id, got.attempt) for got in await take(stream, 1)] == [(job.id, 1)]


@proves("queue-api.Leases.rule.11")
async def test_a_worker_that_does_not_read_keeps_jobs_from_nobody(
    open_queue: OpenQueue, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    queue = await open_queue(QueueSettings(lease_ttl_s=0.2))
    hung = await queue.open_stream(new_spec(1))
    job = new_jobs()[0]
    await queue.enqueue_job(job)
    while not busy(queue, hung):
        await queue.ping()
    other = await queue.open_stream(new_spec(1))
    assert [(got.job_id, got.attempt) for got in await take(other, 1)] == [(job.id, 1)]
    assert busy(queue, hung) == 0


async def test_a_cancel_missed_while_away_is_told_on_return(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    spec = new_spec(1)
    stream = await queue.open_stream(spec)
    await queue.enqueue_jobs(new_jobs(1))
    job = (await take(stream, 1))[0]
    await stream.close()
    await queue.cancel_jobs([], [job.job_id], namespace=job.namespace, force=True)
    back = await queue.open_stream(spec, held([job]))
    assert [(a.status, a.cancel_requested, a.cancel_forced) for a in back.adopted] == [
        (LeaseStatus.CURRENT, True, True)
    ]
    await back.heartbeat(held([job]))
    assert (await back.settle([said(job, Event.ACK_EXECUTING)]))[0].state is JobState.STOPPED


async def test_a_worker_of_another_namespace_cannot_take_the_place_of_one_that_is_away(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    spec = new_spec(1)
    stream = await queue.open_stream(spec)
    await queue.enqueue_jobs(new_jobs(1))
    job = (await take(stream, 1))[0]
    await stream.close()
    with pytest.raises(Forbidden):
        await queue.open_stream(
            StreamSpec(
                assignee_id=spec.assignee_id,
                capacity=1,
                namespace="elsewhere",
                worker_name=spec.worker_name,
            )
        )
    back = await queue.open_stream(spec, held([job]))
    assert (await back.heartbeat(held([job])))[0].status is LeaseStatus.CURRENT


async def test_a_job_on_its_way_to_a_worker_that_leaves_goes_to_another_at_once(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(2))
    leaving = await queue.open_stream(new_spec(2))
    kept, unseen = await take(leaving, 2)
    leaving.drain()
    await leaving.heartbeat(held([kept]))
    assert busy(queue, leaving) == 1
    again = (await take(await queue.open_stream(new_spec(1)), 1))[0]
    assert (again.job_id, again.attempt) == (unseen.job_id, 1)
    assert (await leaving.settle([said(kept)]))[0].state is JobState.COMPLETED


@proves("queue-api.Sessions.rule.6")
async def test_a_worker_that_never_speaks_of_its_jobs_gets_no_more_until_it_does(
    open_queue: OpenQueue, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    queue = await open_queue(QueueSettings(lease_ttl_s=0.3))
    cut_off = await queue.open_stream(new_spec(1))
    await queue.enqueue_jobs(new_jobs(1))
    job = (await take(cut_off, 1))[0]

    async def lost() -> bool:
        return await state(queue, job) is JobState.UNKNOWN_RETRY and not busy(queue, cut_off)

    await until(lost)
    other = await queue.open_stream(new_spec(1))
    again = (await take(other, 1))[0]
    await other.settle([said(again)])
    await queue.enqueue_jobs(new_jobs(1))
    await other.settle([said(got) for got in await take(other, 1)])
    await other.close()
    await queue.enqueue_jobs(new_jobs(1))
    await cut_off.heartbeat([])
    assert len(await take(cut_off, 1)) == 1


async def test_a_handler_that_outlives_its_job_keeps_its_slot(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    await queue.enqueue_jobs(new_jobs(1))
    stream = await queue.open_stream(new_spec(1))
    job = (await take(stream, 1))[0]
    error = ErrorInfo("too long", ErrorCategory.PERMANENT)
    await stream.settle([said(job, Event.FAIL, error=error)])
    await stream.heartbeat(held([job]))
    assert busy(queue, stream) == 0, "the heartbeat may have crossed the answer to the outcome"
    await stream.heartbeat(held([job]))
    assert busy(queue, stream) == 1
    await stream.heartbeat([])
    assert busy(queue, stream) == 0


@proves("queue-api.Dispatch.rule.12")
async def test_no_type_waits_for_ever_behind_busier_ones(
    queue: QueueService, new_spec: Callable[..., StreamSpec], new_jobs: NewJobs
) -> None:
    names = ("mail", "video", "rare")
    types = tuple(HandlerType(type=name, concurrency=2) for name in names)
    await queue.enqueue_jobs([job for name in names for job in new_jobs(20, name)])
    stream = await queue.open_stream(new_spec(3, types=types))
    running = await take(stream, 3)
    seen: Counter[str] = Counter(job.type for job in running)
    for _ in range(12):
        await stream.settle([said(running.pop(0))])
        running += await take(stream, 1)
        seen[running[-1].type] += 1
    assert min(seen[name] for name in names) >= 4
