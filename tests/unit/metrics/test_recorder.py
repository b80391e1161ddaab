"""What is counted of a replica's own calls, and under which labels."""

from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.metrics import exposition
from tests.unit.metrics.exposition import key

from queue_operator.domain.errors import InvalidTransition, StaleLease, Unavailable
from queue_operator.domain.outcome import Settled
from queue_operator.domain.states import JobState
from queue_operator.metrics.labels import LabelBudget
from queue_operator.metrics.recorder import Recorder


@dataclass
class Bench:
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.registry, LabelBudget())

    def value(self, name: str, **labels: str) -> float:
        return exposition.of(self.registry).get(key(name, **labels), 0.0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_refused_outcomes(bench: Bench) -> None:
    bench.recorder.settled(
        [
            Settled("a", "ns", JobState.COMPLETED),
            Settled("b", "ns", error=StaleLease("b")),
            Settled("c", "ns", error=InvalidTransition("c", "X", "Y")),
        ]
    )
    bench.recorder.refused("ns", StaleLease("d"))
    assert bench.value("queueoperator_stale_outcomes_total", namespace="ns") == 2


def test_calls_and_their_errors(bench: Bench) -> None:
    bench.recorder.called("claim", 0.25, None)
    bench.recorder.called("claim", 0.5, Unavailable("down"))
    bench.recorder.called("claim", 0.25, KeyError("x"))
    assert bench.value("queueoperator_store_call_seconds_count", method="claim") == 3
    assert bench.value("queueoperator_store_call_seconds_sum", method="claim") == 1.0
    assert bench.value("queueoperator_store_errors_total", method="claim", code="unavailable") == 1
    assert bench.value("queueoperator_store_errors_total", method="claim", code="unexpected") == 1


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
