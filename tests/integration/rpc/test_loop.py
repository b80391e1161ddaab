"""No call, and no message of a session, holds the event loop, however large it is, or wrong."""

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from tests.integration.rpc.conftest import TOKEN, Plane
from tests.loops import MOST_HELD_S, LoopWatch

from queue_operator.domain.limits import BATCH_JOBS
from queue_operator.rpc.queue_calls import METHODS
from queue_operator.wire.v1 import queue_pb2 as pb
from queue_operator.wire.v1 import worker_pb2 as wire

MIB: Final = 1024 * 1024
MOST_BYTES: Final = 16 * MIB
JSON: Final = "application/json"
ZEROS: Final = b"[" + b",".join([b"0"] * (MIB // 2 - 8)) + b"]"
"""A mebibyte of JSON in as many values as there can be."""
IDS: Final = [f"{n:0255}" for n in range(10_000)]
DEADLINE_S: Final = 250.0
"""Of a client, however busy the machine is."""

Make = Callable[[], "Message | bytes"]


def job(n: int = 0, **fields: Any) -> pb.Job:
    return pb.Job(**{"id": f"{n}-{uuid.uuid4().hex}", "type": "t", **fields})


def waiting(number: int, parents: Callable[[int], list[int]]) -> list[pb.Job]:
    prefix = uuid.uuid4().hex
    return [
        pb.Job(
            id=f"{prefix}-{n}", type="t", depends_on=[f"{prefix}-{parent}" for parent in parents(n)]
        )
        for n in range(number)
    ]


def large(n: int) -> pb.Job:
    return job(n, payload=ZEROS, content_type=JSON, idempotency_key=uuid.uuid4().hex)


def empty(field: int) -> bytes:
    """As many empty entries of a field as fit into a message."""
    return bytes([field << 3 | 2, 0]) * (MOST_BYTES // 2)


CALLS: Final[dict[str, dict[str, Make]]] = {
    "EnqueueJob": {
        "largest": lambda: pb.EnqueueJobRequest(job=large(0)),
        "many tags": lambda: pb.EnqueueJobRequest(job=job(tags=["t"] * 2 * MIB)),
        "many parents": lambda: pb.EnqueueJobRequest(job=job(depends_on=["p"] * 2 * MIB)),
        "many delays": lambda: pb.EnqueueJobRequest(
            job=job(backoff=pb.Backoff(strategy="CUSTOM", delays=[Duration()] * MIB))
        ),
    },
    "EnqueueJobs": {
        "most jobs": lambda: pb.EnqueueJobsRequest(jobs=[job(n) for n in range(1000)]),
        "most bytes": lambda: pb.EnqueueJobsRequest(jobs=[large(n) for n in range(15)]),
        "rings": lambda: pb.EnqueueJobsRequest(jobs=waiting(1000, lambda n: [n ^ 1])),
        "ten thousand in rings": lambda: pb.EnqueueJobsRequest(
            jobs=waiting(10_000, lambda n: [n ^ 1])
        ),
        "most dependencies": lambda: pb.EnqueueJobsRequest(
            jobs=waiting(1000, lambda n: list(range(max(n - 10, 0), n)))
        ),
        "nothing, eight million times": lambda: empty(1),
    },
    "EnqueueEach": {
        "most jobs": lambda: pb.EnqueueEachRequest(jobs=[job(n) for n in range(1000)]),
        "most bytes": lambda: pb.EnqueueEachRequest(jobs=[large(n) for n in range(15)]),
        "nothing, eight million times": lambda: empty(1),
    },
    "ReturnJobs": {
        "most jobs": lambda: pb.ReturnJobsRequest(
            jobs=[wire.HeldJob(job_id=one, token="t") for one in IDS]
        ),
        "nothing, eight million times": lambda: empty(1),
    },
    "CompleteJob": {
        "largest": lambda: pb.CompleteJobRequest(job_id="j", result=b"x" * (MOST_BYTES - 100))
    },
    "FailJob": {
        "largest": lambda: pb.FailJobRequest(job_id="j", error_message="x" * (MOST_BYTES - 100))
    },
    "StopJob": {"largest": lambda: pb.StopJobRequest(job_id="j", error_message="\x00" * MIB)},
    "StopJobWithRetry": {
        "largest": lambda: pb.StopJobWithRetryRequest(job_id="j", error_message="\x00" * MIB)
    },
    "MarkJobUnknownStopped": {
        "largest": lambda: pb.MarkJobUnknownStoppedRequest(job_id="j" * MIB, error_message="x")
    },
    "AcknowledgeCancellation": {
        "largest": lambda: pb.AcknowledgeCancellationRequest(job_id="j" * MIB)
    },
    "CancelJobs": {
        "most ids": lambda: pb.CancelJobsRequest(job_ids=IDS, reason="x" * 1024),
        "many tags": lambda: pb.CancelJobsRequest(tags=["t"] * 4 * MIB),
        "nothing, eight million times": lambda: empty(2),
    },
    "SuspendJobs": {
        "most ids": lambda: pb.SuspendJobsRequest(job_ids=IDS),
        "nothing, eight million times": lambda: empty(1),
    },
    "GetJob": {"longest id": lambda: pb.GetJobRequest(job_id="x" * MIB)},
    "GetJobStats": {
        "many tags": lambda: pb.GetJobStatsRequest(tags=["t"] * 4 * MIB),
        "nothing, eight million times": lambda: empty(1),
    },
    "DeleteJobs": {
        "most ids": lambda: pb.DeleteJobsRequest(job_ids=IDS),
        "nothing, eight million times": lambda: empty(2),
    },
    "CleanupExpiredJobs": {"all": lambda: pb.CleanupExpiredJobsRequest(ttl=Duration(seconds=1))},
    "ResetRunningJobs": {"all": lambda: pb.ResetRunningJobsRequest()},
    "MarkWorkerUnresponsive": {
        "longest": lambda: pb.MarkWorkerUnresponsiveRequest(assignee_id="x" * MIB)
    },
    "StreamJobs": {
        "many tags": lambda: pb.StreamJobsRequest(
            assignee_id="w", tags=["t"] * 4 * MIB, max_assigned_jobs=1
        )
    },
    "EndStream": {"longest": lambda: pb.EndStreamRequest(stream_id="x" * MIB)},
}

MANY: Final = 200_000

SAID: Final[dict[str, dict[str, Callable[[], wire.WorkerMessage]]]] = {
    "hello": {
        "most types": lambda: hello(types=[{"type": f"t{n}"} for n in range(10_000)]),
        "many types": lambda: hello(types=[{"type": f"t{n}"} for n in range(MANY)]),
        "many tags": lambda: hello(tags=["t"] * 2 * MIB),
        "many jobs": lambda: hello(held=[{"job_id": "j", "token": "t"}] * MANY),
    },
    "outcomes": {
        "most": lambda: outcomes(10_000),
        "too many": lambda: outcomes(MANY),
        "largest results": lambda: outcomes(15, result=ZEROS, result_content_type=JSON),
        "most context": lambda: outcomes(
            1,
            error={"context": [{"key": f"{n}", "value": "x"} for n in range(MANY)]},
            kind="OUTCOME_KIND_FAIL",
        ),
        "as much context as a message has": lambda: outcomes(
            1,
            error={"context": [{"key": f"{n:07}"} for n in range(MOST_BYTES // 12)]},
            kind="OUTCOME_KIND_FAIL",
        ),
        "long texts": lambda: outcomes(
            15, error={"message": "\x00" * MIB}, kind="OUTCOME_KIND_FAIL"
        ),
    },
    "heartbeat": {
        "most": lambda: said(heartbeat={"held": [{"job_id": one, "token": "t"} for one in IDS]}),
        "too many": lambda: said(heartbeat={"held": [{"job_id": "j", "token": "t"}] * MANY}),
    },
    "cancel_receipts": {
        "most": lambda: said(cancel_receipts={"received": _held(10_000)}),
        "too many": lambda: said(cancel_receipts={"received": _held(MANY)}),
    },
    "progress": {
        "most": lambda: said(progress={"progress": _held(10_000)}),
        "too many": lambda: said(progress={"progress": _held(MANY)}),
    },
    "checkpoints": {
        "most": lambda: said(checkpoints={"checkpoints": _held(10_000)}),
        "largest": lambda: said(
            checkpoints={"checkpoints": [{**_held(1)[0], "number": 1, "data": b"x" * MIB}] * 15}
        ),
        "too many": lambda: said(checkpoints={"checkpoints": _held(MANY)}),
    },
    "spawns": {
        "most": lambda: said(spawns={"spawns": _children(10_000, type="t")}),
        "largest": lambda: said(
            spawns={"spawns": _children(15, type="t", payload=ZEROS, content_type=JSON)}
        ),
        "too many": lambda: said(spawns={"spawns": _children(MANY)}),
        "many tags": lambda: said(spawns={"spawns": _children(1, type="t", tags=["t"] * 2 * MIB)}),
    },
    "logs": {
        "most": lambda: said(logs={"lines": [{**_held(1)[0], "number": 1}] * 10_000}),
        "too many": lambda: said(logs={"lines": [{**_held(1)[0], "number": 1}] * MANY}),
    },
    "types": {
        "most": lambda: said(types={"types": [{"type": f"t{n}"} for n in range(10_000)]}),
        "too many": lambda: said(types={"types": [{"type": f"t{n}"} for n in range(MANY)]}),
    },
    "drain": {"once": lambda: said(drain={})},
}


def said(**message: Any) -> wire.WorkerMessage:
    return wire.WorkerMessage(**message)


def hello(**fields: Any) -> wire.WorkerMessage:
    known = {"session_id": uuid.uuid4().hex, "worker_name": "w", "namespace": "n", "capacity": 10}
    return said(hello=known | fields)


def outcomes(count: int, **fields: Any) -> wire.WorkerMessage:
    """Of as many jobs."""
    one = {"token": "t", "kind": "OUTCOME_KIND_COMPLETE"} | fields
    return said(outcomes={"outcomes": [{"job_id": f"job-{n}"} | one for n in range(count)]})


def _held(count: int) -> list[dict[str, Any]]:
    return [{"job_id": f"job-{n}", "token": "t"} for n in range(count)]


def _children(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"parent_id": "p", "token": "t", "key": f"{n}", "job": fields} for n in range(count)]


@pytest.fixture
async def port(start_plane: Callable[..., Awaitable[Plane]]) -> int:
    """Of a server with the limits that it has unless told otherwise."""
    return (await start_plane(batch_jobs=BATCH_JOBS)).port


def test_every_call_and_every_message_is_tried() -> None:
    assert set(CALLS) == {*METHODS, "StreamJobs", "EndStream"}
    assert set(SAID) == {field.name for field in wire.WorkerMessage.DESCRIPTOR.fields}


def called(port: int, method: str, body: bytes) -> grpc.StatusCode:
    """The status of a call, made in a thread: the loop is the server's."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        path = f"/queueoperator.v1.Queue/{method}"
        kind: Any = channel.unary_stream if method == "StreamJobs" else channel.unary_unary
        metadata = (("authorization", f"Bearer {TOKEN}"), ("namespace", "n"))
        try:
            answer: Any = kind(path)(body, metadata=metadata, timeout=DEADLINE_S)
            if method == "StreamJobs":
                next(answer)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("method", "what"), [(one, what) for one, sizes in CALLS.items() for what in sizes]
)
async def test_no_call_holds_the_loop(port: int, method: str, what: str) -> None:
    made = CALLS[method][what]()
    body = made if isinstance(made, bytes) else made.SerializeToString()
    async with LoopWatch() as watch:
        code = await asyncio.to_thread(called, port, method, body)
    assert code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert watch.longest_s < MOST_HELD_S


def spoken(port: int, messages: list[bytes]) -> grpc.StatusCode:
    """The status of a session that says no more than this."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        session: Any = channel.stream_stream("/queueoperator.v1.WorkerPlane/Session")
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        welcomed = threading.Event()

        def say() -> Iterator[bytes]:
            yield messages[0]
            for message in messages[1:]:
                welcomed.wait(DEADLINE_S)
                yield message

        call = session(say(), metadata=metadata, timeout=DEADLINE_S)
        try:
            for _ in call:
                welcomed.set()
        except grpc.RpcError:
            welcomed.set()
        code: grpc.StatusCode = call.code()
        return code


@pytest.mark.parametrize(
    ("kind", "what"), [(one, what) for one, sizes in SAID.items() for what in sizes]
)
async def test_no_message_of_a_session_holds_the_loop(port: int, kind: str, what: str) -> None:
    said_ = SAID[kind][what]().SerializeToString()
    assert len(said_) < MOST_BYTES, "it would be refused for its size alone"
    messages = [said_] if kind == "hello" else [hello(capacity=10_000).SerializeToString(), said_]
    async with LoopWatch() as watch:
        code = await asyncio.to_thread(spoken, port, messages)
    assert code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert watch.longest_s < MOST_HELD_S
