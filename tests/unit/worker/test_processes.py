"""Handlers in processes of their own."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.worker import heavy

from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import CallNext, JobContext, Worker
from queue_operator.worker.processes import Processes
from queue_operator.worker.testing import job_context, run_handler

Heavy = Callable[..., tuple[Worker, Any, Any]]


@pytest.fixture
def start(settings: Any, server: Any, run: Any) -> Heavy:
    """A running worker of the heavy handlers, its connection, and the end of it."""

    def begin(*middleware: Any, heartbeat_s: float = 10.0) -> tuple[Worker, Any, Any]:
        worker = Worker(settings)
        for handler in heavy.HANDLERS:
            worker.handler(handler.__name__, runs_in="process", concurrency=8)(handler)
        for one in middleware:
            worker.middleware(one)
        ended = run(worker)
        # With heartbeats so rare nothing is sent again while a test waits for more.
        return worker, server.accept(heartbeat_s=heartbeat_s), ended

    return begin


def assign(connection: Any, say: Any, type_: str, payload: object = None, **fields: Any) -> None:
    body = b"" if payload is None else json.dumps(payload).encode()
    job_id = fields.pop("job_id", type_)
    connection.send(say.assigned(say.assignment(job_id, "t", type_, payload=body, **fields)))


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def spinning(connection: Any) -> int:
    """The process of the one handler that says it is there."""
    return int(connection.next("progress").progress[0].message)


@proves("external-api.HandlerRegistration.expect.6", "external-api.JobContext.expect.5")
def test_the_context_and_all_it_calls_reach_them(
    start: Heavy, say: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    _, connection, _ = start()
    assign(connection, say, "echo", {"a": 1}, tags=["k=v"], correlation_id="c", timeout_s=60.0)
    (outcome,) = connection.settle(1)
    echoed = json.loads(outcome.result)
    assert echoed["payload"] == {"a": 1}
    assert echoed["job"] == ["echo", "echo", 1, "c", {"k": "v"}]
    assert (echoed["deadline"], echoed["worker"]) == (True, "w")
    assign(connection, say, "pid")
    assign(connection, say, "pid", job_id="again")
    pids = {outcome.result for outcome in connection.settle(2)}
    assert str(os.getpid()).encode() not in pids
    assign(connection, say, "talks")
    kept = connection.next("checkpoints").checkpoints[0]
    assert kept.data == b"state"
    ack = wire.CheckpointAck(job_id="talks", token="t", number=kept.number)
    connection.send(wire.ServerMessage(checkpoint_acks=wire.CheckpointAcks(acks=[ack])))
    (spawn,) = connection.next("spawns").spawns
    assert (spawn.parent_id, spawn.job.type, spawn.job.payload) == ("talks", "child", b'{"a":1}')
    told = wire.SpawnAnswer(parent_id="talks", token="t", key=spawn.key, job_id="c")
    connection.send(wire.ServerMessage(spawn_answers=wire.SpawnAnswers(answers=[told])))
    assert connection.settle(1)[0].result == b'"c"'
    shipped = [line for m in connection.seen for line in m.logs.lines]
    assert [line.message for line in shipped] == ["from within", "plain text"]
    progress = [m.progress.progress[0] for m in connection.seen if m.HasField("progress")]
    assert [(p.percent, p.message) for p in progress] == [(50, "half")]
    own, theirs = (r for r in caplog.records if r.name in ("queue_operator.job", "theirs"))
    fields = own.__dict__["fields"]
    assert "lambda" in fields.pop("odd")
    assert fields == {"answer": 42, "job_id": "talks", "job_type": "talks", "attempt": 1}
    assert theirs.getMessage() == "plain text"


@proves("external-api.HandlerRegistration.expect.6")
def test_what_they_raise_means_the_same_as_anywhere(start: Heavy, say: Any) -> None:
    seen: list[str] = []

    async def watch(ctx: JobContext, call_next: CallNext) -> Any:
        try:
            return await call_next(ctx)
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    _, connection, _ = start(watch)
    by_job = {}
    for kind in ("retry", "permanent", "key", "odd", "exit", "unstorable", "invalid"):
        payload = 7 if kind == "invalid" else kind
        assign(connection, say, "raises", payload, job_id=kind)
        by_job[kind] = connection.settle(1)[0]
    assert by_job["retry"].retry_after.seconds == 7
    assert by_job["permanent"].error.code == "NEVER"
    [told] = by_job["permanent"].error.context
    assert (told.key, told.value) == ("why", "because")
    assert (by_job["key"].error.code, by_job["key"].error.message) == ("KeyError", "'missing'")
    assert "heavy.py" in by_job["key"].error.stack_trace
    assert "processes.py" not in by_job["key"].error.stack_trace
    assert (by_job["odd"].error.code, by_job["odd"].error.message) == ("Odd", "odd")
    assert by_job["exit"].error.code == "SystemExit"
    assert by_job["unstorable"].error.code == "RESULT_NOT_STORABLE"
    assert by_job["invalid"].error.code == "INVALID_PAYLOAD"
    assert {"Retry", "PermanentError", "KeyError", "HandlerFailed"} == set(seen)


@proves("external-api.HandlerRegistration.expect.6")
def test_one_that_dies_fails_its_job_alone_and_is_replaced(start: Heavy, say: Any) -> None:
    _, connection, _ = start()
    assign(connection, say, "spin", job_id="bystander")
    bystander = spinning(connection)
    for payload, cause in (("signal", "signal SIGKILL"), ("3", "exit status 3")):
        assign(connection, say, "dies", payload)
        (outcome,) = connection.settle(1)
        assert (outcome.error.code, outcome.error.category) == (
            "PROCESS_DIED",
            wire.ERROR_CATEGORY_TEMPORARY,
        )
        assert cause in outcome.error.message
        assign(connection, say, "pid")
        assert connection.settle(1)[0].kind == wire.OUTCOME_KIND_COMPLETE
    assert not gone(bystander)
    connection.send(say.cancel("bystander", "t"))
    (outcome,) = connection.settle(1)
    assert outcome.result == b'"asked"'


@proves("external-api.HandlerRegistration.expect.6", "external-api.JobContext.expect.4")
def test_a_forced_cancel_and_a_timeout_end_them(start: Heavy, say: Any, tmp_path: Path) -> None:
    _, connection, _ = start()
    note = tmp_path / "note"
    assign(connection, say, "spin", str(note))
    pid = spinning(connection)
    connection.send(say.cancel("spin", "t", force=True))
    (outcome,) = connection.settle(1)
    assert outcome.kind == wire.OUTCOME_KIND_ACK_EXECUTING
    assert note.read_text() == "cleaned up"
    assert gone(pid)
    assign(connection, say, "deaf", "")
    spinning(connection)
    # Claimed anew while it runs, and now with a timeout: the start of a process takes long.
    connection.send(say.assigned(say.assignment("deaf", "t2", "deaf", timeout_s=0.01)))
    (outcome,) = connection.settle(1)
    assert outcome.error.category == wire.ERROR_CATEGORY_TIMEOUT
    # One that does not let itself be told gets SIGKILL, and its job is done with after that.
    assign(connection, say, "deaf", "", job_id="deafer")
    pid = spinning(connection)
    connection.send(say.cancel("deafer", "t", force=True))
    (outcome,) = connection.settle(1)
    assert outcome.kind == wire.OUTCOME_KIND_ACK_EXECUTING
    assert gone(pid)
    # The slot is free once the process is: the next job proves that it is not waited for.
    assign(connection, say, "pid")
    assert connection.settle(1)[0].kind == wire.OUTCOME_KIND_COMPLETE


@proves("external-api.HandlerRegistration.expect.6", "external-api.WorkerProcess.expect.1")
def test_many_that_compute_delay_no_heartbeat(start: Heavy, say: Any) -> None:
    """More than there are cores, at a heartbeat each 50 ms."""
    _, connection, _ = start(heartbeat_s=0.05)
    jobs = [f"j{number}" for number in range(6)]
    for job in jobs:
        assign(connection, say, "spin", job_id=job)
    begun: set[str] = set()
    while begun != set(jobs):
        begun |= {report.job_id for report in connection.next("progress").progress}
    for _ in range(10):
        held = connection.next("heartbeat").held
        assert {one.job_id for one in held} == set(jobs)
    connection.send(*(say.cancel(job, "t") for job in jobs))
    ended: set[str] = set()
    while ended != set(jobs):
        ended |= {outcome.job_id for outcome in connection.settle(1)}


def test_what_lives_as_long_as_the_worker_lives_as_long_as_the_process(
    start: Heavy, say: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    monkeypatch.setenv("HEAVY_CLOSED", str(closed))
    worker, connection, ended = start()
    for number in (1, 2):
        assign(connection, say, "uses", job_id=str(number))
        assert connection.settle(1)[0].result == str(number).encode()
    worker.stop()
    assert ended.result(20.0) == 0
    assert closed.read_text() == "closed after 2"


def test_they_may_have_processes_of_their_own(start: Heavy, say: Any) -> None:
    _, connection, _ = start()
    assign(connection, say, "has_children")
    assert connection.settle(1)[0].result == b"0"


def test_what_cannot_be_sent_of_a_log_goes_as_its_text(
    start: Heavy, say: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    _, connection, _ = start()
    assign(connection, say, "logs_oddly")
    assert connection.settle(1)[0].kind == wire.OUTCOME_KIND_COMPLETE
    first, second, third = (r for r in caplog.records if r.name == "theirs")
    assert first.getMessage() == "of a lock: x"
    assert first.__dict__["lock"].startswith("<unlocked _thread.lock object")
    assert first.__dict__["pair"] == {"a": [1, "b"]}
    told = "an Unspeakable whose text cannot be had: ValueError"
    assert (second.getMessage(), second.__dict__["odd"]) == ("%d of too few", told)
    assert third.getMessage() == f"{told} ()"
    assert "Logging error" not in capfd.readouterr().err


def test_no_job_sees_the_context_variables_of_another(start: Heavy, say: Any) -> None:
    _, connection, _ = start()
    for number in range(3):
        assign(connection, say, "finds", job_id=str(number))
        assert connection.settle(1)[0].result == b'"nobody"'


def started_by(connection: Any) -> tuple[int, int]:
    """The handler's process, and the program that it has started."""
    handler, program = connection.next("progress").progress[0].message.split()
    return int(handler), int(program)


HOWS = ["group", "session", "orphan"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("by", ["cancel", "timeout"])
def test_ending_one_ends_all_that_it_has_started(start: Heavy, say: Any, how: str, by: str) -> None:
    _, connection, _ = start()
    assign(connection, say, "starts", how)
    handler, program = started_by(connection)
    if by == "cancel":
        connection.send(say.cancel("starts", "t", force=True))
        assert connection.settle(1)[0].kind == wire.OUTCOME_KIND_ACK_EXECUTING
        # The slot is free only now.
        assert gone(handler)
        assert gone(program)
    else:
        # Claimed anew while it runs, and now with a timeout: the start of a process takes long.
        connection.send(say.assigned(say.assignment("starts", "t2", "starts", timeout_s=0.01)))
        assert connection.settle(1)[0].error.category == wire.ERROR_CATEGORY_TIMEOUT
        wait_for_end(program)


@pytest.mark.parametrize("how", HOWS)
def test_one_that_dies_takes_along_what_it_has_started(start: Heavy, say: Any, how: str) -> None:
    _, connection, _ = start(heartbeat_s=0.05)
    assign(connection, say, "starts", f"{how} dies")
    handler, program = started_by(connection)
    kept = connection.next("checkpoints").checkpoints[0]
    ack = wire.CheckpointAck(job_id="starts", token="t", number=kept.number)
    connection.send(wire.ServerMessage(checkpoint_acks=wire.CheckpointAcks(acks=[ack])))
    (outcome,) = connection.settle(1)
    assert outcome.error.code == "PROCESS_DIED"
    assert "signal SIGKILL" in outcome.error.message
    assert gone(handler)
    assert gone(program)


def test_one_that_does_not_close_in_time_ends_with_all_that_it_has_started() -> None:
    processes = Processes()
    done = processes.call(heavy.worker.registry.known("lingers"), job_context(), 1024)
    processes.close(0.01)
    wait_for_end(int(done.body))


def test_what_was_left_behind_and_has_ended_takes_no_number(start: Heavy, say: Any) -> None:
    """A process runs jobs for days: nothing but the supervisor is there to read those statuses."""
    _, connection, _ = start()
    for number in range(3):
        assign(connection, say, "leaves", job_id=str(number))
        wait_until_read(int(connection.settle(1)[0].result))
    assign(connection, say, "pid")
    assert not gone(int(connection.settle(1)[0].result))


def test_the_test_kit_runs_them_here() -> None:
    assert run_handler(heavy.worker, "pid") == os.getpid()


def processes_of(parent: int) -> set[int]:
    """Its children, and theirs."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # One that ends meanwhile is no child to look for.
        with contextlib.suppress(OSError):
            _, _, rest = stat.read_text().rpartition(") ")
            if int(rest.split()[1]) == parent:
                found.add(int(stat.parent.name))
    return found.union(*map(processes_of, found))


@proves("external-api.HandlerRegistration.expect.6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_worker(server: Any, say: Any, number: signal.Signals) -> None:
    """The busy one is deaf to SIGTERM, the other waits for a job."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "queue_operator.worker.main", "tests.unit.worker.heavy:worker"],
        env=os.environ
        | {
            "QUEUE_OPERATOR_HEALTH_PORT": "0",
            "QUEUE_OPERATOR_GRACE_S": "0",
            "QUEUE_OPERATOR_SERVER": f"127.0.0.1:{server.port}",
        },
        stderr=subprocess.PIPE,
    )
    try:
        connection = server.accept()
        assign(connection, say, "pid")
        idle = int(connection.settle(1)[0].result)
        assign(connection, say, "deaf", "", job_id="deaf")
        assign(connection, say, "pid", job_id="again")
        busy = spinning(connection)
        connection.settle(1)
        assign(connection, say, "starts", "session", job_id="starts")
        starter, program = started_by(connection)
        children = processes_of(worker.pid)
        assert {busy, idle, starter, program} <= children
        worker.send_signal(number)
        if number is signal.SIGTERM:
            handed_back = {one.job_id for one in connection.settle(2)}
            assert handed_back == {"deaf", "starts"}
        worker.communicate(timeout=30)
        assert worker.returncode == (0 if number is signal.SIGTERM else -number)
        for pid in children:
            wait_for_end(pid)
    finally:
        worker.kill()


def wait_for_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([handle], [], [], 30.0)[0], f"process {pid} lives on"
    os.close(handle)


def wait_until_read(pid: int) -> None:
    """Until nothing is left of it, also not its status."""
    until_s = time.monotonic() + 10.0
    while not gone(pid):
        assert time.monotonic() < until_s, f"process {pid} has ended, and is still there"
        select.select([], [], [], 0.01)
