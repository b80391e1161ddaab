"""Single submissions that share calls, against a server that answers when the test lets it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from queue_operator.client.grpc import GrpcQueue, Repeats
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    PayloadTooLarge,
    QueueError,
    Unavailable,
)
from queue_operator.domain.job import Job
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.status import error_to_wire, status_code, trailers
from queue_operator.wire.v1 import queue_pb2 as pb


@dataclass
class Desk(grpc.GenericRpcHandler):
    """Answers submissions while `open` is set; `errors` are of single jobs, by id, `failures` of
    the next calls that are shared.
    """

    open: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[tuple[str, list[str]]] = field(default_factory=list)
    errors: dict[str, QueueError] = field(default_factory=dict)
    failures: list[QueueError] = field(default_factory=list)
    arrived: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(getattr(self, details.method.split("/")[-1]))

    async def EnqueueJob(self, data: bytes, context: Any) -> bytes:
        job = pb.EnqueueJobRequest.FromString(data).job
        await self._admit("EnqueueJob", [job], context)
        if error := self.errors.get(job.id):
            await context.abort(status_code(error), str(error), trailers(error))
        return pb.EnqueueJobResponse(job_id=job.id).SerializeToString()

    async def EnqueueEach(self, data: bytes, context: Any) -> bytes:
        jobs = list(pb.EnqueueEachRequest.FromString(data).jobs)
        await self._admit("EnqueueEach", jobs, context)
        return pb.EnqueueEachResponse(enqueued=map(self._enqueued, jobs)).SerializeToString()

    async def GetJob(self, data: bytes, context: Any) -> bytes:
        stored = a_job(pb.GetJobRequest.FromString(data).job_id)
        return pb.GetJobResponse(job=convert.job_to_wire(stored)).SerializeToString()

    async def _admit(self, method: str, jobs: list[pb.Job], context: Any) -> None:
        self.calls.append((method, [job.id for job in jobs]))
        self.arrived.release()
        await self.open.wait()
        if self.failures and method == "EnqueueEach":
            error = self.failures.pop(0)
            await context.abort(status_code(error), str(error), trailers(error))

    def _enqueued(self, job: pb.Job) -> pb.Enqueued:
        if error := self.errors.get(job.id):
            return pb.Enqueued(job_id=job.id, error=error_to_wire(error))
        return pb.Enqueued(job_id=job.id)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[GrpcQueue]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((desk,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    repeats = Repeats(attempts=2, initial_delay_s=0.0)
    async with GrpcQueue(f"127.0.0.1:{port}", repeats=repeats, timeout_s=20) as client:
        yield client
    await server.stop(None)


def a_job(name: str, **fields: Any) -> Job:
    return Job(id=name, type="t", **fields)


def submit(client: GrpcQueue, *jobs: Job) -> "list[asyncio.Task[str]]":
    return [asyncio.create_task(client.enqueue_job(job)) for job in jobs]


async def busy(client: GrpcQueue, desk: Desk) -> "list[asyncio.Task[str]]":
    """Two calls are under way, which is all that a client makes at a time."""
    under_way = submit(client, a_job("first"), a_job("second"))
    for _ in under_way:
        await desk.arrived.acquire()
    return under_way


async def ended(tasks: "list[asyncio.Task[str]]") -> list[str | BaseException]:
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_comes_alone_is_sent_at_once_and_alone(client: GrpcQueue, desk: Desk) -> None:
    desk.open.set()
    assert [await client.enqueue_job(a_job(name)) for name in "ab"] == ["a", "b"]
    assert desk.calls == [("EnqueueJob", ["a"]), ("EnqueueJob", ["b"])]


async def test_who_comes_meanwhile_goes_with_the_next_call(client: GrpcQueue, desk: Desk) -> None:
    tasks = await busy(client, desk)
    tasks += submit(client, *map(a_job, "abc"))
    await asyncio.sleep(0)
    assert len(desk.calls) == 2
    desk.open.set()
    assert await ended(tasks) == ["first", "second", "a", "b", "c"]
    assert desk.calls[2:] == [("EnqueueEach", ["a", "b", "c"])]


async def test_each_is_told_what_is_wrong_with_its_own(client: GrpcQueue, desk: Desk) -> None:
    desk.errors = {
        "b": DuplicateJob(("b",)),
        "c": InvalidArgument("type", "is too long"),
        "second": InvalidArgument("type", "is too long"),
    }
    tasks = await busy(client, desk)
    tasks += submit(client, *map(a_job, "abcd"))
    desk.open.set()
    first, second, a, b, c, d = await ended(tasks)
    assert (first, a, d) == ("first", "a", "d")
    assert isinstance(b, DuplicateJob)
    assert b.job_ids == ("b",)
    for error in (second, c):
        assert isinstance(error, InvalidArgument)
        assert (error.field, error.reason) == ("type", "is too long")


async def test_namespaces_do_not_share_a_call(client: GrpcQueue, desk: Desk) -> None:
    """A caller's right to one of them is nothing to the jobs of the other."""
    tasks = await busy(client, desk)
    spaces = ("blue", "red", "blue", "red")
    tasks += submit(
        client, *(a_job(f"{space}-{n}", namespace=space) for n, space in enumerate(spaces))
    )
    desk.open.set()
    await ended(tasks)
    assert sorted(desk.calls[2:]) == [
        ("EnqueueEach", ["blue-0", "blue-2"]),
        ("EnqueueEach", ["red-1", "red-3"]),
    ]


async def test_a_call_holds_so_many_bytes(client: GrpcQueue, desk: Desk) -> None:
    tasks = await busy(client, desk)
    large = bytes(600 * 1024)
    tasks += submit(client, *(a_job(name, payload=large) for name in "abc"), a_job("d"))
    desk.open.set()
    assert (await ended(tasks))[2:] == ["a", "b", "c", "d"]
    assert sorted(desk.calls[2:]) == [
        ("EnqueueEach", ["c", "d"]),
        ("EnqueueJob", ["a"]),
        ("EnqueueJob", ["b"]),
    ]


async def test_jobs_that_are_too_large_together_are_sent_apart(
    client: GrpcQueue, desk: Desk
) -> None:
    tasks = await busy(client, desk)
    tasks += submit(client, *map(a_job, "abc"))
    desk.failures = [PayloadTooLarge("message", 100, 90)]
    desk.open.set()
    assert (await ended(tasks))[2:] == ["a", "b", "c"]
    assert desk.calls[2:] == [
        ("EnqueueEach", ["a", "b", "c"]),
        ("EnqueueJob", ["a"]),
        ("EnqueueEach", ["b", "c"]),
    ]


async def test_who_has_gone_is_not_sent_and_stops_nobody(client: GrpcQueue, desk: Desk) -> None:
    tasks = await busy(client, desk)
    gone, stays = submit(client, a_job("gone"), a_job("stays"))
    await asyncio.sleep(0)
    gone.cancel()
    tasks[0].cancel()
    await asyncio.wait([gone, tasks[0]])
    desk.open.set()
    assert await stays == "stays"
    assert await tasks[1] == "second"
    assert desk.calls[2:] == [("EnqueueJob", ["stays"])]


async def test_a_repeat_knows_what_an_earlier_try_has_stored(client: GrpcQueue, desk: Desk) -> None:
    """The store has `a` as it was submitted, and another job under the id of `b`."""
    tasks = await busy(client, desk)
    tasks += submit(client, a_job("a"), a_job("b", payload=b"other"))
    desk.failures = [Unavailable("cut")]
    desk.errors = {name: DuplicateJob((name,)) for name in "ab"}
    desk.open.set()
    a, b = (await ended(tasks))[2:]
    assert a == "a"
    assert isinstance(b, DuplicateJob)
    assert desk.calls[2:] == [("EnqueueEach", ["a", "b"])] * 2


async def test_a_failed_call_is_the_failure_of_all_in_it(client: GrpcQueue, desk: Desk) -> None:
    tasks = await busy(client, desk)
    tasks += submit(client, *map(a_job, "ab"))
    desk.failures = [InvalidArgument("namespace", "is none")]
    desk.open.set()
    first, second, *failed = await ended(tasks)
    assert (first, second) == ("first", "second")
    for error in failed:
        assert isinstance(error, InvalidArgument)
    # Raised by each caller, one error of all would gather the stacks of all.
    assert len({id(error) for error in failed}) == len(failed)


async def test_a_client_that_is_closed_leaves_nobody_waiting(desk: Desk, client: GrpcQueue) -> None:
    tasks = await busy(client, desk)
    tasks += submit(client, *map(a_job, "ab"))
    await asyncio.sleep(0)
    await client.close()
    for error in await ended(tasks):
        assert isinstance(error, Unavailable)
    with pytest.raises(Unavailable):
        await client.enqueue_job(a_job("late"))


async def test_a_token_that_cannot_be_read_is_told_to_each(desk: Desk) -> None:
    def unreadable() -> str:
        raise FileNotFoundError("no token")

    async with GrpcQueue("127.0.0.1:1", unreadable) as client:
        for error in await ended(submit(client, *map(a_job, "abcd"))):
            assert isinstance(error, FileNotFoundError)
