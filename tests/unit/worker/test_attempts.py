"""What a worker's own log says of attempts that did not complete."""

import json
import logging
from typing import Any

import pytest

from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.observing.lines import JsonFormatter
from queue_operator.worker.attempts import LINES, WINDOW_S
from queue_operator.worker.runner import Completed, Failed, Stopped

ERROR = ErrorInfo(
    message="no\nnetwork", category=ErrorCategory.TEMPORARY, code="OSError", stack_trace="Trace\n"
)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "queue_operator.worker.attempts")
    return caplog


def told(log: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    return [one.getMessage() for one in log.records if one.levelno >= level]


def fail(rig: Any, job_id: str, error: ErrorInfo = ERROR) -> None:
    rig.session.finished(rig.assign(job_id, f"token-{job_id}"), Failed(error))


def test_a_failure_is_one_line(rig: Any, log: pytest.LogCaptureFixture) -> None:
    fail(rig, "a")
    assert told(log) == ["job a (work), attempt 1: failed, TEMPORARY OSError: no network\nTrace"]
    shown = json.loads(JsonFormatter().format(log.records[0]))
    assert (shown["level"], shown["job_id"], shown["job_type"]) == ("warning", "a", "work")
    assert (shown["attempt"], shown["category"], shown["code"]) == (1, "TEMPORARY", "OSError")
    assert shown["namespace"] == "team-a"
    assert "trace_id" not in shown


def test_a_line_of_a_traced_job_names_its_trace(rig: Any, log: pytest.LogCaptureFixture) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    parent = f"00-{trace}-b7ad6b7169203331-01"
    rig.session.finished(rig.assign("a", "t", traceparent=parent), Failed(ERROR))
    assert json.loads(JsonFormatter().format(log.records[0]))["trace_id"] == trace


def test_the_trace_is_told_once_of_each_kind(rig: Any, log: pytest.LogCaptureFixture) -> None:
    fail(rig, "a")
    fail(rig, "b")
    assert told(log)[1] == "job b (work), attempt 1: failed, TEMPORARY OSError: no network"
    assert [line for line in told(log, 0) if line not in told(log)] == [
        "job b (work), attempt 1: the trace\nTrace"
    ]


def test_a_long_message_is_cut(rig: Any, log: pytest.LogCaptureFixture) -> None:
    fail(rig, "a", ErrorInfo(message="x" * 5000, category=ErrorCategory.PERMANENT, code="C"))
    assert len(told(log)[0]) < 600


def test_a_success_says_nothing(rig: Any, log: pytest.LogCaptureFixture) -> None:
    rig.session.finished(rig.assign("a", "t"), Completed(b"", ""))
    assert told(log) == []
    assert all(timer.delay_s != WINDOW_S for timer in rig.timers)


def test_a_timeout_is_told_when_it_strikes(
    rig: Any, say: Any, log: pytest.LogCaptureFixture
) -> None:
    run = rig.assign("a", "t", timeout_s=5)
    rig.timers[0].action()
    rig.session.finished(run, Failed(ERROR))
    assert told(log) == [
        "job a (work), attempt 1: failed, TIMEOUT TIMEOUT: the handler ran longer than the job's "
        "timeout"
    ]


def test_a_type_without_a_handler_is_told(
    rig: Any, say: Any, log: pytest.LogCaptureFixture
) -> None:
    rig.session.receive(say.assigned(say.assignment("a", "t", "unknown")))
    assert "NO_HANDLER" in told(log)[0]


def test_what_was_cancelled_or_handed_back_is_told(
    rig: Any, say: Any, log: pytest.LogCaptureFixture
) -> None:
    run = rig.assign("a", "t")
    rig.session.receive(say.cancel("a", "t"))
    rig.session.finished(run, Stopped())
    rig.assign("b", "t")
    rig.session.hand_back()
    assert told(log) == [
        "job a (work), attempt 1: cancelled",
        "job b (work), attempt 1: handed back",
    ]
    assert told(log, logging.WARNING) == []


def test_a_storm_is_counted(rig: Any, log: pytest.LogCaptureFixture) -> None:
    for number in range(LINES + 5):
        fail(rig, f"j{number}")
    assert len(told(log)) == LINES
    (window,) = [timer for timer in rig.timers if timer.delay_s == WINDOW_S]
    window.action()
    assert told(log)[-1] == "left out of this log within 10 s: 5 failed"
    fail(rig, "late")
    assert told(log)[-1].startswith("job late ")


def test_the_end_of_the_worker_tells_what_was_left_out(
    rig: Any, say: Any, log: pytest.LogCaptureFixture
) -> None:
    runs = [rig.assign(f"j{number}", "t") for number in range(LINES + 2)]
    rig.session.hand_back()
    for run in runs:
        rig.session.finished(run, Stopped())
    rig.session.receive(say.ack(*rig.outcomes()))
    assert rig.done
    assert told(log)[-1] == "left out of this log within 10 s: 2 handed back"


def test_a_filter_of_the_users_that_raises_loses_no_outcome(rig: Any) -> None:
    def broken(_record: logging.LogRecord) -> bool:
        raise ValueError("a broken filter")

    logger = logging.getLogger("queue_operator.worker.attempts")
    logger.addFilter(broken)
    try:
        fail(rig, "a")
        fail(rig, "b")
    finally:
        logger.removeFilter(broken)
    assert [one.job_id for one in rig.outcomes()] == ["a", "b"]
