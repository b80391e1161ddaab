"""The life of a worker's session, message by message."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import grpc
import psycopg
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.waiting import until

from queue_operator.auth.protocol import Identity
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidTransition, JobNotFound, StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService
from queue_operator.queue.stream import JobStream
from queue_operator.rpc.servicer import ConnectionLost, WorkerCall, WorkerPlaneServicer
from queue_operator.rpc.session import JOBS_PER_MESSAGE, OUTCOME_MESSAGES_IN_FLIGHT
from queue_operator.testing.clauses import proves
from queue_operator.wire.convert import RESULT_NOT_STORABLE
from queue_operator.wire.status import ERROR_CODE_KEY
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]


def complete(job: pb.Assignment, **fields: Any) -> pb.Outcome:
    values: dict[str, Any] = {"kind": pb.OUTCOME_KIND_COMPLETE, "token": job.token} | fields
    return pb.Outcome(job_id=job.job_id, **values)


def held(*jobs: pb.Assignment) -> list[pb.HeldJob]:
    return [pb.HeldJob(job_id=job.job_id, token=job.token) for job in jobs]


async def stored(queue: QueueService, job: pb.Assignment, namespace: str) -> Job:
    return await queue.get_job(job.job_id, namespace=namespace)


def sessions_open(queue: QueueService) -> int:
    return len(queue.usage())


@proves("queue-api.WorkerPlane.rule.6")
async def test_hello_assignment_outcome_ack(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    welcome = await worker.hello()
    assert (welcome.session_id, welcome.namespace) == (worker.session_id, namespace)
    assert welcome.lease_ttl == Duration(seconds=5)
    assert welcome.heartbeat_interval.ToTimedelta().total_seconds() == pytest.approx(5 / 3)
    assert (welcome.capacity, welcome.max_result_bytes) == (10, 1024)
    sent = new_jobs(payload=b"\x00\x01", content_type="text/plain", tags=frozenset({"eu"}))[0]
    await queue.enqueue_job(sent)
    job = (await worker.assignments(1))[0]
    assert (job.job_id, job.type, job.payload) == (sent.id, "mail", b"\x00\x01")
    assert (job.content_type, list(job.tags), job.attempt) == ("text/plain", ["eu"], 1)
    ack = (await worker.settle(complete(job, result=b"42")))[0]
    assert (ack.job_id, ack.token, ack.error_code) == (job.job_id, job.token, "")
    assert ack.state == JobState.COMPLETED
    after = await stored(queue, job, namespace)
    assert (after.state, after.result, after.worker_name) == (JobState.COMPLETED, b"42", "w")


@proves("queue-api.WorkerPlane.rule.8")
async def test_each_outcome_of_a_batch_gets_its_own_answer(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(3))
    good, stale, huge = await worker.assignments(3)
    other_token = "00000000-0000-4000-8000-000000000000"
    acks = await worker.settle(
        complete(good),
        complete(stale, token=other_token),
        complete(stale, token="no token of ours"),
        complete(stale, kind=pb.OUTCOME_KIND_UNSPECIFIED),
        complete(pb.Assignment(job_id="nobody", token=other_token)),
        complete(huge, result=b"x" * 1025),
    )
    answers = {(ack.job_id, ack.token): ack for ack in acks}
    assert len(acks) == 6
    assert answers[good.job_id, good.token].state == JobState.COMPLETED
    assert answers[stale.job_id, other_token].error_code == StaleLease.code
    assert answers[stale.job_id, "no token of ours"].error_code
    unspecified = answers[stale.job_id, stale.token]
    assert unspecified.error_code == "INVALID_REQUEST"
    assert "outcomes[3].kind" in unspecified.error_message
    assert answers["nobody", other_token].error_code == JobNotFound.code
    assert answers[huge.job_id, huge.token].state == JobState.DEAD_LETTER
    error = (await stored(queue, huge, namespace)).error
    assert error is not None
    assert error.code == RESULT_NOT_STORABLE
    assert (await stored(queue, stale, namespace)).state is JobState.RUNNING


@proves("queue-api.WorkerPlane.rule.7")
async def test_an_outcome_is_acknowledged_once_it_is_committed(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str, dsn: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(2))
    first, second = await worker.assignments(2)
    async with (
        await psycopg.AsyncConnection.connect(dsn) as holder,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as watcher,
    ):

        async def waiting() -> list[int]:
            """The connections that wait for a lock of the holder."""
            found = await watcher.execute(BLOCKED, (holder.info.backend_pid,))
            return [row[0] for row in await found.fetchall()]

        async def held_up() -> bool:
            return bool(await waiting())

        # Nobody can write to the first job; the statement that is to complete it waits.
        await holder.execute(LOCK_JOB, (first.job_id,))
        await worker.say(outcomes=pb.OutcomeBatch(outcomes=[complete(first)]))
        await until(held_up)
        # It is cut off before its commit, and tried again.
        for pid in await waiting():
            await watcher.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        await until(held_up)
        hearing = asyncio.ensure_future(worker.hear_of("outcome_acks"))
        await worker.say(heartbeat=pb.Heartbeat(held=held(first, second)))
        await asyncio.wait([hearing], timeout=0.5)
        assert not hearing.done(), "it was acknowledged before it was stored"
        assert (await stored(queue, first, namespace)).state is JobState.RUNNING
        await holder.rollback()
        [ack] = (await hearing).outcome_acks.acks
        # What another connection sees is committed.
        assert (await stored(queue, first, namespace)).state is JobState.COMPLETED
    assert (ack.job_id, ack.token, ack.state) == (first.job_id, first.token, JobState.COMPLETED)
    acks = await worker.settle(complete(second), complete(first))
    assert sorted(ack.job_id for ack in acks) == sorted([first.job_id, second.job_id])


BLOCKED = "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
LOCK_JOB = (
    "SELECT 1 FROM queue_operator.lease JOIN queue_operator.job USING (job_no)"
    " WHERE job.id = %s FOR UPDATE OF lease"
)


async def test_a_chained_job_comes_with_what_its_parent_gave(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker = connect()
    await worker.hello()
    first, second = new_jobs(2)
    second = replace(second, depends_on=(first.id,), dependency_mode=DependencyMode.CHAIN)
    await queue.enqueue_jobs([first, second])
    [parent] = await worker.assignments(1)
    assert not parent.HasField("parent_result")
    await worker.settle(complete(parent, result=b"[1]", result_content_type="application/json"))
    [child] = await worker.assignments(1)
    assert (child.job_id, child.parent_result) == (second.id, b"[1]")
    assert child.parent_content_type == "application/json"


@proves("queue-api.WorkerPlane.rule.10")
async def test_assignments_come_in_messages_that_fit(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    worker = connect()
    await queue.enqueue_jobs([*new_jobs(450), *new_jobs(6, payload=b"x" * 30_000)])
    await worker.hello(500)
    received = 0
    while received < 456:
        message = await worker.hear_of("assignments")
        assert len(message.assignments.assignments) <= JOBS_PER_MESSAGE
        assert message.ByteSize() <= 64 * 1024
        received += len(message.assignments.assignments)


@proves("queue-api.WorkerPlane.rule.10")
async def test_a_worker_is_pushed_what_it_has_room_for_and_no_more(
    queue: QueueService, connect: Connect, new_jobs: NewJobs
) -> None:
    types = [pb.HandlerType(type="mail", concurrency=2), pb.HandlerType(type="video")]
    worker, probe = connect(), connect()
    await worker.hello(3, types=types)
    await probe.hello(100, types=[pb.HandlerType(type="probe")])
    await queue.enqueue_jobs([*new_jobs(4, "mail"), *new_jobs(4, "video")])
    running: list[pb.Assignment] = []

    async def all_that_comes() -> list[pb.Assignment]:
        """What was pushed until everything that the queue knew of was acted on."""
        await queue.enqueue_jobs(new_jobs(1, "probe"))
        [job] = await probe.assignments(1)
        await probe.settle(complete(job))
        await worker.say(heartbeat=pb.Heartbeat(held=held(*running)))
        came: list[pb.Assignment] = []
        while (message := await worker.hear()).WhichOneof("message") != "lease_answers":
            came += message.assignments.assignments
        return came

    running += await worker.assignments(3)
    done = 0
    while running:
        assert await all_that_comes() == []
        kinds = [job.type for job in running]
        assert (len(running), kinds.count("mail") <= 2) == (min(3, 8 - done), True)
        leaving = running[: 1 + done % 2]
        running = running[len(leaving) :]
        await worker.settle(*(complete(job) for job in leaving))
        done += len(leaving)
        running += await worker.assignments(min(3, 8 - done) - len(running))
    assert done == 8


@proves("queue-api.WorkerPlane.rule.6")
async def test_heartbeats_are_answered_per_job(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(2))
    runs, ended = await worker.assignments(2)
    await queue.stop_job(ended.job_id, "", namespace=namespace)
    await worker.say(heartbeat=pb.Heartbeat(held=held(runs, ended)))
    answers = (await worker.hear_of("lease_answers")).lease_answers.answers
    assert {answer.job_id: answer.status for answer in answers} == {
        runs.job_id: pb.LEASE_STATUS_CURRENT,
        ended.job_id: pb.LEASE_STATUS_ENDED,
    }


@proves("queue-api.WorkerPlane.rule.6")
async def test_a_cancel_is_pushed_and_acknowledged(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(1))
    job = (await worker.assignments(1))[0]
    await queue.cancel_jobs([], [job.job_id], namespace=namespace, force=True, reason="enough")
    request = (await worker.hear_of("cancels")).cancels.cancels[0]
    assert (request.job_id, request.token) == (job.job_id, job.token)
    assert (request.force, request.reason) == (True, "enough")
    await worker.say(cancel_receipts=pb.CancelReceipts(received=held(job)))
    ack = (await worker.settle(complete(job, kind=pb.OUTCOME_KIND_ACK_EXECUTING)))[0]
    assert ack.state == JobState.STOPPED


@proves("queue-api.WorkerPlane.rule.6")
@pytest.mark.parametrize("unusual", ["", "\n", "\x7f", "\u00a0", "\u200d", "\u2028", "\ue000"])
async def test_progress_is_stored_whatever_the_job_is_called(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str, unusual: str
) -> None:
    worker = connect()
    await worker.hello()
    [wanted] = new_jobs(1)
    await queue.enqueue_job(replace(wanted, id=f"{unusual}{wanted.id}"))
    job = (await worker.assignments(1))[0]
    report = pb.Progress(job_id=job.job_id, token=job.token, percent=40, message="almost half")
    await worker.say(progress=pb.ProgressBatch(progress=[report]))

    async def seen() -> bool:
        progress = (await stored(queue, job, namespace)).progress
        return progress is not None and (progress.percent, progress.message) == (40, "almost half")

    await until(seen)


@proves("queue-api.WorkerPlane.rule.6")
async def test_a_draining_worker_gets_no_more(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker, other = connect(), connect()
    await worker.hello()
    await worker.say(drain=pb.Drain())

    async def drains() -> bool:
        await queue.ping()
        return any(usage.draining for usage in queue.usage())

    await until(drains)
    await other.hello()
    await queue.enqueue_jobs(new_jobs(5))
    assert len(await other.assignments(5)) == 5


async def test_a_cut_connection_keeps_jobs_the_worker_may_have(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello(3)
    await queue.enqueue_jobs(new_jobs(3))
    kept, finished, forgotten = await worker.assignments(3)
    await worker.channel.close()

    async def gone() -> bool:
        await queue.ping()
        return sessions_open(queue) == 0

    await until(gone)
    assert (await stored(queue, kept, namespace)).state is JobState.RUNNING
    back = connect(session_id=worker.session_id)
    await back.hello(3, held=held(kept, finished))
    answers = (await back.hear_of("lease_answers")).lease_answers.answers
    assert {answer.status for answer in answers} == {pb.LEASE_STATUS_CURRENT}
    again = (await back.assignments(1))[0]
    assert (again.job_id, again.attempt) == (forgotten.job_id, 1)
    assert again.token != forgotten.token
    acks = await back.settle(complete(kept), complete(finished), complete(forgotten))
    assert [ack.state for ack in acks[:2]] == [JobState.COMPLETED] * 2
    assert acks[2].error_code == StaleLease.code


async def test_a_program_that_ends_with_its_job_does_not_get_it_for_ever(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    """It comes back under the same id, and says nothing of what it had."""
    [job] = new_jobs(max_attempts=2)
    await queue.enqueue_job(job)
    session_id = connect().session_id
    attempts = []
    for _ in range(2):
        program = connect(session_id=session_id)
        await program.hello(1, process="")
        attempts += [given.attempt for given in await program.assignments(1)]
        await program.channel.close()
    assert attempts == [1, 2]
    back = connect(session_id=session_id)
    await back.hello(1, process="")
    lost = await queue.get_job(job.id, namespace=namespace)
    assert (lost.attempt, lost.max_attempts) == (2, 2)
    assert lost.state in (JobState.UNKNOWN_RETRY, JobState.DEAD_LETTER)


async def test_the_older_of_two_connections_is_ended(connect: Connect) -> None:
    older = connect()
    await older.hello()
    newer = connect(session_id=older.session_id)
    await newer.hello()
    failure = await older.failure()
    assert failure.code() is grpc.StatusCode.ABORTED
    assert "newer connection" in (failure.details() or "")


@proves("queue-api.WorkerPlane.rule.17")
async def test_a_leaving_server_says_goodbye_and_gives_jobs_back(
    start_plane: Callable[[], Awaitable[Any]],
    queue: QueueService,
    connect: Connect,
    new_jobs: NewJobs,
    namespace: str,
) -> None:
    leaving = await start_plane()
    worker = connect(port=leaving.port)
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(1))
    job = (await worker.assignments(1))[0]
    stopping = asyncio.ensure_future(leaving.server.stop())
    goodbye = (await worker.hear_of("goodbye")).goodbye
    assert goodbye.reconnect
    assert goodbye.reason
    await stopping
    await leaving.queue.close()
    moved = connect(session_id=worker.session_id)
    await moved.hello(held=held(job))
    assert (await moved.settle(complete(job)))[0].state == JobState.COMPLETED


async def test_the_session_is_known_to_the_controller_while_it_lasts(
    queue: QueueService, connect: Connect
) -> None:
    worker = connect()
    types = [pb.HandlerType(type="mail", concurrency=2, timeout=Duration(seconds=3))]
    await worker.hello(7, tags=["eu"], types=types, version="1.2", host="h")

    async def row() -> Any:
        rows = await queue.backend.list_sessions()  # type: ignore[attr-defined]
        return next((r for r in rows if r.session_id == worker.session_id), None)

    session = await row()
    assert (session.capacity, session.tags, session.types) == (7, {"eu"}, {"mail"})
    assert (session.worker_name, session.host, session.replica) == ("w", "h", "r1")
    await worker.channel.close()

    async def closed() -> bool:
        return await row() is None

    await until(closed)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"session_id": ""}, "hello.session_id"),
        ({"capacity": 0}, "hello.capacity"),
        ({"worker_name": ""}, "hello.worker_name"),
        ({"tags": [""]}, "hello.tags"),
        ({"types": [pb.HandlerType(type="")]}, "hello.types[0].type"),
        ({"types": [pb.HandlerType(type="a"), pb.HandlerType(type="a")]}, "hello.types[1].type"),
        ({"held": [pb.HeldJob(job_id="j")]}, "hello.held[0].token"),
        (
            {"types": [pb.HandlerType(type="a", timeout=Duration(seconds=-1))]},
            "hello.types[0].timeout",
        ),
    ],
)
async def test_a_bad_hello_names_the_field(
    connect: Connect, namespace: str, fields: dict[str, Any], named: str
) -> None:
    worker = connect()
    values: dict[str, Any] = {
        "session_id": "s",
        "worker_name": "w",
        "capacity": 1,
        "namespace": namespace,
    }
    await worker.say(hello=pb.Hello(**(values | fields)))
    failure = await worker.failure()
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (failure.details() or "").startswith(f"{named}: ")
    assert (ERROR_CODE_KEY, "INVALID_REQUEST") in tuple(failure.trailing_metadata() or ())


async def test_the_first_message_must_be_a_hello_and_only_the_first(connect: Connect) -> None:
    eager = connect()
    await eager.say(heartbeat=pb.Heartbeat())
    failure = await eager.failure()
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Hello" in (failure.details() or "")
    repeating = connect()
    await repeating.hello()
    await repeating.say(hello=pb.Hello(session_id="again"))
    assert (await repeating.failure()).code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_only_known_workers_are_let_in(connect: Connect, token: str) -> None:
    stranger = connect(token=token)
    failure = await stranger.failure()
    assert failure.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_bytes_that_are_no_message_are_refused(connect: Connect) -> None:
    worker = connect()
    raw = worker.channel.stream_stream("/queueoperator.v1.WorkerPlane/Session")
    call = raw(metadata=(("authorization", f"Bearer {worker.token}"),))
    await call.write(b"\xff\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "WorkerMessage" in (caught.value.details() or "")


async def test_an_outcome_for_a_job_that_ended_is_refused_for_good(
    queue: QueueService, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    worker = connect()
    await worker.hello()
    await queue.enqueue_jobs(new_jobs(1))
    job = (await worker.assignments(1))[0]
    await queue.stop_job(job.job_id, "", namespace=namespace)
    ack = (await worker.settle(complete(job)))[0]
    assert (ack.state, ack.error_code) == ("", InvalidTransition.code)


@proves("queue-api.WorkerPlane.rule.9")
async def test_a_worker_that_is_faster_than_the_store_is_slowed_down_and_loses_nothing(
    queue: QueueService,
    connect: Connect,
    new_jobs: NewJobs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, other = connect(), connect()
    await worker.hello(100, types=[pb.HandlerType(type="mail")])
    await other.hello(types=[pb.HandlerType(type="other")])
    await queue.enqueue_jobs(new_jobs(100))
    jobs = await worker.assignments(100)
    gate, begun, settle = asyncio.Event(), list[int](), JobStream.settle

    async def slow(stream: JobStream, outcomes: Sequence[Outcome]) -> list[Settled]:
        if stream.spec.assignee_id == worker.session_id:
            begun.append(len(outcomes))
            await gate.wait()
        return await settle(stream, outcomes)

    monkeypatch.setattr(JobStream, "settle", slow)
    for job in jobs:
        await worker.say(outcomes=pb.OutcomeBatch(outcomes=[complete(job, result=b"x" * 1000)]))

    async def full() -> bool:
        await queue.ping()
        return len(begun) >= OUTCOME_MESSAGES_IN_FLIGHT

    await until(full)
    # The session beside is served meanwhile, and this one is not read any further.
    await queue.enqueue_jobs(new_jobs(3, type="other"))
    for job in await other.assignments(3):
        assert (await other.settle(complete(job)))[0].state == JobState.COMPLETED
    assert len(begun) == OUTCOME_MESSAGES_IN_FLIGHT
    gate.set()
    acks: list[pb.OutcomeAck] = []
    while len(acks) < 100:
        acks += (await worker.hear_of("outcome_acks")).outcome_acks.acks
    assert {ack.job_id for ack in acks} == {job.job_id for job in jobs}
    assert {ack.state for ack in acks} == {JobState.COMPLETED}


async def test_a_fault_of_the_server_while_it_answers_ends_the_session_and_is_logged(
    queue: QueueService,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(stream: JobStream, held: object) -> object:
        raise ZeroDivisionError("a fault of the test")

    monkeypatch.setattr(JobStream, "heartbeat", broken)
    worker = connect()
    await worker.hello()
    await worker.say(heartbeat=pb.Heartbeat())
    failure = await worker.failure()
    assert failure.code() is grpc.StatusCode.INTERNAL
    assert "ZeroDivisionError: a fault of the test" in caplog.text


async def test_an_answer_that_finds_its_worker_gone_is_no_fault(
    queue: QueueService, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[WorkerCall] = []
    serve = WorkerPlaneServicer.serve

    async def serve_and_tell(plane: WorkerPlaneServicer, call: WorkerCall, who: Identity) -> None:
        calls.append(call)
        await serve(plane, call, who)

    monkeypatch.setattr(WorkerPlaneServicer, "serve", serve_and_tell)
    worker = connect()
    await worker.hello()
    worker.call.cancel()

    async def gone() -> bool:
        await queue.ping()
        return not sessions_open(queue)

    await until(gone)
    with pytest.raises(ConnectionLost):
        await calls[0].write(pb.ServerMessage())
