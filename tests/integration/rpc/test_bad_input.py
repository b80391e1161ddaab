"""What a worker may get wrong: each has its answer, and no other session notices."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from tests.integration.rpc.test_admission import Granting

from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import Unauthenticated
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.queue.service import QueueService
from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as pb

NewJobs = Callable[..., list[Job]]
Connect = Callable[..., Any]
Check = Callable[[], Awaitable[None]]


class Pods:
    """Vouches for the tokens `pod:NAME`, each of a pod of that name."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    async def authenticate(self, token: str | None) -> Identity:
        kind, _, name = (token or "").partition(":")
        if kind == "expired":
            raise Unauthenticated("the token has expired")
        if kind != "pod":
            raise Unauthenticated("send a token")
        return Identity(
            name="sa", namespace=self._namespace, pod_name=name, pod_uid=f"uid of {name}"
        )


def outcome(job_id: str, token: str, kind: Any = pb.OUTCOME_KIND_COMPLETE) -> pb.Outcome:
    return pb.Outcome(job_id=job_id, token=token, kind=kind)


@pytest.fixture
async def pods(start_plane: Callable[..., Awaitable[Any]], namespace: str) -> Any:
    granting = Granting(("connect", "queueworkers", namespace))
    return await start_plane(Pods(namespace), granting)


@pytest.fixture
async def sound(pods: Any, connect: Connect, new_jobs: NewJobs) -> AsyncIterator[Check]:
    """Another worker's session beside, and whether it goes on; that is looked at again when the
    test is over.
    """
    worker = connect(port=pods.port, token="pod:sound")
    await worker.hello(types=[pb.HandlerType(type="sound")])

    async def check() -> None:
        await pods.queue.enqueue_jobs(new_jobs(1, type="sound"))
        [job] = await worker.assignments(1)
        [ack] = await worker.settle(outcome(job.job_id, job.token))
        assert ack.state == JobState.COMPLETED

    await check()
    yield check
    await check()


@pytest.fixture
async def worker(pods: Any, connect: Connect) -> Any:
    worker = connect(port=pods.port, token="pod:worker-0")
    await worker.hello(types=[pb.HandlerType(type="mail")])
    return worker


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(
    ("token", "told"), [("", "send a token"), ("expired:x", "expired"), ("forged", "send a token")]
)
async def test_a_session_without_a_good_token(
    pods: Any, connect: Connect, token: str, told: str
) -> None:
    stranger = connect(port=pods.port, token=token)
    failure = await stranger.failure()
    assert failure.code() is grpc.StatusCode.UNAUTHENTICATED
    assert told in (failure.details() or "")
    assert len(pods.queue.usage()) == 1


@pytest.mark.usefixtures("sound")
async def test_a_token_of_another_pod_cannot_take_over_a_session(
    pods: Any, connect: Connect, worker: Any, new_jobs: NewJobs
) -> None:
    thief = connect(port=pods.port, token="pod:thief", session_id=worker.session_id)
    await thief.say(hello=pb.Hello(session_id=worker.session_id, capacity=5))
    failure = await thief.failure()
    assert failure.code() is grpc.StatusCode.PERMISSION_DENIED
    await pods.queue.enqueue_jobs(new_jobs(1))
    [job] = await worker.assignments(1)
    [ack] = await worker.settle(outcome(job.job_id, job.token))
    assert ack.state == JobState.COMPLETED


@pytest.mark.usefixtures("sound")
async def test_what_a_hello_says_of_another_pod_does_not_count(pods: Any, connect: Connect) -> None:
    liar = connect(port=pods.port, token="pod:liar")
    welcome = await liar.hello(worker_name="sound", namespace="elsewhere", pod_uid="uid of sound")
    assert (welcome.worker_name, welcome.namespace) == ("liar", liar.namespace)


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize("capacity", [0, 1_000_001, 1_000_000_000, 2**32 - 1])
async def test_a_capacity_out_of_bounds_is_refused_by_name(
    pods: Any, connect: Connect, capacity: int
) -> None:
    worker = connect(port=pods.port, token="pod:greedy")
    await worker.say(hello=pb.Hello(session_id=uuid.uuid4().hex, capacity=capacity))
    failure = await worker.failure()
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (failure.details() or "").startswith("hello.capacity: must be a whole number from 1")


@proves("queue-api.WorkerPlane.rule.16")
async def test_an_outcome_for_a_job_that_was_never_assigned(
    pods: Any, worker: Any, new_jobs: NewJobs, namespace: str, sound: Check
) -> None:
    queue: QueueService = pods.queue
    [waiting] = new_jobs(type="nobody-handles-this")
    await queue.enqueue_job(waiting)
    guess = str(uuid.uuid4())
    acks = await worker.settle(
        outcome(waiting.id, guess),
        outcome(waiting.id, "no token"),
        outcome(waiting.id, ""),
        outcome("nobody", guess),
        outcome("", "t"),
    )
    assert {ack.state for ack in acks} == {""}
    assert {(ack.job_id, ack.token): ack.error_code for ack in acks} == {
        (waiting.id, guess): "STALE_LEASE",
        (waiting.id, "no token"): "STALE_LEASE",
        (waiting.id, ""): "INVALID_REQUEST",
        ("nobody", guess): "NOT_FOUND",
        ("", "t"): "INVALID_REQUEST",
    }
    assert (await queue.get_job(waiting.id, namespace=namespace)).attempt == 0
    await sound()


async def test_an_outcome_for_a_job_of_another_session_under_a_guessed_token(
    pods: Any, worker: Any, connect: Connect, new_jobs: NewJobs, namespace: str, sound: Check
) -> None:
    queue: QueueService = pods.queue
    other = connect(port=pods.port, token="pod:worker-1")
    await other.hello(types=[pb.HandlerType(type="other")])
    await queue.enqueue_jobs(new_jobs(1, type="other"))
    [job] = await other.assignments(1)
    [ack] = await worker.settle(outcome(job.job_id, str(uuid.uuid4())))
    assert ack.error_code == "STALE_LEASE"
    assert (await queue.get_job(job.job_id, namespace=namespace)).state is JobState.RUNNING
    [ack] = await other.settle(outcome(job.job_id, job.token))
    assert ack.state == JobState.COMPLETED
    await sound()


@pytest.mark.usefixtures("sound")
async def test_a_duplicate_outcome_is_answered_as_the_first_one_was(
    pods: Any, worker: Any, new_jobs: NewJobs, namespace: str
) -> None:
    await pods.queue.enqueue_jobs(new_jobs(1))
    [job] = await worker.assignments(1)
    done = outcome(job.job_id, job.token)
    acks = await worker.settle(done, done)
    acks += await worker.settle(done)
    assert [(ack.state, ack.error_code) for ack in acks] == [(JobState.COMPLETED, "")] * 3
    # Another outcome under the same token is no repeat.
    [ack] = await worker.settle(outcome(job.job_id, job.token, pb.OUTCOME_KIND_FAIL))
    assert (ack.state, ack.error_code) == ("", "INVALID_TRANSITION")
    stored = await pods.queue.get_job(job.job_id, namespace=namespace)
    assert (stored.state, stored.attempt) == (JobState.COMPLETED, 1)


@pytest.mark.usefixtures("sound")
async def test_an_outcome_after_the_lease_was_lost(
    pods: Any, worker: Any, connect: Connect, new_jobs: NewJobs, namespace: str
) -> None:
    """It counts while nobody has claimed the job since, and not afterwards."""
    queue: QueueService = pods.queue
    await queue.enqueue_jobs(new_jobs(2))
    first, second = await worker.assignments(2)
    await worker.say(drain=pb.Drain())
    await worker.say(heartbeat=pb.Heartbeat(held=[
        pb.HeldJob(job_id=job.job_id, token=job.token) for job in (first, second)
    ]))  # fmt: skip
    await worker.hear_of("lease_answers")
    await queue.mark_worker_unresponsive(worker.session_id)
    lost = await queue.get_job(first.job_id, namespace=namespace)
    assert lost.state is JobState.UNKNOWN_RETRY
    [ack] = await worker.settle(outcome(first.job_id, first.token))
    assert (ack.state, ack.error_code) == (JobState.COMPLETED, "")
    other = connect(port=pods.port, token="pod:worker-1")
    await other.hello(types=[pb.HandlerType(type="mail")])
    [again] = await other.assignments(1)
    assert (again.job_id, again.attempt) == (second.job_id, 1)
    [ack] = await worker.settle(outcome(second.job_id, second.token))
    assert (ack.state, ack.error_code) == ("", "STALE_LEASE")
    [ack] = await other.settle(outcome(again.job_id, again.token))
    assert ack.state == JobState.COMPLETED


@pytest.mark.usefixtures("sound")
async def test_bytes_that_are_no_message_end_their_own_session_only(pods: Any, worker: Any) -> None:
    raw: Any = worker.channel.stream_stream
    call = raw("/queueoperator.v1.WorkerPlane/Session")(
        metadata=(("authorization", "Bearer pod:odd"),)
    )
    await call.write(b"\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
