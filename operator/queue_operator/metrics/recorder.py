"""Counts what happens to jobs."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from queue_operator.domain.errors import QueueError, StaleLease
from queue_operator.domain.job import Assignment, Job
from queue_operator.domain.lease import Lost
from queue_operator.domain.outcome import ErrorCategory, Outcome, Settled
from queue_operator.domain.states import Event, JobState, is_terminal
from queue_operator.metrics import registry as table
from queue_operator.metrics.labels import LabelBudget

UNKNOWN_TYPE: Final = "unknown"
"""Type of an attempt that another replica assigned: outcomes do not say it."""

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


@dataclass(frozen=True, slots=True)
class _Running:
    type: str
    since: float


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
        self._enqueued = table.counter(table.ENQUEUED, registry)
        self._attempts = table.counter(table.ATTEMPTS, registry)
        self._finished = table.counter(table.FINISHED, registry)
        self._wait = table.histogram(table.WAIT, registry)
        self._run = table.histogram(table.RUN, registry)
        self._expired = table.counter(table.LEASES_EXPIRED, registry)
        self._stale = table.counter(table.STALE_TOKENS, registry)
        self._calls = table.histogram(table.STORE_CALLS, registry)
        self._errors = table.counter(table.STORE_ERRORS, registry)
        self._running: OrderedDict[tuple[str, str], _Running] = OrderedDict()

    def called(self, method: str, seconds: float, error: Exception | None) -> None:
        """One call to the store ended, with `error` if it raised."""
        self._calls.labels(method).observe(seconds)
        if error is not None:
            code = error.code if isinstance(error, QueueError) else type(error).__name__
            self._errors.labels(method, code).inc()

    def enqueued(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._enqueued.labels(*self._labels.pair(job.namespace, job.type)).inc()

    def assigned(self, assignments: Iterable[Assignment]) -> None:
        """Attempts began; each tells how long its job could have been claimed before."""
        for given in assignments:
            self._begin(given.namespace, given.job_id, given.type)
            if given.eligible_at is not None and given.assigned_at is not None:
                labels = self._labels.pair(given.namespace, given.type)
                waited_s = (given.assigned_at - given.eligible_at).total_seconds()
                self._wait.labels(*labels).observe(max(0.0, waited_s))

    def claimed(self, jobs: Iterable[Job]) -> None:
        """Attempts began through the library's dequeue."""
        for job in jobs:
            self._begin(job.namespace, job.id, job.type)

    def settled(self, pairs: Iterable[tuple[Outcome, Settled]]) -> None:
        """Outcomes were stored or refused; repeats are not counted again."""
        for outcome, answer in pairs:
            if answer.error is not None:
                self.refused(outcome.namespace, answer.error)
            elif not answer.repeated:
                category = None if outcome.error is None else outcome.error.category
                key = (outcome.namespace, outcome.job_id)
                self.ended(key, outcome.event, category, answer.state)

    def refused(self, namespace: str, error: Exception) -> None:
        """An outcome was not stored."""
        if isinstance(error, StaleLease):
            self._stale.labels(self._labels.namespace(namespace)).inc()

    def expired(self, lost: Iterable[Lost]) -> None:
        """The sweeper took jobs away."""
        for job in lost:
            # The attempt is remembered: its late outcome may still count.
            self._expired.labels(self._labels.namespace(job.namespace)).inc()

    def ended(
        self,
        key: tuple[str, str],
        event: Event,
        category: ErrorCategory | None = None,
        state: JobState | None = None,
    ) -> None:
        """The attempt of the job `key` (namespace, id) ended; `state` if it is known."""
        running = self._running.pop(key, None)
        job_type = UNKNOWN_TYPE if running is None else running.type
        labels = self._labels.pair(key[0], job_type)
        error_class = "" if category is None else category.value
        self._attempts.labels(*labels, OUTCOMES.get(event, event.lower()), error_class).inc()
        if running is not None:
            self._run.labels(*labels).observe(self._monotonic() - running.since)
        if state is not None and is_terminal(state):
            self._finished.labels(*labels, state.lower()).inc()

    def _begin(self, namespace: str, job_id: str, job_type: str) -> None:
        self._running[namespace, job_id] = _Running(job_type, self._monotonic())
        self._running.move_to_end((namespace, job_id))
        if len(self._running) > _MAX_RUNNING:
            # Attempts that ended on another replica are never heard of here.
            self._running.popitem(last=False)
