"""Counts what happens to jobs."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from prometheus_client import CollectorRegistry

from queue_operator.domain.errors import QueueError, StaleLease
from queue_operator.domain.job import Assignment, Job
from queue_operator.domain.lease import Lost
from queue_operator.domain.outcome import ErrorCategory, Outcome, Settled
from queue_operator.domain.states import Event, JobState, is_terminal
from queue_operator.metrics import registry as table
from queue_operator.metrics.labels import LabelBudget
from queue_operator.metrics.tally import Tally, TallyHistogram

UNKNOWN_TYPE: Final = "unknown"
"""Type of an attempt that another replica assigned, where the store does not tell it either."""

_MAX_RUNNING: Final = 100_000

OUTCOMES: Final = {
    Event.COMPLETE: "completed",
    Event.FAIL: "failed",
    Event.EXHAUST: "failed",
    Event.STOP: "stopped",
    Event.STOP_WITH_RETRY: "stopped",
    Event.ACK_EXECUTING: "stopped",
    Event.MARK_UNKNOWN_STOPPED: "unknown",
    Event.ACK_UNKNOWN: "unknown",
    Event.RELEASE: "released",
    Event.HAND_BACK: "handed_back",
}
"""The outcome label by event."""


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


class _Kind:
    """A namespace and a job type, and the series that every job of them is counted in."""

    __slots__ = ("labels", "run", "wait")

    def __init__(self, labels: tuple[str, str], wait: Tally, run: Tally) -> None:
        self.labels = labels
        self.wait = wait
        self.run = run


class _End(NamedTuple):
    """How an attempt ended."""

    kind: _Kind
    event: Event
    category: ErrorCategory | None
    state: JobState | None


class Recorder:
    """Every counter and histogram of the queue, in `registry`; `monotonic` measures runs."""

    def __init__(
        self,
        registry: CollectorRegistry,
        labels: LabelBudget,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._labels = labels
        self._monotonic = monotonic
        self._enqueued = _Series(table.counter(table.ENQUEUED, registry))
        self._attempts = _Series(table.counter(table.ATTEMPTS, registry))
        self._finished = _Series(table.counter(table.FINISHED, registry))
        self._wait = TallyHistogram(table.WAIT, registry)
        self._run = TallyHistogram(table.RUN, registry)
        self._expired = _Series(table.counter(table.LEASES_EXPIRED, registry))
        self._stale = _Series(table.counter(table.STALE_TOKENS, registry))
        self._calls = _Series(table.histogram(table.STORE_CALLS, registry))
        self._errors = _Series(table.counter(table.STORE_ERRORS, registry))
        self._kinds: dict[tuple[str, str], _Kind] = {}
        # When the attempt of a job (namespace, id) began.
        self._running: OrderedDict[tuple[str, str], tuple[_Kind, float]] = OrderedDict()

    def called(self, method: str, seconds: float, error: Exception | None) -> None:
        """One call to the store ended, with `error` if it raised."""
        self._calls.of(method).observe(seconds)
        if error is not None:
            code = error.code if isinstance(error, QueueError) else type(error).__name__
            self._errors.of(method, code).inc()

    def enqueued(self, jobs: Iterable[Job]) -> None:
        kinds = Counter((job.namespace, job.type) for job in jobs)
        for kind, count in kinds.items():
            self._enqueued.of(*self._labels.pair(*kind)).inc(count)

    def assigned(self, assignments: Iterable[Assignment]) -> None:
        """Attempts began; each tells how long its job could have been claimed before."""
        now = self._monotonic()
        for given in assignments:
            kind = self._begin(given.namespace, given.job_id, given.type, now)
            if given.eligible_at is not None and given.assigned_at is not None:
                waited_s = (given.assigned_at - given.eligible_at).total_seconds()
                kind.wait.observe(max(0.0, waited_s))

    def claimed(self, jobs: Iterable[Job]) -> None:
        """Attempts began through the library's dequeue."""
        now = self._monotonic()
        for job in jobs:
            self._begin(job.namespace, job.id, job.type, now)

    def settled(self, pairs: Iterable[tuple[Outcome, Settled]]) -> None:
        """Outcomes were stored or refused; repeats are not counted again."""
        now = self._monotonic()
        last, count = None, 0
        for outcome, answer in pairs:
            if answer.error is not None:
                self.refused(outcome.namespace, answer.error)
            elif not answer.repeated:
                category = None if outcome.error is None else outcome.error.category
                kind = self._end(outcome.namespace, outcome.job_id, now, answer.type)
                end = _End(kind, outcome.event, category, answer.state)
                # Most of a batch end alike, and are counted at once.
                if end != last:
                    self._count(last, count)
                    last, count = end, 0
                count += 1
        self._count(last, count)

    def refused(self, namespace: str, error: Exception) -> None:
        """An outcome was not stored."""
        if isinstance(error, StaleLease):
            self._stale.of(self._labels.namespace(namespace)).inc()

    def expired(self, lost: Iterable[Lost]) -> None:
        """The sweeper took jobs away."""
        for job in lost:
            # The attempt is remembered: its late outcome may still count.
            self._expired.of(self._labels.namespace(job.namespace)).inc()

    def ended(
        self,
        key: tuple[str, str],
        event: Event,
        category: ErrorCategory | None = None,
        state: JobState | None = None,
    ) -> None:
        """The attempt of the job `key` (namespace, id) ended; `state` if it is known."""
        kind = self._end(*key, self._monotonic())
        self._count(_End(kind, event, category, state), 1)

    def _count(self, end: _End | None, count: int) -> None:
        if end is None:
            return
        labels = end.kind.labels
        error_class = "" if end.category is None else end.category.value
        outcome = OUTCOMES.get(end.event, end.event.lower())
        self._attempts.of(*labels, outcome, error_class).inc(count)
        if end.state is not None and is_terminal(end.state):
            self._finished.of(*labels, end.state.lower()).inc(count)

    def _begin(self, namespace: str, job_id: str, job_type: str, now: float) -> _Kind:
        kind, key = self._kind(namespace, job_type), (namespace, job_id)
        # At the end of the line, also where an earlier attempt is known.
        self._running.pop(key, None)
        self._running[key] = kind, now
        if len(self._running) > _MAX_RUNNING:
            # Attempts that ended on another replica are never heard of here.
            self._running.popitem(last=False)
        return kind

    def _end(self, namespace: str, job_id: str, now: float, job_type: str = "") -> _Kind:
        begun = self._running.pop((namespace, job_id), None)
        if begun is None:
            # It began before this process did, or at another replica.
            return self._kind(namespace, job_type or UNKNOWN_TYPE)
        kind, since = begun
        kind.run.observe(now - since)
        return kind

    def _kind(self, namespace: str, job_type: str) -> _Kind:
        kind = self._kinds.get((namespace, job_type))
        if kind is None:
            labels = self._labels.pair(namespace, job_type)
            kind = _Kind(labels, self._wait.of(*labels), self._run.of(*labels))
            # Of those beyond the budget, which share one series, no more is remembered.
            if labels == (namespace, job_type):
                self._kinds[labels] = kind
        return kind
