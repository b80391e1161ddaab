"""Counts what a replica's own calls to the store tell. What happens to jobs is counted from the
store's log instead, of which no replica sees all: see `job_counters`.
"""

from collections.abc import Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from prometheus_client import CollectorRegistry

from queue_operator.domain.errors import QueueError, StaleLease
from queue_operator.domain.outcome import Settled
from queue_operator.metrics import registry as table
from queue_operator.metrics.labels import LabelBudget

UNEXPECTED: Final = "unexpected"
"""The code of an error that is none of the queue's own."""

M = TypeVar("M", bound="_Labelled")


class _Labelled(Protocol):
    def labels(self, *values: str) -> Any: ...


class _Series(Generic[M]):
    """The series of a metric by their labels: to look one up there costs more than to count."""

    def __init__(self, metric: M) -> None:
        self._metric = metric
        self._known: dict[tuple[str, ...], M] = {}

    def of(self, *labels: str) -> M:
        series = self._known.get(labels)
        if series is None:
            series = self._known[labels] = self._metric.labels(*labels)
        return series


class Recorder:
    """Calls to the store and outcomes that it refused, in `registry`."""

    def __init__(self, registry: CollectorRegistry, labels: LabelBudget) -> None:
        self._labels = labels
        self._stale = _Series(table.counter(table.STALE_TOKENS, registry))
        self._calls = _Series(table.histogram(table.STORE_CALLS, registry))
        self._errors = _Series(table.counter(table.STORE_ERRORS, registry))

    def called(self, method: str, seconds: float, error: Exception | None) -> None:
        """One call to the store ended, with `error` if it raised."""
        self._calls.of(method).observe(seconds)
        if error is not None:
            code = error.code.lower() if isinstance(error, QueueError) else UNEXPECTED
            self._errors.of(method, code).inc()

    def settled(self, answers: Iterable[Settled]) -> None:
        """Outcomes were stored or refused."""
        for answer in answers:
            if answer.error is not None:
                self.refused(answer.namespace, answer.error)

    def refused(self, namespace: str, error: Exception) -> None:
        """An outcome was not stored."""
        if isinstance(error, StaleLease):
            self._stale.of(self._labels.namespace(namespace)).inc()
