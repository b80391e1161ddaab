"""A whole worker against a real gRPC server that the test scripts."""

import asyncio
import http.client
import logging
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import BaseModel
from tests.unit.client.scripted import Answer, serving

from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import (
    Cancelled,
    JobContext,
    PermanentError,
    Retry,
    SessionEnded,
    SessionRefused,
    Worker,
    WorkerSettings,
)

PATIENCE_S = 20.0


class Gate:
    """Handlers wait here until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def wait(self) -> None:
        self.entered.release()
        assert self.opened.wait(PATIENCE_S)

    async def wait_async(self) -> None:
        await asyncio.to_thread(self.wait)

    def await_entry(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE_S)


class Name(BaseModel):
    name: str


@pytest.fixture
def worker(settings: WorkerSettings) -> Worker:
    made = Worker(settings)

    @made.handler("hello")
    async def hello(ctx: JobContext, payload: Name) -> dict[str, str]:
        return {"greeting": f"Hello, {payload.name}!"}

    @made.handler("where")
    def where(ctx: JobContext) -> bytes:
        return threading.current_thread().name.encode()

    @made.handler("retry")
    def retry(ctx: JobContext) -> None:
        raise Retry("later", after=7)

    @made.handler("permanent")
    async def permanent(ctx: JobContext) -> None:
        raise PermanentError("never", code="NEVER")

    @made.handler("unstorable")
    async def unstorable(ctx: JobContext) -> object:
        return object()

    @made.handler("until-cancelled")
    async def until_cancelled(ctx: JobContext) -> None:
        ctx.report_progress(10, "started")
        await ctx.cancelled.wait_async()
        raise Cancelled

    @made.handler("until-cancelled-in-a-thread")
    def until_cancelled_in_a_thread(ctx: JobContext) -> None:
        ctx.report_progress(10, "started")
        ctx.cancelled.wait()
        ctx.raise_if_cancelled()

    @made.handler("forever")
    async def forever(ctx: JobContext) -> None:
        ctx.report_progress(10, "started")
        await asyncio.get_running_loop().create_future()

    return made


def assign(connection: Any, say: Any, *jobs: tuple[str, str, str], **fields: Any) -> None:
    connection.send(
        say.assigned(*(say.assignment(job, token, type_, **fields) for job, token, type_ in jobs))
    )


@proves("external-api.HandlerRegistration.rule.6")
def test_jobs_run_and_their_outcomes_come_back(
    worker: Worker, server: Any, run: Any, say: Any
) -> None:
    ended = run(worker)
    connection = server.accept()
    assert {t.type for t in connection.hello.types} >= {"hello", "where"}
    assign(connection, say, ("a", "t1", "hello"), payload=b'{"name": "Ada"}')
    assign(connection, say, ("b", "t2", "hello"), payload=b'{"name": 7}')
    assign(
        connection,
        say,
        ("c", "t3", "where"),
        ("d", "t4", "retry"),
        ("e", "t5", "permanent"),
        ("f", "t6", "unstorable"),
    )
    by_job = {outcome.job_id: outcome for outcome in connection.settle(6)}
    assert by_job["a"].result == b'{"greeting":"Hello, Ada!"}'
    assert by_job["a"].result_content_type == "application/json"
    assert by_job["b"].error.code == "INVALID_PAYLOAD"
    assert by_job["b"].error.category == wire.ERROR_CATEGORY_PERMANENT
    assert by_job["c"].result.startswith(b"handler")
    assert by_job["c"].result_content_type == "application/octet-stream"
    assert by_job["d"].retry_after.seconds == 7
    assert by_job["e"].error.code == "NEVER"
    assert by_job["f"].error.code == "RESULT_NOT_STORABLE"
    worker.stop()
    connection.next("drain")
    connection.ended()
    assert connection.closed_in_good_order
    assert ended.result(PATIENCE_S) == 0


class Odd(BaseException):
    """What no handler should raise."""


async def test_whatever_a_handler_raises_its_job_ends(
    worker_with: Any, server: Any, run: Any, say: Any
) -> None:
    async def coroutine(ctx: JobContext) -> None:
        raise Odd

    def function(ctx: JobContext) -> None:
        raise Odd

    run(worker_with(coroutine=coroutine, function=function))
    connection = server.accept()
    assign(connection, say, ("a", "t1", "coroutine"), ("b", "t2", "function"))
    ended = await asyncio.to_thread(connection.settle, 2)
    assert {(one.job_id, one.error.code) for one in ended} == {("a", "Odd"), ("b", "Odd")}


def status(port: int, path: str) -> int:
    probe = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    probe.request("GET", path)
    answer = probe.getresponse().status
    probe.close()
    return answer


def test_the_probes_of_a_worker(
    worker: Worker, settings: WorkerSettings, server: Any, run: Any, say: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    worker.settings = replace(settings, health_port=port)
    run(worker)
    connection = server.connections.get(timeout=PATIENCE_S)
    assert (status(port, "/healthz"), status(port, "/readyz")) == (200, 503)
    connection.send(say.welcome())
    assign(connection, say, ("a", "t1", "where"))
    connection.settle()
    assert (status(port, "/healthz"), status(port, "/readyz")) == (200, 200)


def test_many_outcomes_share_a_message(worker: Worker, server: Any, run: Any, say: Any) -> None:
    run(worker)
    connection = server.accept()
    jobs = [(str(number), f"t{number}", "hello") for number in range(200)]
    assign(connection, say, *jobs, payload=b'{"name": "Ada"}')
    assert {outcome.job_id for outcome in connection.settle(200)} == {job for job, *_ in jobs}
    batches = [m for m in connection.seen if m.WhichOneof("message") == "outcomes"]
    assert len(batches) < 100


@pytest.mark.parametrize("type_", ["until-cancelled", "until-cancelled-in-a-thread"])
def test_a_cancel_reaches_the_handler(
    worker: Worker, server: Any, run: Any, say: Any, type_: str
) -> None:
    run(worker)
    connection = server.accept()
    assign(connection, say, ("a", "t1", type_))
    (progress,) = connection.next("progress").progress
    assert (progress.percent, progress.message) == (10, "started")
    connection.send(say.cancel("a", "t1"))
    assert connection.next("cancel_receipts").received[0].job_id == "a"
    (outcome,) = connection.settle()
    assert outcome.kind == wire.OUTCOME_KIND_ACK_EXECUTING


@proves("external-api.JobContext.expect.4")
def test_a_forced_cancel_interrupts_a_coroutine(
    worker: Worker, server: Any, run: Any, say: Any
) -> None:
    run(worker)
    connection = server.accept()
    assign(connection, say, ("a", "t1", "forever"))
    connection.next("progress")
    connection.send(say.cancel("a", "t1", force=True))
    (outcome,) = connection.settle()
    assert outcome.kind == wire.OUTCOME_KIND_ACK_EXECUTING


@proves("external-api.HandlerRegistration.expect.13")
def test_a_timeout_ends_a_coroutine(worker: Worker, server: Any, run: Any, say: Any) -> None:
    run(worker)
    connection = server.accept()
    assign(connection, say, ("a", "t1", "forever"), timeout_s=0.01)
    (outcome,) = connection.settle()
    assert outcome.error.category == wire.ERROR_CATEGORY_TIMEOUT


@proves("external-api.WorkerProcess.expect.1")
def test_a_handler_that_blocks_the_loop_starves_neither_heartbeats_nor_timeouts(
    worker: Worker, server: Any, run: Any, say: Any
) -> None:
    gate = Gate()

    @worker.handler("rude")
    async def rude(ctx: JobContext) -> None:
        gate.wait()

    run(worker)
    connection = server.accept(heartbeat_s=0.01)
    assign(connection, say, ("a", "t1", "rude"))
    gate.await_entry()
    for _ in range(3):
        assert [h.job_id for h in connection.next("heartbeat").held] == ["a"]
    assign(connection, say, ("b", "t2", "where"))
    assert connection.settle()[0].job_id == "b"
    assign(connection, say, ("c", "t3", "hello"), timeout_s=0.01)
    # It has not begun: no attempt was used.
    assert connection.settle()[0].kind == wire.OUTCOME_KIND_HAND_BACK
    gate.opened.set()
    assert connection.settle()[0].job_id == "a"


def test_a_worker_that_holds_nothing_sends_no_heartbeats_until_it_leaves(
    worker: Worker, server: Any, run: Any, say: Any
) -> None:
    run(worker)
    connection = server.accept(heartbeat_s=0.001)
    assign(connection, say, ("a", "t1", "where"))
    connection.settle()
    worker.stop()
    connection.ended()
    sizes = [len(m.heartbeat.held) for m in connection.seen if m.HasField("heartbeat")]
    last_words = sizes.count(0)
    assert last_words
    assert sizes == [1] * (len(sizes) - last_words) + [0] * last_words
    assert connection.seen.index(wire.WorkerMessage(drain=wire.Drain())) < len(connection.seen) - 1


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, None])
@proves("external-api.WorkerProcess.expect.4")
def test_a_cut_stream_is_made_again_and_held_jobs_go_on(
    worker: Worker, server: Any, run: Any, say: Any, code: grpc.StatusCode | None
) -> None:
    gate = Gate()

    @worker.handler("gated")
    def gated(ctx: JobContext) -> int:
        gate.wait()
        return ctx.attempt

    run(worker)
    first = server.accept()
    assign(first, say, ("a", "t1", "gated"), ("b", "t2", "where"))
    gate.await_entry()
    (unacknowledged,) = first.outcomes(1)
    assert unacknowledged.job_id == "b"
    if code is None:
        first.close()
    else:
        first.abort(code)
    second = server.accept()
    assert second.hello.session_id == first.hello.session_id
    assert {(h.job_id, h.token) for h in second.hello.held} == {("a", "t1"), ("b", "t2")}
    assert second.settle() == [unacknowledged]
    gate.opened.set()
    (outcome,) = second.settle()
    assert (outcome.job_id, outcome.kind) == ("a", wire.OUTCOME_KIND_COMPLETE)


def test_a_goodbye_with_reconnect_moves_the_session(
    worker: Worker, server: Any, run: Any, say: Any
) -> None:
    run(worker)
    server.accept().send(say.goodbye(reconnect=True))
    connection = server.accept()
    assign(connection, say, ("a", "t1", "where"))
    connection.settle()


def test_a_goodbye_for_good_ends_the_process(
    worker: Worker, server: Any, run: Any, say: Any
) -> None:
    told = threading.Event()

    @worker.handler("in-a-thread")
    def in_a_thread(ctx: JobContext) -> None:
        ctx.report_progress(1)
        if ctx.cancelled.wait(PATIENCE_S):
            told.set()

    ended = run(worker)
    connection = server.accept()
    assign(connection, say, ("a", "t1", "in-a-thread"))
    connection.next("progress")
    connection.send(say.goodbye(reconnect=False))
    with pytest.raises(SessionEnded, match="a test"):
        ended.result(PATIENCE_S)
    assert told.wait(PATIENCE_S)


@proves("external-api.WorkerProcess.expect.2")
def test_draining_lets_jobs_finish(worker: Worker, server: Any, run: Any, say: Any) -> None:
    gate = Gate()
    worker.register("gated", lambda ctx: gate.wait())
    ended = run(worker)
    connection = server.accept()
    assign(connection, say, ("a", "t1", "gated"))
    gate.await_entry()
    worker.stop()
    connection.next("drain")
    assign(connection, say, ("b", "t2", "where"))
    (returned,) = connection.settle()
    assert (returned.job_id, returned.kind) == ("b", wire.OUTCOME_KIND_HAND_BACK)
    gate.opened.set()
    (finished,) = connection.settle()
    assert (finished.job_id, finished.kind) == ("a", wire.OUTCOME_KIND_COMPLETE)
    assert ended.result(PATIENCE_S) == 0


@proves("external-api.WorkerProcess.expect.2")
def test_after_the_grace_jobs_are_handed_back(
    worker: Worker, settings: WorkerSettings, server: Any, run: Any, say: Any
) -> None:
    worker.settings = replace(settings, grace_s=0.01)
    ended = run(worker)
    connection = server.accept()
    assign(connection, say, ("a", "t1", "forever"))
    connection.next("progress")
    worker.stop()
    (outcome,) = connection.settle()
    assert outcome.kind == wire.OUTCOME_KIND_HAND_BACK
    assert ended.result(PATIENCE_S) == 0


@proves("external-api.WorkerProcess.expect.2")
def test_a_second_stop_hands_back_at_once_even_what_cannot_be_stopped(
    worker: Worker, server: Any, run: Any, say: Any
) -> None:
    gate = Gate()
    worker.register("gated", lambda ctx: gate.wait())
    ended = run(worker)
    connection = server.accept()
    assign(connection, say, ("a", "t1", "gated"))
    gate.await_entry()
    worker.stop()
    worker.stop()
    (outcome,) = connection.settle()
    assert outcome.kind == wire.OUTCOME_KIND_HAND_BACK
    assert ended.result(PATIENCE_S) == 1
    gate.opened.set()


@proves("external-api.WorkerProcess.expect.3")
def test_a_server_that_confirms_nothing_is_not_waited_for_for_ever(
    worker: Worker, settings: WorkerSettings, server: Any, run: Any, say: Any
) -> None:
    worker.settings = replace(settings, grace_s=0.0, ack_wait_s=0.01)
    ended = run(worker)
    connection = server.accept()
    assign(connection, say, ("a", "t1", "forever"))
    connection.next("progress")
    worker.stop()
    connection.outcomes(1)
    assert ended.result(PATIENCE_S) == 0


def test_a_worker_that_cannot_connect_can_be_stopped(
    worker: Worker, settings: WorkerSettings, run: Any
) -> None:
    worker.settings = replace(settings, server="127.0.0.1:1")
    ended = run(worker)
    worker.stop()
    assert ended.result(PATIENCE_S) == 0


def test_the_token_is_read_again_on_each_connect(
    worker: Worker, settings: WorkerSettings, server: Any, run: Any, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    worker.settings = replace(settings, token_file=token)
    run(worker)
    connection = server.accept()
    assert connection.metadata["authorization"] == "Bearer first"
    token.write_text("second\n")
    connection.close()
    assert server.accept().metadata["authorization"] == "Bearer second"


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED]
)
def test_a_refused_worker_tries_for_a_while_and_ends(
    worker: Worker, server: Any, run: Any, code: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    server.refusal = code
    with pytest.raises(SessionRefused, match=code.name):
        run(worker).result(PATIENCE_S)
    assert server.refused.qsize() > 1
    assert "trying again" in caplog.text


def test_a_refusal_may_pass(
    worker: Worker, settings: WorkerSettings, server: Any, run: Any
) -> None:
    server.refusal = grpc.StatusCode.UNAUTHENTICATED
    worker.settings = replace(settings, refused_s=PATIENCE_S)
    run(worker)
    server.refused.get(timeout=PATIENCE_S)
    server.refusal = None
    server.accept()


def test_a_hello_that_makes_no_sense_ends_at_once(worker: Worker, server: Any, run: Any) -> None:
    server.refusal = grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(SessionRefused, match="INVALID_ARGUMENT"):
        run(worker).result(PATIENCE_S)
    assert server.refused.qsize() == 1


def test_a_missing_token_file_is_named(
    worker: Worker, settings: WorkerSettings, run: Any, tmp_path: Path
) -> None:
    worker.settings = replace(settings, token_file=tmp_path / "absent", refused_s=0)
    with pytest.raises(SessionRefused, match=r"QUEUE_OPERATOR_TOKEN_FILE: .*absent"):
        run(worker).result(PATIENCE_S)


@pytest.fixture
def logged() -> Iterator[Callable[[str], None]]:
    """Waits until the client has logged a line with the text."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = QueueHandler(lines)
    client = logging.getLogger("queue_operator.worker.client")
    client.addHandler(handler)

    def wait(text: str) -> None:
        while text not in lines.get(timeout=PATIENCE_S).getMessage():
            pass

    yield wait
    client.removeHandler(handler)


def test_what_it_serves_is_told_when_it_connects(
    worker: Worker,
    settings: WorkerSettings,
    server: Any,
    run: Any,
    logged: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "queue_operator.worker.client")
    worker.settings = replace(settings, tags=frozenset({"gpu"}), capacity=3)
    run(worker)
    server.accept()
    logged("namespace default, tags gpu, capacity 3, types hello, where, ")


def test_the_port_of_rest_in_place_of_grpcs_is_named(
    worker: Worker, settings: WorkerSettings, run: Any, logged: Callable[[str], None]
) -> None:
    with serving(Answer(404)) as rest:
        worker.settings = replace(settings, server=rest.url.removeprefix("http://"))
        run(worker)
        logged("give the one of gRPC (port 50051)")


@pytest.mark.parametrize("held", [b"\xff\xfe", "größe".encode(), b"two\nlines", b" \n"])
def test_a_file_that_holds_no_token_is_named_and_read_again(
    worker: Worker,
    settings: WorkerSettings,
    server: Any,
    run: Any,
    tmp_path: Path,
    held: bytes,
    logged: Callable[[str], None],
) -> None:
    token = tmp_path / "token"
    token.write_bytes(held)
    worker.settings = replace(settings, token_file=token, refused_s=0)
    with pytest.raises(SessionRefused, match=f"{token} holds no bearer token"):
        run(worker).result(PATIENCE_S)
    worker.settings = replace(settings, token_file=token, refused_s=PATIENCE_S)
    run(worker)
    logged("holds no bearer token")
    token.write_text("good")
    assert server.accept().metadata["authorization"] == "Bearer good"


@proves("external-api.HandlerRegistration.expect.5")
def test_a_function_that_blocks_holds_up_neither_heartbeats_nor_other_handlers(
    worker: Worker, server: Any, run: Any, say: Any
) -> None:
    gate = Gate()
    worker.register("gated", lambda ctx: gate.wait())
    run(worker)
    connection = server.accept()
    assign(connection, say, ("a", "t1", "gated"))
    gate.await_entry()
    assign(connection, say, ("b", "t2", "where"), ("c", "t3", "hello"), payload=b'{"name": "Ada"}')
    ended: set[str] = set()
    while ended != {"b", "c"}:
        ended |= {outcome.job_id for outcome in connection.settle(1)}
    while "a" not in {held.job_id for held in connection.next("heartbeat").held}:
        pass
    gate.opened.set()
    while "a" not in {outcome.job_id for outcome in connection.settle(1)}:
        pass


@proves("external-api.RegistrationResult.expect.2")
def test_a_replacement_counts_for_the_jobs_that_begin_after_it(
    worker: Worker, server: Any, run: Any, say: Any
) -> None:
    gate = Gate()

    def old(ctx: JobContext) -> str:
        gate.wait()
        return "old"

    worker.register("changing", old)
    run(worker)
    connection = server.accept(heartbeat_s=10.0)
    assign(connection, say, ("a", "t1", "changing"))
    gate.await_entry()
    worker.register("changing", lambda ctx: "new")
    assign(connection, say, ("b", "t2", "changing"))
    assert connection.settle(1)[0].result == b'"new"'
    gate.opened.set()
    assert connection.settle(1)[0].result == b'"old"'
