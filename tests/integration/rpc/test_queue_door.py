"""Who may call the gRPC Queue, and what callers are told when something is wrong."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.waiting import DEADLINE_S

from queue_operator.auth.protocol import Identity
from queue_operator.client.grpc import GrpcQueue, Repeats
from queue_operator.domain import errors
from queue_operator.domain.job import Job
from queue_operator.queue.protocol import Queue
from queue_operator.rpc.queue_calls import METHODS
from queue_operator.rpc.queue_service import REPEAT_AFTER_S
from queue_operator.testing.clauses import proves
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.status import ERROR_CODE_KEY, error_from_status
from queue_operator.wire.v1 import queue_pb2 as pb
from queue_operator.wire.v1 import worker_pb2

NewJobs = Callable[..., list[Job]]
OWN = "own"


class Vouching:
    """Tokens are names."""

    async def authenticate(self, token: str | None) -> Identity:
        if not token:
            raise errors.Unauthenticated("no token")
        return Identity(name=token, namespace=OWN)


class Granting:
    """Allows what was granted, and remembers what it was asked."""

    def __init__(self) -> None:
        self.granted: set[tuple[str, str, str]] = set()
        self.asked: list[tuple[str, str, str]] = []

    async def authorize(self, identity: Identity, verb: str, resource: str, namespace: str) -> None:
        self.asked.append((verb, resource, namespace))
        if (verb, resource, namespace) not in self.granted:
            raise errors.Forbidden(f"{identity.name} may not {verb} {resource} in {namespace!r}")


@pytest.fixture
def granting() -> Granting:
    return Granting()


@pytest.fixture
async def guarded(
    start_plane: Callable[..., Awaitable[Any]], granting: Granting
) -> AsyncIterator[GrpcQueue]:
    plane = await start_plane(Vouching(), granting, batch_jobs=1000, message_bytes=64 * 1024)
    async with GrpcQueue(f"127.0.0.1:{plane.port}", "somebody", timeout_s=DEADLINE_S) as client:
        yield client


def outcome(method: str, *arguments: Any) -> Callable[[Queue, str], Awaitable[Any]]:
    return lambda queue, ns: getattr(queue, method)("j", *arguments, namespace=ns)


JOB_RIGHT = "queuejobs"
STATUS = ("update", "queuejobs/status")
CALLS: dict[str, tuple[tuple[str, str], Callable[[Queue, str], Awaitable[Any]]]] = {
    "EnqueueJob": (
        ("create", JOB_RIGHT),
        lambda queue, ns: queue.enqueue_job(Job(id=uuid.uuid4().hex, type="t", namespace=ns)),
    ),
    "EnqueueJobs": (
        ("create", JOB_RIGHT),
        lambda queue, ns: queue.enqueue_jobs([Job(id=uuid.uuid4().hex, type="t", namespace=ns)]),
    ),
    "CompleteJob": (STATUS, outcome("complete_job", b"")),
    "FailJob": (STATUS, outcome("fail_job", "m")),
    "StopJob": (STATUS, outcome("stop_job", "m")),
    "StopJobWithRetry": (STATUS, outcome("stop_job_with_retry", "m")),
    "MarkJobUnknownStopped": (STATUS, outcome("mark_job_unknown_stopped", "m")),
    "AcknowledgeCancellation": (STATUS, outcome("acknowledge_cancellation", True)),
    "CancelJobs": (
        ("update", JOB_RIGHT),
        lambda queue, ns: queue.cancel_jobs([], ["j"], namespace=ns),
    ),
    "SuspendJobs": (
        ("update", JOB_RIGHT),
        lambda queue, ns: queue.suspend_jobs(["j"], namespace=ns),
    ),
    "GetJob": (("get", JOB_RIGHT), lambda queue, ns: queue.get_job("j", namespace=ns)),
    "GetJobStats": (("list", JOB_RIGHT), lambda queue, ns: queue.get_job_stats([], namespace=ns)),
    "DeleteJobs": (
        ("delete", JOB_RIGHT),
        lambda queue, ns: queue.delete_jobs([], ["j"], namespace=ns),
    ),
    "CleanupExpiredJobs": (
        ("deletecollection", JOB_RIGHT),
        lambda queue, ns: queue.cleanup_expired_jobs(3600, namespace=ns),
    ),
    "ResetRunningJobs": (
        ("deletecollection", JOB_RIGHT),
        lambda queue, ns: queue.reset_running_jobs(namespace=ns),
    ),
    "StreamJobs": (STATUS, lambda queue, ns: _open(queue, ns)),
}


async def _open(queue: Queue, namespace: str) -> None:
    async with queue.stream_jobs("me", [], 1, namespace=namespace):
        pass


async def attempt(call: Awaitable[Any]) -> errors.QueueError | None:
    try:
        await call
    except errors.QueueError as error:
        return error
    return None


@proves("queue-api.WorkerPlane.rule.1")
def test_every_call_is_in_the_list() -> None:
    served = set(METHODS) | {"StreamJobs"}
    # For all namespaces; used by streams; shared by submissions, which have tests of their own.
    apart = {"MarkWorkerUnresponsive", "ReturnJobs", "EnqueueEach"}
    assert served == set(CALLS) | apart
    own = {method.name for method in pb.DESCRIPTOR.services_by_name["Queue"].methods}
    # What follows jobs has a test of its own.
    assert own == served | {"EndStream", "WatchJobs"}


@proves("queue-api.WorkerPlane.rule.15")
@pytest.mark.parametrize("name", CALLS)
async def test_each_call_asks_for_its_right_and_does_nothing_without(
    guarded: GrpcQueue, granting: Granting, namespace: str, name: str
) -> None:
    (verb, resource), call = CALLS[name]
    refused = await attempt(call(guarded, namespace))
    assert isinstance(refused, errors.Forbidden)
    assert str(refused) == f"somebody may not {verb} {resource} in {namespace!r}"
    assert granting.asked == [(verb, resource, namespace)]
    granting.granted.add((verb, resource, namespace))
    allowed = await attempt(call(guarded, namespace))
    assert not isinstance(allowed, errors.Forbidden)


async def test_calls_for_all_namespaces_need_a_right_for_all(
    guarded: GrpcQueue, granting: Granting
) -> None:
    granting.granted = {
        ("deletecollection", JOB_RIGHT, OWN),
        ("delete", "queueworkers", OWN),
    }
    calls: tuple[Callable[[], Awaitable[Any]], ...] = (
        guarded.reset_running_jobs,
        lambda: guarded.cleanup_expired_jobs(3600),
        lambda: guarded.mark_worker_unresponsive("nobody"),
    )
    for call in calls:
        assert isinstance(await attempt(call()), errors.Forbidden)
    granting.granted = {("deletecollection", JOB_RIGHT, ""), ("delete", "queueworkers", "")}
    for call in calls:
        assert await attempt(call()) is None


async def test_a_batch_is_asked_about_in_each_of_its_namespaces(
    guarded: GrpcQueue, granting: Granting
) -> None:
    jobs = [Job(id=uuid.uuid4().hex, type="t", namespace=ns) for ns in ("one", "two")]
    granting.granted = {("create", JOB_RIGHT, "one")}
    with pytest.raises(errors.Forbidden, match="'two'"):
        await guarded.enqueue_jobs(jobs)
    granting.granted.add(("get", JOB_RIGHT, "one"))
    with pytest.raises(errors.JobNotFound):
        await guarded.get_job(jobs[0].id, namespace="one")


async def test_a_shared_call_is_asked_about_in_each_of_its_namespaces(
    guarded: GrpcQueue, granting: Granting
) -> None:
    """Our client makes none of more than one; another might."""
    jobs = [
        convert.job_to_wire(Job(id=uuid.uuid4().hex, type="t", namespace=ns))
        for ns in ("one", "two")
    ]
    granting.granted = {("create", JOB_RIGHT, "one"), ("get", JOB_RIGHT, "one")}
    async with guarded._calls.line.call() as stub:
        with pytest.raises(grpc.aio.AioRpcError, match="'two'"):
            await stub.EnqueueEach(
                pb.EnqueueEachRequest(jobs=jobs), metadata=(("authorization", "Bearer somebody"),)
            )
    with pytest.raises(errors.JobNotFound):
        await guarded.get_job(jobs[0].id, namespace="one")


async def test_a_shared_call_holds_so_many_jobs(guarded: GrpcQueue, granting: Granting) -> None:
    granting.granted = {("create", JOB_RIGHT, OWN)}
    jobs = [pb.Job(id=str(n), type="t") for n in range(1001)]
    async with guarded._calls.line.call() as stub:
        with pytest.raises(grpc.aio.AioRpcError, match="has 1001 entries; the limit is 1000"):
            await stub.EnqueueEach(
                pb.EnqueueEachRequest(jobs=jobs), metadata=(("authorization", "Bearer somebody"),)
            )


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("EnqueueJobs", pb.EnqueueJobsRequest(jobs=[pb.Job()] * 10_001), "jobs"),
        (
            "EnqueueJobs",
            pb.EnqueueJobsRequest(
                jobs=[*[pb.Job(depends_on=["p"] * 1000)] * 10, pb.Job(depends_on=["p"])]
            ),
            "depends_on of all jobs",
        ),
        ("CancelJobs", pb.CancelJobsRequest(job_ids=["j"] * 10_001), "job_ids"),
        ("SuspendJobs", pb.SuspendJobsRequest(job_ids=["j"] * 10_001), "job_ids"),
        ("DeleteJobs", pb.DeleteJobsRequest(job_ids=["j"] * 10_001), "job_ids"),
        ("ReturnJobs", pb.ReturnJobsRequest(jobs=[worker_pb2.HeldJob()] * 10_001), "jobs"),
    ],
)
async def test_a_call_has_only_so_many_entries(
    client: GrpcQueue, metadata: Any, namespace: str, method: str, request_: Any, field: str
) -> None:
    async with client._calls.line.call() as stub:
        error = await failure(getattr(stub, method)(request_, metadata=metadata(namespace)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == f"{field}: has 10001 entries; the limit is 10000: send less"


async def test_a_call_without_a_namespace_is_for_the_callers_own(
    guarded: GrpcQueue, granting: Granting
) -> None:
    async with guarded._calls.line.call() as stub:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetJob(
                pb.GetJobRequest(job_id="j"), metadata=(("authorization", "Bearer somebody"),)
            )
    assert granting.asked == [("get", JOB_RIGHT, OWN)]


@pytest.mark.parametrize("namespace", ["größe", " padded ", "x" * 255])
async def test_any_namespace_can_be_named(
    guarded: GrpcQueue, granting: Granting, namespace: str
) -> None:
    granting.granted = {("list", JOB_RIGHT, namespace)}
    assert (await guarded.get_job_stats([], namespace=namespace)).total_jobs == 0


@pytest.mark.parametrize("token", ["", "wrong", "odd\ntoken", "größe"])
async def test_nobody_gets_in_without_a_token_that_somebody_vouches_for(
    plane: Any, token: str, namespace: str
) -> None:
    async with GrpcQueue(f"127.0.0.1:{plane.port}", token) as client:
        with pytest.raises(errors.Unauthenticated):
            await client.get_job_stats([], namespace=namespace)
        with pytest.raises(errors.Unauthenticated):
            await anext(client.stream_jobs("me", [], 1, namespace=namespace))


async def test_a_token_is_asked_for_anew_with_each_call(plane: Any, namespace: str) -> None:
    tokens = iter(["wrong", plane.token])
    async with GrpcQueue(f"127.0.0.1:{plane.port}", lambda: next(tokens)) as client:
        with pytest.raises(errors.Unauthenticated):
            await client.get_job_stats([], namespace=namespace)
        await client.get_job_stats([], namespace=namespace)


# Errors


@proves("queue-api.WorkerPlane.rule.3", "external-api.APIError.expect.1")
async def test_errors_of_the_queue_arrive_as_they_are(
    client: GrpcQueue, namespace: str, new_jobs: NewJobs
) -> None:
    [job, other] = new_jobs(2)
    await client.enqueue_job(job)
    found = await attempt(client.enqueue_jobs([other, job]))
    assert isinstance(found, errors.DuplicateJob)
    assert (found.indexes, found.job_ids) == ((1,), (job.id,))
    found = await attempt(client.get_job("nobody", namespace=namespace))
    assert isinstance(found, errors.JobNotFound)
    assert (found.job_id, found.namespace) == ("nobody", namespace)
    found = await attempt(client.complete_job(job.id, b"", namespace=namespace))
    assert isinstance(found, errors.InvalidTransition)
    assert (found.job_id, found.state, found.event) == (job.id, "INITIAL_PENDING", "COMPLETE")
    found = await attempt(client.complete_job(job.id, b"", namespace=namespace, token="old"))
    assert isinstance(found, errors.StaleLease)
    [keyed] = new_jobs(idempotency_key="k")
    await client.enqueue_job(keyed)
    found = await attempt(client.enqueue_jobs([*new_jobs(idempotency_key="k", payload=b"other")]))
    assert isinstance(found, errors.KeyConflict)
    assert (found.key, found.job_id) == ("k", keyed.id)
    assert found.field == "jobs[0].idempotency_key"
    others = new_jobs(300, idempotency_key="k", payload=b"other")
    found = await attempt(client.enqueue_jobs(others))
    assert isinstance(found, errors.KeyConflict)
    assert (found.indexes, found.job_ids) == (tuple(range(300)), ())
    assert "(and 299 more)" in str(found)
    assert [one.job_id for one in found.findings] == [keyed.id] * len(found.findings)
    assert len(found.findings) > 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": ""}, "id"),
        ({"type": "x" * 256}, "type"),
        ({"tags": frozenset({""})}, "tags"),
        ({"tags": {"a"}}, "tags"),
        ({"payload": "text"}, "payload"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"max_attempts": 101}, "max_attempts"),
        ({"correlation_id": "\ud800"}, "correlation_id"),
        ({"type": "nul\x00"}, "type"),
        ({"attempt": 1}, "attempt"),
    ],
)
async def test_a_bad_job_is_refused_under_the_name_of_the_field(
    client: GrpcQueue, new_jobs: NewJobs, fields: dict[str, Any], field: str
) -> None:
    [good] = new_jobs()
    values: dict[str, Any] = {"id": uuid.uuid4().hex, "type": "t", "namespace": good.namespace}
    bad = Job(**(values | fields))
    found = await attempt(client.enqueue_job(bad))
    assert isinstance(found, errors.InvalidArgument)
    assert found.field == field
    found = await attempt(client.enqueue_jobs([good, bad]))
    assert isinstance(found, errors.InvalidArgument)
    assert found.field == f"jobs[1].{field}"
    found = await attempt(client.get_job(good.id, namespace=good.namespace))
    assert isinstance(found, errors.JobNotFound)


async def test_a_batch_of_many_taken_ids_names_every_position(
    roomy_plane: Any, new_jobs: NewJobs
) -> None:
    jobs = new_jobs(9000)
    address = f"127.0.0.1:{roomy_plane.port}"
    async with GrpcQueue(address, roomy_plane.token, timeout_s=DEADLINE_S) as client:
        await client.enqueue_jobs(jobs)
        found = await attempt(client.enqueue_jobs(jobs))
    assert isinstance(found, errors.DuplicateJob)
    assert found.indexes == tuple(range(9000))
    assert found.job_ids == tuple(job.id for job in jobs)


async def test_foreign_messages_are_refused_by_name(
    client: GrpcQueue, metadata: Any, namespace: str
) -> None:
    async with client._calls.line.call() as stub:
        sent: list[tuple[Callable[..., Any], Any, str]] = [
            (stub.EnqueueJob, pb.EnqueueJobRequest(job=pb.Job(id="j", type="t", priority="URGENT")),
             "priority"),
            (stub.CleanupExpiredJobs, pb.CleanupExpiredJobsRequest(ttl=Duration(seconds=-1)),
             "ttl_s"),
            (stub.EndStream, pb.EndStreamRequest(stream_id="unknown"), "stream_id"),
        ]  # fmt: skip
        for call, request, field in sent:
            error = await failure(call(request, metadata=metadata(namespace)))
            found = error_from_status(
                error.code(), error.details() or "", tuple(error.trailing_metadata() or ())
            )
            assert isinstance(found, errors.InvalidArgument)
            assert found.field == field


async def failure(call: Awaitable[Any]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@pytest.mark.parametrize("method", ["GetJob", "EnqueueJobs", "StreamJobs"])
async def test_bytes_that_are_no_message_are_refused(
    plane: Any, metadata: Any, namespace: str, method: str
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{plane.port}") as channel:
        path = f"/queueoperator.v1.Queue/{method}"
        unary: Any = channel.unary_unary
        stream: Any = channel.unary_stream
        for data in (b"\xff\xff\xff", b"x" * 70_000):
            if method == "StreamJobs":
                error = await failure(stream(path)(data, metadata=metadata(namespace)).read())
            else:
                error = await failure(unary(path)(data, metadata=metadata(namespace)))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            wanted = "INVALID_REQUEST" if len(data) == 3 else "PAYLOAD_TOO_LARGE"
            assert (ERROR_CODE_KEY, wanted) in tuple(error.trailing_metadata() or ())
            stranger = await failure(unary("/queueoperator.v1.Queue/GetJob")(data))
            assert stranger.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_faults_of_the_server_are_told_without_their_text(
    plane: Any, client: GrpcQueue, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*arguments: object, **named: object) -> Collection[str]:
        raise RuntimeError("secret-host:5432")

    async def away(*arguments: object, **named: object) -> Collection[str]:
        raise errors.MissingPrivilege("grant SELECT to secret_role")

    monkeypatch.setattr(plane.queue, "cancel_jobs", broken)
    found = await attempt(client.cancel_jobs([], ["j"], namespace=namespace))
    assert type(found) is errors.QueueError
    assert "secret" not in str(found)
    monkeypatch.setattr(plane.queue, "cancel_jobs", away)
    found = await attempt(client.cancel_jobs([], ["j"], namespace=namespace))
    assert type(found) is errors.Unavailable
    assert "secret" not in str(found)


# Too many


class Waiting:
    """Decides when it may."""

    def __init__(self, inner: Granting) -> None:
        self.inner = inner
        self.asked_one = asyncio.Event()
        self.may = asyncio.Event()

    async def authorize(self, identity: Identity, verb: str, resource: str, namespace: str) -> None:
        self.asked_one.set()
        await self.may.wait()
        await self.inner.authorize(identity, verb, resource, namespace)


async def test_calls_above_the_limit_are_refused_and_repeated_and_streams_do_not_count(
    start_plane: Callable[..., Awaitable[Any]], granting: Granting, namespace: str
) -> None:
    granting.granted = {("update", "queuejobs/status", namespace), ("list", JOB_RIGHT, namespace)}
    waiting = Waiting(granting)
    plane = await start_plane(Vouching(), waiting, calls_in_flight=1)
    address, pauses = f"127.0.0.1:{plane.port}", list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        waiting.may.set()
        await first

    waiting.may.set()
    once = GrpcQueue(address, "somebody", repeats=Repeats(attempts=1), timeout_s=DEADLINE_S)
    again = GrpcQueue(address, "somebody", sleep=pause, timeout_s=DEADLINE_S)
    async with once, again, once.stream_jobs("me", [], 1, namespace=namespace):
        waiting.asked_one.clear()
        waiting.may.clear()
        first = asyncio.ensure_future(once.get_job_stats([], namespace=namespace))
        await waiting.asked_one.wait()
        with pytest.raises(errors.QuotaExceeded, match="1 of 1 used") as caught:
            await once.get_job_stats([], namespace=namespace)
        assert caught.value.retryable
        # What is not safe to repeat when it may have been done is repeated too: this was not.
        granting.granted.add(("delete", JOB_RIGHT, namespace))
        assert await again.delete_jobs([], ["nobody"], namespace=namespace) == 0
        assert len(pauses) == 1
        assert pauses[0] >= REPEAT_AFTER_S
