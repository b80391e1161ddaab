"""What a worker counts of itself: each attempt once, whatever became of it."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.metrics.worker import MAX_TYPES, WorkerFigures
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.figures import ENDS, LAG_S, LagWatch, Standing
from queue_operator.worker.runner import Completed, Failed, Run, Stopped

DONE = Completed(b"1", "application/json")
IDLE = Standing(connected=False, busy=0, free=1, handlers=1, unsent=0, stuck=0)


def failed(category: ErrorCategory) -> Failed:
    return Failed(ErrorInfo(message="no", category=category, code="NO"))


def completes(rig: Any, say: Any, run: Run) -> None:
    rig.session.finished(run, DONE)


def fails(rig: Any, say: Any, run: Run) -> None:
    rig.session.finished(run, failed(ErrorCategory.PERMANENT))


def is_cancelled(rig: Any, say: Any, run: Run) -> None:
    rig.session.receive(say.cancel("a", "t"))
    rig.session.finished(run, Stopped())


def is_timed_out(rig: Any, say: Any, run: Run) -> None:
    rig.timers[-1].action()
    rig.session.finished(run, DONE)


def is_handed_back(rig: Any, say: Any, run: Run) -> None:
    rig.session.hand_back()
    rig.session.finished(run, Stopped())


def is_taken_over(rig: Any, say: Any, run: Run) -> None:
    rig.session.receive(say.lease("a", "t", wire.LEASE_STATUS_TAKEN_OVER))
    rig.session.finished(run, DONE)


def is_ended(rig: Any, say: Any, run: Run) -> None:
    rig.session.receive(say.lease("a", "t", wire.LEASE_STATUS_ENDED))
    rig.session.finished(run, Stopped())


def is_ended_and_completes(rig: Any, say: Any, run: Run) -> None:
    rig.session.receive(say.lease("a", "t", wire.LEASE_STATUS_ENDED))
    rig.session.finished(run, DONE)


def is_abandoned(rig: Any, say: Any, run: Run) -> None:
    rig.session.abandon()
    rig.session.finished(run, Stopped())


@pytest.mark.parametrize(
    ("happens", "outcome", "error_class", "leases_lost"),
    [
        (completes, "completed", "", 0),
        (fails, "failed", "permanent", 0),
        (is_cancelled, "stopped", "", 0),
        (is_timed_out, "failed", "timeout", 0),
        (is_handed_back, "handed_back", "", 0),
        (is_taken_over, "lost", "", 1),
        (is_ended, "lost", "", 1),
        (is_ended_and_completes, "completed", "", 1),
        (is_abandoned, "lost", "", 0),
    ],
)
def test_an_attempt_is_counted_once_and_timed(
    rig: Any,
    say: Any,
    happens: Callable[[Any, Any, Run], None],
    outcome: str,
    error_class: str,
    leases_lost: int,
) -> None:
    run = rig.assign("a", "t", timeout_s=5)
    before = exposition.of(rig.figures.registry)
    ended = key("queueworker_attempts_total", type="work", outcome=outcome, error_class=error_class)
    # So that the first of them is an increase.
    assert before[ended] == 0
    happens(rig, say, run)
    found = exposition.of(rig.figures.registry)
    assert found[ended] == 1
    assert total(found, "queueworker_attempts_total") == 1
    assert found[key("queueworker_attempt_seconds_count", type="work")] == 1
    assert found[key("queueworker_leases_lost_total")] == leases_lost


def total(found: exposition.Samples, name: str) -> float:
    return sum(value for (sample, _), value in found.items() if sample == name)


def test_what_never_began_has_no_duration(rig: Any) -> None:
    rig.begins = False
    rig.assign("a", "t", timeout_s=5)
    rig.timers[-1].action()
    found = exposition.of(rig.figures.registry)
    assert total(found, "queueworker_attempts_total") == 1
    assert total(found, "queueworker_attempt_seconds_count") == 0


def test_slots_outcomes_and_sessions_are_as_they_are(rig: Any, say: Any) -> None:
    rig.session.receive(say.welcome())
    run = rig.assign("a", "t1")
    rig.assign("b", "t2")
    rig.session.finished(run, DONE)
    found = exposition.of(rig.figures.registry)
    for name, value in {"busy": 1, "free": 6}.items():
        assert found[key("queueworker_slots", state=name)] == value
    assert found[key("queueworker_outcomes_unsent")] == 1
    assert found[key("queueworker_sessions_total")] == 1
    assert found[key("queueworker_handlers")] == 2
    assert found[key("queueworker_connected")] == 1
    rig.session.drain()
    assert exposition.of(rig.figures.registry)[key("queueworker_slots", state="free")] == 0


def test_a_heartbeat_is_timed_from_when_it_is_sent_to_its_answer(rig: Any, say: Any) -> None:
    rig.assign("a", "t")
    assert key("queueworker_last_heartbeat_answer_timestamp_seconds") not in exposition.of(
        rig.figures.registry
    )
    rig.session.heartbeat()
    assert len(rig.sent("heartbeat")) == 1
    answer = say.lease("a", "t", wire.LEASE_STATUS_CURRENT)
    rig.session.receive(answer)
    # An answer to nothing: leases are told of for other reasons, too.
    rig.session.receive(answer)
    found = exposition.of(rig.figures.registry)
    assert found[key("queueworker_heartbeats_total")] == 1
    assert found[key("queueworker_heartbeat_answer_seconds_count")] == 1
    assert found[key("queueworker_last_heartbeat_answer_timestamp_seconds")] > 0


def test_a_handler_that_goes_on_is_stuck(rig: Any, say: Any) -> None:
    run = rig.assign("a", "t", timeout_s=5)
    rig.timers[-1].action()
    for _ in range(6):
        rig.session.heartbeat()
    assert exposition.of(rig.figures.registry)[key("queueworker_stuck_handlers")] == 1
    rig.session.finished(run, Stopped())
    assert exposition.of(rig.figures.registry)[key("queueworker_stuck_handlers")] == 0


def test_a_type_that_is_registered_later_is_known(rig: Any) -> None:
    rig.registry.add(replace(rig.registry.known("work"), type="late"))
    rig.session.announce()
    later = key("queueworker_attempts_total", type="late", outcome="completed", error_class="")
    assert exposition.of(rig.figures.registry)[later] == 0


def test_many_types_share_a_name_at_last() -> None:
    figures = WorkerFigures(("0.1", "w", "there:1"), ENDS, lambda: IDLE)
    figures.know(f"type-{number}" for number in range(2 * MAX_TYPES))
    for number in range(2 * MAX_TYPES):
        figures.ended(f"type-{number}", "completed", "", 0.1)
    found = exposition.of(figures.registry)
    types = {
        dict(labels)["type"]: value
        for (name, labels), value in found.items()
        if name == "queueworker_attempt_seconds_count"
    }
    assert len(types) == MAX_TYPES + 1
    assert types["other"] == MAX_TYPES


def test_prometheus_finds_nothing_to_say_against_them(rig: Any) -> None:
    rig.assign("a", "t")
    text = generate_latest(rig.figures.registry)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


class Loop:
    """A loop whose clock and timer the test holds."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, due_s: float, action: Callable[[], None]) -> None:
        self.timers.append((due_s, action))


def test_the_lag_of_a_loop_is_how_late_its_timer_fires() -> None:
    loop: Any = Loop()
    seen: list[float] = []
    LagWatch(loop, seen.append).start()
    for late_s in (0.0, 3.0):
        due_s, action = loop.timers.pop()
        assert due_s == loop.now_s + LAG_S
        loop.now_s = due_s + late_s
        action()
    assert seen == [0.0, 3.0]
