"""What does not begin is handed back; what does not end is told of."""

import asyncio
import logging
import socket
import threading
from dataclasses import replace
from typing import Any

import pytest

from queue_operator.testing.clauses import proves
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker import JobContext
from queue_operator.worker.handlers import Place
from queue_operator.worker.runner import Completed, Stopped

DONE = Completed(b'"ok"', "application/json")
HAND_BACK = "HAND_BACK"


def kinds(rig: Any) -> list[tuple[str, str, str]]:
    """What was said since, and is acknowledged with this."""
    said = rig.outcomes()
    acks = [wire.OutcomeAck(job_id=one.job_id, token=one.token) for one in said]
    rig.session.receive(wire.ServerMessage(outcome_acks=wire.OutcomeAcks(acks=acks)))
    return [
        (o.job_id, o.token, wire.OutcomeKind.Name(o.kind).removeprefix("OUTCOME_KIND_"))
        for o in said
    ]


def beat(rig: Any, times: int) -> None:
    for _ in range(times):
        rig.session.heartbeat()


def timed_out(rig: Any) -> Any:
    """A run whose handler goes on."""
    run = rig.assign("a", "t1", timeout_s=1)
    rig.timers[-1].action()
    assert kinds(rig) == [("a", "t1", "FAIL")]
    return run


def test_an_attempt_that_waits_behind_a_stuck_handler_is_handed_back(rig: Any) -> None:
    stuck = timed_out(rig)
    for token in ("t2", "t3", "t4"):
        rig.assign("a", token)
        beat(rig, 2)
        assert kinds(rig) == []
        beat(rig, 1)
        assert kinds(rig) == [("a", token, HAND_BACK)]
    rig.session.finished(stuck, Stopped())
    assert rig.started == [stuck]
    assert kinds(rig) == []


def test_so_is_one_whose_time_is_over_while_it_waits(rig: Any) -> None:
    first = timed_out(rig)
    rig.assign("a", "t2", timeout_s=1)
    rig.timers[-1].action()
    assert kinds(rig) == [("a", "t2", HAND_BACK)]
    rig.session.finished(first, DONE)
    assert rig.started == [first]


def test_one_that_begins_in_time_runs(rig: Any) -> None:
    first = timed_out(rig)
    rig.assign("a", "t2")
    beat(rig, 2)
    rig.session.finished(first, DONE)
    assert [run.token for run in rig.started] == ["t1", "t2"]
    beat(rig, 9)
    assert kinds(rig) == []
    rig.session.finished(rig.started[1], DONE)
    assert kinds(rig) == [("a", "t2", "COMPLETE")]


def test_what_a_blocked_loop_keeps_from_beginning_is_handed_back_and_never_begins(
    rig: Any,
) -> None:
    rig.begins = False
    run = rig.assign("a", "t1")
    beat(rig, 2)
    assert kinds(rig) == []
    beat(rig, 1)
    assert kinds(rig) == [("a", "t1", HAND_BACK)]
    assert rig.interrupted == [run]
    assert not run.begin()
    # It keeps its slot until the loop is free.
    assert rig.held() == [("a", "t1")]
    rig.session.finished(run, Stopped())
    assert (kinds(rig), rig.held()) == ([], [])


def test_a_timeout_before_the_beginning_counts_no_attempt(rig: Any) -> None:
    rig.begins = False
    rig.assign("a", "t1", timeout_s=1)
    rig.timers[-1].action()
    assert kinds(rig) == [("a", "t1", HAND_BACK)]


@pytest.mark.parametrize("force", [True, False])
def test_a_cancel_before_the_beginning_is_obeyed_at_once(rig: Any, say: Any, force: bool) -> None:
    rig.begins = False
    run = rig.assign("a", "t1")
    rig.session.receive(say.cancel("a", "t1", force=force))
    assert kinds(rig) == [("a", "t1", "ACK_EXECUTING")]
    assert not run.begin()
    rig.session.finished(run, Stopped())
    assert kinds(rig) == []


def test_what_was_handed_back_or_lost_never_begins(rig: Any, say: Any) -> None:
    rig.begins = False
    lost, handed_back = rig.assign("a", "t1"), rig.assign("b", "t1")
    rig.session.receive(say.lease("a", "t1", wire.LEASE_STATUS_TAKEN_OVER))
    rig.session.hand_back()
    assert not lost.begin()
    assert not handed_back.begin()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (Place.THREAD, 'runs_in="process"'),
        (Place.LOOP, "asyncio.CancelledError"),
        (Place.PROCESS, "the kernel waits"),
    ],
)
def test_a_handler_that_goes_on_is_told_of_once_and_makes_the_worker_unready(
    rig: Any, caplog: pytest.LogCaptureFixture, place: Place, told: str
) -> None:
    run = timed_out(rig)
    object.__setattr__(run.spec, "place", place)
    caplog.clear()
    beat(rig, 5)
    assert not rig.session.stuck
    beat(rig, 5)
    assert rig.session.stuck
    [line] = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert "job a (work) is over" in line.getMessage()
    assert told in line.getMessage()
    assert "restart the worker" in line.getMessage()
    rig.session.finished(run, DONE)
    assert not rig.session.stuck


def test_what_has_not_ended_yet_may_take_its_time(rig: Any) -> None:
    rig.assign("a", "t1")
    beat(rig, 100)
    assert not rig.session.stuck
    assert kinds(rig) == []


def test_handing_back_is_explained_once(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "queue_operator.worker.stuck")
    timed_out(rig)
    for token in ("t2", "t3"):
        rig.assign("a", token)
        beat(rig, 3)
    warned = [r.getMessage() for r in caplog.records if "handed back" in r.getMessage()]
    assert len(warned) == 1
    assert "an earlier attempt still runs here" in warned[0]


@proves("external-api.HandlerRegistration.expect.13")
def test_a_stuck_function_burns_no_attempts_of_its_job(
    worker_with: Any, settings: Any, server: Any, run: Any, say: Any
) -> None:
    """One start, one TIMEOUT, and the rest of the attempts are still there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gate, starts = threading.Event(), []

    def stuck(ctx: JobContext) -> None:
        starts.append(ctx.attempt)
        gate.wait()

    worker = worker_with(stuck=stuck, quick=lambda ctx: None)
    worker.settings = replace(settings, health_port=port)
    run(worker)
    connection = server.accept(heartbeat_s=0.01)
    connection.send(say.assigned(say.assignment("a", "t1", "stuck", timeout_s=0.05)))
    assert connection.settle()[0].error.category == wire.ERROR_CATEGORY_TIMEOUT
    for token in ("t2", "t3"):
        connection.send(say.assigned(say.assignment("a", token, "stuck", timeout_s=0.05)))
        (outcome,) = connection.settle()
        assert (outcome.token, outcome.kind) == (token, wire.OUTCOME_KIND_HAND_BACK)
    assert starts == [1]
    for _ in range(6):
        connection.next("heartbeat")
    assert ready(port) == 503
    # What is not stuck goes on.
    connection.send(say.assigned(say.assignment("b", "t", "quick")))
    assert connection.settle()[0].kind == wire.OUTCOME_KIND_COMPLETE
    gate.set()
    connection.send(say.assigned(say.assignment("a", "t4", "stuck")))
    assert connection.settle()[0].kind == wire.OUTCOME_KIND_COMPLETE
    assert starts == [1, 1]
    assert ready(port) == 200


def ready(port: int) -> int:
    """The status of the probe."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as probe:
        probe.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
        return int(probe.makefile("rb").readline().split()[1])


def test_a_coroutine_that_blocks_the_loop_burns_no_attempts_of_others(
    worker_with: Any, server: Any, run: Any, say: Any
) -> None:
    gate, entered = threading.Event(), threading.Event()

    async def rude(ctx: JobContext) -> None:
        entered.set()
        gate.wait()

    async def polite(ctx: JobContext) -> None:
        await asyncio.sleep(0)

    run(worker_with(rude=rude, polite=polite))
    connection = server.accept(heartbeat_s=0.01)
    connection.send(say.assigned(say.assignment("a", "t1", "rude")))
    assert entered.wait(20)
    connection.send(say.assigned(say.assignment("b", "t1", "polite")))
    (outcome,) = connection.settle()
    assert (outcome.job_id, outcome.kind) == ("b", wire.OUTCOME_KIND_HAND_BACK)
    gate.set()
    assert connection.settle()[0].job_id == "a"
    connection.send(say.assigned(say.assignment("b", "t2", "polite")))
    (outcome,) = connection.settle()
    assert (outcome.token, outcome.kind) == ("t2", wire.OUTCOME_KIND_COMPLETE)
