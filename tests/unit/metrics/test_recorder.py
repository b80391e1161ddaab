"""What is counted, and under which labels."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key

from queue_operator.domain.errors import InvalidTransition, StaleLease, Unavailable
from queue_operator.domain.job import Assignment, Job
from queue_operator.domain.lease import Lost
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event, JobState
from queue_operator.metrics.labels import LabelBudget
from queue_operator.metrics.recorder import OUTCOMES, Recorder

START = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Bench:
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    elapsed: float = 0.0

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.registry, LabelBudget(), monotonic=lambda: self.elapsed)

    def value(self, name: str, **labels: str) -> float:
        return exposition.of(self.registry).get(key(name, **labels), 0.0)

    def assign(self, job_id: str, attempt: int = 1, job_type: str = "mail") -> None:
        given = Assignment(
            job_id=job_id,
            namespace="ns",
            type=job_type,
            payload=b"",
            content_type="",
            tags=frozenset(),
            attempt=attempt,
            token="t",
            assignee_id="w",
            created_at=START,
            eligible_at=START,
            assigned_at=START + timedelta(seconds=self.elapsed),
        )
        self.recorder.assigned([given])

    def settle(self, outcome: Outcome, answer: Settled) -> None:
        self.recorder.settled([(outcome, answer)])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_attempt_of_before_a_restart_is_counted_under_its_type(bench: Bench) -> None:
    answer = Settled("a", "ns", JobState.COMPLETED, type="mail")
    bench.settle(outcome("a", Event.COMPLETE), answer)
    labels = {"namespace": "ns", "type": "mail", "outcome": "completed", "error_class": ""}
    assert bench.value("queueoperator_job_attempts_total", **labels) == 1
    bench.settle(outcome("b", Event.COMPLETE), Settled("b", "ns", JobState.COMPLETED))
    assert bench.value("queueoperator_job_attempts_total", **labels | {"type": "unknown"}) == 1


def outcome(job_id: str, event: Event, error: ErrorInfo | None = None) -> Outcome:
    return Outcome(job_id, event, "ns", "t", error=error)


def test_an_attempt_is_counted_with_how_long_it_waited_and_ran(bench: Bench) -> None:
    bench.elapsed = 2.0
    bench.assign("a")
    bench.elapsed = 9.0
    bench.settle(outcome("a", Event.COMPLETE), Settled("a", "ns", JobState.COMPLETED))
    labels = {"namespace": "ns", "type": "mail"}
    assert bench.value("queueoperator_job_wait_seconds_sum", **labels) == 2.0
    assert bench.value("queueoperator_job_run_seconds_sum", **labels) == 7.0
    attempts = bench.value(
        "queueoperator_job_attempts_total", **labels, outcome="completed", error_class=""
    )
    assert attempts == 1
    assert bench.value("queueoperator_jobs_finished_total", **labels, outcome="completed") == 1


def test_each_attempt_tells_how_long_its_job_waited(bench: Bench) -> None:
    bench.assign("a")
    bench.elapsed = 3.0
    bench.assign("a", attempt=2)
    labels = {"namespace": "ns", "type": "mail"}
    assert bench.value("queueoperator_job_wait_seconds_count", **labels) == 2
    assert bench.value("queueoperator_job_wait_seconds_sum", **labels) == 3.0


def test_a_failure_has_its_class_and_ends_the_job_only_when_it_does(bench: Bench) -> None:
    error = ErrorInfo("broken", ErrorCategory.TIMEOUT)
    for event, state in [
        (Event.FAIL, JobState.FAILED_RETRY),
        (Event.EXHAUST, JobState.DEAD_LETTER),
    ]:
        bench.assign("a")
        bench.settle(outcome("a", event, error), Settled("a", "ns", state))
    labels = {"namespace": "ns", "type": "mail"}
    failed = bench.value(
        "queueoperator_job_attempts_total", **labels, outcome="failed", error_class="TIMEOUT"
    )
    assert failed == 2
    assert bench.value("queueoperator_jobs_finished_total", **labels, outcome="dead_letter") == 1


def test_a_repeat_is_not_counted_again(bench: Bench) -> None:
    bench.assign("a")
    answer = Settled("a", "ns", JobState.COMPLETED, repeated=True)
    bench.settle(outcome("a", Event.COMPLETE), answer)
    assert (
        bench.value(
            "queueoperator_jobs_finished_total", namespace="ns", type="mail", outcome="completed"
        )
        == 0
    )


def test_refused_outcomes(bench: Bench) -> None:
    done = outcome("a", Event.COMPLETE)
    bench.settle(done, Settled("a", "ns", error=StaleLease("a")))
    bench.settle(done, Settled("a", "ns", error=InvalidTransition("a", "X", "Y")))
    assert bench.value("queueoperator_stale_outcomes_total", namespace="ns") == 1


def test_an_outcome_of_an_attempt_of_another_replica_has_no_type(bench: Bench) -> None:
    bench.settle(outcome("a", Event.STOP), Settled("a", "ns", JobState.STOPPED))
    labels = {"namespace": "ns", "type": "unknown"}
    assert bench.value("queueoperator_jobs_finished_total", **labels, outcome="stopped") == 1
    assert bench.value("queueoperator_job_run_seconds_count", **labels) == 0


def test_expired_leases_and_late_outcomes(bench: Bench) -> None:
    bench.assign("a")
    bench.recorder.expired([Lost("a", "ns", "w")])
    assert bench.value("queueoperator_leases_expired_total", namespace="ns") == 1
    bench.settle(outcome("a", Event.COMPLETE), Settled("a", "ns", JobState.COMPLETED))
    assert (
        bench.value(
            "queueoperator_jobs_finished_total", namespace="ns", type="mail", outcome="completed"
        )
        == 1
    )


def test_submissions(bench: Bench) -> None:
    bench.recorder.enqueued([Job(id=str(n), type="mail", namespace="ns") for n in range(3)])
    assert bench.value("queueoperator_jobs_submitted_total", namespace="ns", type="mail") == 3


def test_calls_and_their_errors(bench: Bench) -> None:
    bench.recorder.called("claim", 0.25, None)
    bench.recorder.called("claim", 0.5, Unavailable("down"))
    bench.recorder.called("claim", 0.25, KeyError("x"))
    assert bench.value("queueoperator_store_call_seconds_count", method="claim") == 3
    assert bench.value("queueoperator_store_call_seconds_sum", method="claim") == 1.0
    assert bench.value("queueoperator_store_errors_total", method="claim", code="UNAVAILABLE") == 1
    assert bench.value("queueoperator_store_errors_total", method="claim", code="KeyError") == 1


def test_every_event_of_a_worker_has_an_outcome() -> None:
    not_outcomes = {Event.CLAIM, Event.CANCEL, Event.LOSE, Event.RETRY_NOW, Event.SKIP}
    assert set(OUTCOMES) == set(Event) - not_outcomes


def test_labels_are_bounded() -> None:
    labels = LabelBudget(pairs=2, namespaces=2)
    assert labels.pair("a", "x") == ("a", "x")
    assert labels.pair("b", "y") == ("b", "y")
    assert labels.pair("a", "z") == ("a", "other")
    assert labels.pair("c", "x") == ("other", "other")
    assert labels.pair("a", "x") == ("a", "x")
    assert labels.namespace("c") == "other"


def test_the_largest_types_get_the_labels() -> None:
    labels = LabelBudget(pairs=1)
    labels.prefer([("a", "large"), ("a", "small")])
    assert labels.pair("a", "small") == ("a", "other")
    assert labels.pair("a", "large") == ("a", "large")
