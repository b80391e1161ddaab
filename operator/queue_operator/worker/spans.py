"""Spans of the jobs that run here, from where a handler begins until its outcome counts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from queue_operator.domain.traces import Trace
from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Attempt, Running, Settling, Tracing
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.context import WorkerIdentity
from queue_operator.worker.runner import Completed, Ending, Failed, Run, Stopped

FLUSH_S: Final = 2.0
"""At the end, how long the collector may take for what is left."""
_OUTCOMES: Final[dict[wire.OutcomeKind.ValueType, str]] = {
    wire.OUTCOME_KIND_COMPLETE: "complete",
    wire.OUTCOME_KIND_FAIL: "fail",
    wire.OUTCOME_KIND_HAND_BACK: "hand_back",
    wire.OUTCOME_KIND_ACK_EXECUTING: "stop",
    wire.OUTCOME_KIND_ACK_UNKNOWN: "unknown",
}


class Spans:
    """`around` is called where the handler runs, all else on the session's thread."""

    def __init__(self, tracing: Tracing, worker: WorkerIdentity) -> None:
        self._tracing = tracing
        self._worker = worker
        self._unanswered: dict[str, Settling] = {}

    @classmethod
    def of(cls, tracing: Tracing, worker: WorkerIdentity) -> "Spans | None":
        """None where nothing is recorded: nobody asks then."""
        return None if tracing is OFF else cls(tracing, worker)

    @contextmanager
    def around(self, run: Run) -> Iterator[Callable[[Ending], None]]:
        """The handler runs in a span, which is told how it ended."""
        with self._tracing.running(self._attempt(run)) as running:
            run.trace = running.trace
            yield lambda ending: _tell(running, ending)

    def said(self, run: Run, outcome: wire.Outcome) -> None:
        """An outcome is on its way. Of what never began there is none to tell of."""
        if run.trace.parent:
            named = _OUTCOMES.get(outcome.kind, "unknown")
            self._unanswered[run.job_id] = self._tracing.settling(
                self._attempt(run), run.trace, named, outcome.error.code
            )

    def answered(self, ack: wire.OutcomeAck) -> None:
        """The server has stored an outcome, or refused it."""
        settling = self._unanswered.pop(ack.job_id, None)
        if settling is not None:
            settling.answered(ack.state, ack.error_code)

    def _attempt(self, run: Run) -> Attempt:
        context = run.context
        return Attempt(
            job_id=run.job_id,
            type=run.spec.type,
            namespace=context.worker.namespace,
            number=context.attempt,
            worker=self._worker.name,
            correlation_id=context.correlation_id,
            trace=Trace(context.traceparent, context.tracestate),
        )


def _tell(running: Running, ending: Ending) -> None:
    match ending:
        case Completed():
            running.ended("completed")
        case Failed():
            running.ended("failed", ending.error)
        case Stopped():
            running.ended("stopped")
