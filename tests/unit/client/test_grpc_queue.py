"""The gRPC client against a server that says what the test tells it to."""

import asyncio
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from queue_operator.client.grpc import GrpcQueue, Repeats
from queue_operator.domain.errors import (
    DuplicateJob,
    Forbidden,
    InvalidArgument,
    JobNotFound,
    QueueError,
    QuotaExceeded,
    StaleLease,
    Unavailable,
)
from queue_operator.domain.job import Job
from queue_operator.wire import listener
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.status import status_code, trailers
from queue_operator.wire.v1 import queue_pb2 as pb

JOB = Job(id="j", type="t", payload=b"p")
AWAY = Unavailable("away")


@dataclass
class Script:
    """Answers each call with what is next, and remembers the calls."""

    answers: list[Message | QueueError] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, method: str, context: "grpc.aio.ServicerContext[Any, Any]") -> bytes:
        self.calls.append(method)
        self.metadata.append(dict(context.invocation_metadata() or ()))
        answer = self.answers.pop(0)
        if isinstance(answer, QueueError):
            await context.abort(status_code(answer), str(answer), trailers(answer))
        return answer.SerializeToString()


class Server(grpc.GenericRpcHandler):
    def __init__(self, script: Script) -> None:
        self._script = script

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        method = details.method.rsplit("/", 1)[-1]

        async def answer(request: bytes, context: Any) -> bytes:
            return await self._script.answer(method, context)

        return grpc.unary_unary_rpc_method_handler(answer)


@dataclass
class Rig:
    script: Script
    client: GrpcQueue
    pauses: list[float]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    script, pauses = Script(), list[float]()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Server(script),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    repeats = Repeats(attempts=3, initial_delay_s=0.1, rng=lambda: 0.5)
    async with GrpcQueue(
        f"127.0.0.1:{port}", "token", repeats=repeats, sleep=pause, timeout_s=20
    ) as client:
        yield Rig(script, client, pauses)
    await server.stop(None)


SAFE: dict[str, tuple[Callable[[GrpcQueue], Awaitable[Any]], Message]] = {
    "GetJob": (
        lambda q: q.get_job("j"),
        pb.GetJobResponse(job=convert.job_to_wire(JOB)),
    ),
    "GetJobStats": (lambda q: q.get_job_stats([]), pb.GetJobStatsResponse()),
    "SuspendJobs": (lambda q: q.suspend_jobs(["j"]), pb.SuspendJobsResponse()),
    "EnqueueJob": (lambda q: q.enqueue_job(JOB), pb.EnqueueJobResponse(job_id="j")),
    "EnqueueJobs": (lambda q: q.enqueue_jobs([JOB]), pb.EnqueueJobsResponse(job_ids=["j"])),
    "CompleteJob": (lambda q: q.complete_job("j", b"", token="t"), pb.CompleteJobResponse()),
    "FailJob": (lambda q: q.fail_job("j", "m", token="t"), pb.FailJobResponse()),
    "AcknowledgeCancellation": (
        lambda q: q.acknowledge_cancellation("j", True, token="t"),
        pb.AcknowledgeCancellationResponse(),
    ),
}
UNSAFE: dict[str, Callable[[GrpcQueue], Awaitable[Any]]] = {
    "CompleteJob": lambda q: q.complete_job("j", b""),
    "FailJob": lambda q: q.fail_job("j", "m"),
    "StopJob": lambda q: q.stop_job("j", "m"),
    "StopJobWithRetry": lambda q: q.stop_job_with_retry("j", "m"),
    "MarkJobUnknownStopped": lambda q: q.mark_job_unknown_stopped("j", "m"),
    "AcknowledgeCancellation": lambda q: q.acknowledge_cancellation("j", False),
    "CancelJobs": lambda q: q.cancel_jobs([], ["j"]),
    "DeleteJobs": lambda q: q.delete_jobs([], ["j"]),
    "CleanupExpiredJobs": lambda q: q.cleanup_expired_jobs(1),
    "ResetRunningJobs": lambda q: q.reset_running_jobs(),
    "MarkWorkerUnresponsive": lambda q: q.mark_worker_unresponsive("a"),
}


ANSWERS: dict[str, Message] = {
    "StopJob": pb.StopJobResponse(),
    "StopJobWithRetry": pb.StopJobWithRetryResponse(),
    "MarkJobUnknownStopped": pb.MarkJobUnknownStoppedResponse(),
    "CancelJobs": pb.CancelJobsResponse(),
    "DeleteJobs": pb.DeleteJobsResponse(),
    "CleanupExpiredJobs": pb.CleanupExpiredJobsResponse(),
    "ResetRunningJobs": pb.ResetRunningJobsResponse(),
    "MarkWorkerUnresponsive": pb.MarkWorkerUnresponsiveResponse(),
}


@pytest.mark.parametrize("method", SAFE)
async def test_what_a_repeat_does_not_change_is_repeated(rig: Rig, method: str) -> None:
    call, answer = SAFE[method]
    rig.script.answers = [AWAY, AWAY, answer]
    await call(rig.client)
    assert rig.script.calls == [method] * 3
    # Half of a bound that doubles.
    assert rig.pauses == [0.05, 0.1]


@pytest.mark.parametrize("method", UNSAFE)
async def test_what_a_repeat_might_change_is_not(rig: Rig, method: str) -> None:
    rig.script.answers = [AWAY]
    with pytest.raises(Unavailable):
        await UNSAFE[method](rig.client)
    assert rig.script.calls == [method]


async def test_repeats_end_with_the_attempts(rig: Rig) -> None:
    rig.script.answers = [AWAY, AWAY, AWAY]
    with pytest.raises(Unavailable):
        await rig.client.get_job("j")
    assert len(rig.script.calls) == 3


async def test_repeats_end_with_the_deadline(rig: Rig) -> None:
    rig.script.answers = [AWAY]
    with pytest.raises(Unavailable):
        await rig.client.within(0.04).get_job("j")
    assert rig.pauses == []


async def test_other_errors_are_not_repeated(rig: Rig) -> None:
    rig.script.answers = [StaleLease("j")]
    with pytest.raises(StaleLease):
        await rig.client.complete_job("j", b"", token="t")
    assert len(rig.script.calls) == 1


async def test_a_submission_whose_answer_was_lost_is_known_by_its_content(rig: Rig) -> None:
    rig.script.answers = [AWAY, DuplicateJob(("j",)), SAFE["GetJob"][1]]
    assert await rig.client.enqueue_job(JOB) == "j"
    assert rig.script.calls == ["EnqueueJob", "EnqueueJob", "GetJob"]
    rig.script.answers = [AWAY, DuplicateJob(("j",)), SAFE["GetJob"][1]]
    assert await rig.client.enqueue_jobs([JOB]) == ["j"]


async def test_a_job_of_somebody_else_under_the_id_is_a_duplicate(rig: Rig) -> None:
    other = Job(id="j", type="t", payload=b"other")
    rig.script.answers = [
        AWAY,
        DuplicateJob(("j",)),
        pb.GetJobResponse(job=convert.job_to_wire(other)),
    ]
    with pytest.raises(DuplicateJob) as caught:
        await rig.client.enqueue_job(JOB)
    assert caught.value.job_ids == ("j",)


@pytest.mark.parametrize(
    "last",
    [
        pb.GetJobResponse(job=convert.job_to_wire(Job(id="b", type="t", payload=b"other"))),
        JobNotFound("b", "default"),
        Forbidden("you may not get queuejobs"),
    ],
)
async def test_a_batch_is_known_by_the_content_of_all_its_jobs(
    rig: Rig, last: Message | QueueError
) -> None:
    batch = [JOB, Job(id="b", type="t")]
    rig.script.answers = [AWAY, DuplicateJob((), (0, 1)), SAFE["GetJob"][1], last]
    with pytest.raises(DuplicateJob) as caught:
        await rig.client.enqueue_jobs(batch)
    assert caught.value.job_ids == ("j", "b")


@pytest.mark.parametrize("method", sorted({*SAFE, *UNSAFE}))
async def test_a_call_that_was_refused_for_their_number_is_repeated(rig: Rig, method: str) -> None:
    call, answer = SAFE[method] if method in SAFE else (UNSAFE[method], ANSWERS[method])
    rig.script.answers = [QuotaExceeded("calls", 5, 5, 1.5), answer]
    await call(rig.client)
    assert rig.script.calls == [method] * 2
    assert rig.pauses == [1.5 + 0.05]


async def test_more_at_once_than_may_ever_wait_is_not_sent_again(rig: Rig) -> None:
    rig.script.answers = [QuotaExceeded("pending_jobs", 0, 1, 1.0)]
    with pytest.raises(QuotaExceeded):
        await rig.client.enqueue_jobs([JOB, Job(id="b", type="t")])
    assert len(rig.script.calls) == 1


async def test_after_a_refusal_an_id_that_is_taken_is_somebody_elses(rig: Rig) -> None:
    """A try that did not begin has stored nothing."""
    rig.script.answers = [QuotaExceeded("calls", 5, 5, 1.5), DuplicateJob(("j",))]
    with pytest.raises(DuplicateJob):
        await rig.client.enqueue_job(JOB)
    assert len(rig.script.calls) == 2


async def test_a_client_that_is_closed_meanwhile_repeats_nothing(rig: Rig) -> None:
    async def close(method: str, context: "grpc.aio.ServicerContext[Any, Any]") -> bytes:
        rig.client._calls.line.closed = True
        await context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    rig.script.answer = close  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="away"):
        await rig.client.get_job("j")
    assert rig.pauses == []


@pytest.mark.parametrize("first", [[], [AWAY]])
async def test_a_batch_of_which_some_are_taken_is_no_repeat_of_ours(
    rig: Rig, first: list[Message | QueueError]
) -> None:
    rig.script.answers = [*first, DuplicateJob((), (1,))]
    with pytest.raises(DuplicateJob) as caught:
        await rig.client.enqueue_jobs([Job(id="a", type="t"), JOB])
    assert (caught.value.job_ids, caught.value.indexes) == (("j",), (1,))


async def test_credentials_and_namespace_travel_as_metadata(rig: Rig) -> None:
    rig.script.answers = [SAFE["GetJobStats"][1]] * 2
    await rig.client.get_job_stats([], namespace="team")
    await rig.client.get_job_stats([], namespace="größe")
    plain, odd = rig.script.metadata
    assert (plain["authorization"], plain["namespace"]) == ("Bearer token", "team")
    assert "namespace" not in odd
    assert odd["namespace-bin"] == "größe".encode()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda q: q.get_job(5), "job_id"),
        (lambda q: q.get_job("\ud800"), "job_id"),
        (lambda q: q.get_job("j", namespace=None), "namespace"),
        (lambda q: q.get_job_stats("tag"), "tags"),
        (lambda q: q.get_job_stats(iter(["a"])), "tags"),
        (lambda q: q.cancel_jobs([], [5]), "job_ids"),
        (lambda q: q.suspend_jobs([5]), "job_ids"),
        (lambda q: q.resume_jobs("j"), "job_ids"),
        (lambda q: q.complete_job("j", "text"), "result"),
        (lambda q: q.complete_job("j", b"", token=7), "token"),
        (lambda q: q.fail_job("j", None), "error_msg"),
        (lambda q: q.cleanup_expired_jobs(float("nan")), "ttl_s"),
        (lambda q: q.cleanup_expired_jobs(-1), "ttl_s"),
        (lambda q: q.mark_worker_unresponsive(""), "assignee_id"),
        (lambda q: q.enqueue_job("job"), "job"),
        (lambda q: q.enqueue_jobs([JOB, "job"]), "jobs[1]"),
    ],
)
async def test_what_no_message_can_hold_is_refused_and_not_sent(
    rig: Rig, call: Callable[[Any], Awaitable[Any]], named: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await call(rig.client)
    assert caught.value.field == named
    assert rig.script.calls == []


async def test_attempts_may_be_left_to_the_handler(rig: Rig) -> None:
    with pytest.raises(InvalidArgument, match="must be 1 to 100, or 0 for what the handler says"):
        await rig.client.enqueue_job(Job(id="j", type="t", max_attempts=-1))
    rig.script.answers = [SAFE["EnqueueJob"][1]]
    assert await rig.client.enqueue_job(Job(id="j", type="t", max_attempts=0)) == "j"


@pytest.mark.parametrize(
    "address", ["http://localhost:50051", "https://a:1", "localhost", "", 50051]
)
def test_an_address_that_is_none_is_refused_at_once(address: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"must be host:port .* localhost:50051"):
        GrpcQueue(address)


async def test_a_closed_client_is_of_no_use_any_more(rig: Rig) -> None:
    await rig.client.close()
    await rig.client.close()
    with pytest.raises(Unavailable, match="closed"):
        await rig.client.get_job("j")
    with pytest.raises(Unavailable, match="closed"):
        await anext(rig.client.stream_jobs("me", [], 1))


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with GrpcQueue("127.0.0.1:1", repeats=Repeats(attempts=1)) as client:
        with pytest.raises(Unavailable):
            await client.get_job("j")
        with pytest.raises(Unavailable):
            await anext(client.stream_jobs("me", [], 1))


@pytest.fixture
async def rest() -> AsyncIterator[str]:
    """Where something answers as REST does."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_the_address_of_rest_is_told_at_once(rest: str) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async with GrpcQueue(rest, sleep=pause) as client:
        with pytest.raises(Unavailable, match="what answers there is no gRPC"):
            await client.get_job("j")
        with pytest.raises(Unavailable, match="what answers there is no gRPC"):
            await anext(client.stream_jobs("me", [], 1))
    assert pauses == []


async def test_rest_is_told_where_another_address_refused_last(rest: str) -> None:
    refused = "UNAVAILABLE: failed to connect to all addresses; last error: ipv6:%5B::1%5D: refused"
    assert (await listener.named(rest, refused)).startswith(f"{refused}; what answers there is no")
    assert await listener.named("127.0.0.1:1", refused) == refused
    assert await listener.named(rest, "UNAVAILABLE: cut") == "UNAVAILABLE: cut"


async def test_grpc_is_not_taken_for_rest(rig: Rig) -> None:
    address = rig.client._calls.line.address
    assert await listener.named(address, listener.NOT_CONNECTED) == listener.NOT_CONNECTED


@pytest.mark.parametrize("call", [lambda q: q.enqueue_job(JOB), lambda q: q.enqueue_jobs([JOB])])
async def test_a_duplicate_is_one_traceback(
    rig: Rig, call: Callable[[GrpcQueue], Awaitable[Any]]
) -> None:
    rig.script.answers = [DuplicateJob(("j",))]
    with pytest.raises(DuplicateJob) as caught:
        await call(rig.client)
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1


def test_repeats_outlast_the_restart_of_an_operator() -> None:
    usual = Repeats(rng=lambda: 0.5)
    assert sum(usual.pause_s(failures) for failures in range(1, usual.attempts)) > 5


async def test_a_call_under_way_ends_when_the_client_is_closed(rig: Rig) -> None:
    asked = asyncio.Event()

    async def never(method: str, context: object) -> bytes:
        asked.set()
        await asyncio.get_running_loop().create_future()
        return b""

    rig.script.answer = never  # type: ignore[method-assign]
    call = asyncio.ensure_future(rig.client.cancel_jobs([], ["j"]))
    await asyncio.wait_for(asked.wait(), 10)
    await rig.client.close()
    with pytest.raises(Unavailable):
        await call


def test_the_client_needs_nothing_but_the_base_install() -> None:
    """Neither what the server needs nor what the REST client does."""
    script = (
        "import sys; from queue_operator.client.grpc import GrpcQueue\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert {"grpc", "google"} <= loaded
    apart = {
        "aiohttp", "click", "fastapi", "httpx", "kopf", "kubernetes", "msgspec",
        "prometheus_client", "psycopg", "pydantic_settings", "pyspark", "uvicorn", "uvloop", "yaml",
    }  # fmt: skip
    assert loaded & apart == set()
