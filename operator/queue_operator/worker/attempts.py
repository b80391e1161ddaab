"""The worker's own log of attempts that did not complete, kept short while many fail at once."""

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from queue_operator.domain.texts import cut
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.runner import Timer

logger = logging.getLogger(__name__)

LINES: Final = 20
WINDOW_S: Final = 10.0
"""So many lines in so many seconds; then only how many more there were."""
MAX_TEXT_BYTES: Final = 500
MAX_KINDS: Final = 1000

_ENDS: Final = {
    wire.OUTCOME_KIND_FAIL: "failed",
    wire.OUTCOME_KIND_ACK_EXECUTING: "cancelled",
    wire.OUTCOME_KIND_HAND_BACK: "handed back",
}


class AttemptLog:
    """One line for each attempt that failed, was cancelled or handed back. The first failure
    of a kind (type of job and code) has its trace, the others at level DEBUG.
    """

    def __init__(self, schedule: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._schedule = schedule
        self._window: Timer | None = None
        self._lines = 0
        self._left_out: Counter[str] = Counter()
        self._kinds: set[tuple[str, str]] = set()

    def ended(
        self, outcome: wire.Outcome, job_type: str, attempt: int, *, namespace: str, trace: str
    ) -> None:
        """How an attempt ended, as the server will be told; `trace` is the id of its trace. Never
        raises: a filter that does is whoever's configured logging, and no reason to lose the
        outcome.
        """
        if (end := _ENDS.get(outcome.kind)) is None:
            return
        about: dict[str, object] = {
            "namespace": namespace,
            "job_id": outcome.job_id,
            "job_type": job_type,
            "attempt": attempt,
        }
        about |= {"trace_id": trace} if trace else {}
        with suppress(Exception):
            self._tell(outcome, end, about)

    def _tell(self, outcome: wire.Outcome, end: str, about: dict[str, object]) -> None:
        if self._window is None:
            self._window = self._schedule(WINDOW_S, self.flush)
        self._lines += 1
        if self._lines > LINES:
            self._left_out[end] += 1
            return
        subject = f"job {outcome.job_id} ({about['job_type']}), attempt {about['attempt']}"
        if outcome.kind == wire.OUTCOME_KIND_FAIL:
            self._failed(subject, outcome.error, about)
        else:
            logger.info("%s: %s", subject, end, extra={"about": about})

    def flush(self) -> None:
        """Says how many lines were left out, and begins anew."""
        if self._window is not None:
            self._window.cancel()
        told = ", ".join(f"{count} {end}" for end, count in sorted(self._left_out.items()))
        if told:
            level = logging.WARNING if self._left_out["failed"] else logging.INFO
            logger.log(level, "left out of this log within %g s: %s", WINDOW_S, told)
        self._window, self._lines = None, 0
        self._left_out.clear()

    def _failed(self, subject: str, error: wire.ErrorInfo, about: dict[str, object]) -> None:
        category = wire.ErrorCategory.Name(error.category).removeprefix("ERROR_CATEGORY_")
        text = cut(" ".join(error.message.split()), MAX_TEXT_BYTES)
        about |= {"category": category, "code": error.code}
        kind = (str(about["job_type"]), error.code)
        known = kind in self._kinds or len(self._kinds) >= MAX_KINDS
        trace = f"\n{error.stack_trace.rstrip()}" if error.stack_trace else ""
        logger.warning(
            "%s: failed, %s %s: %s%s",
            subject,
            category,
            error.code,
            text,
            "" if known else trace,
            extra={"about": about},
        )
        self._kinds.add(kind)
        if known and trace:
            logger.debug("%s: the trace%s", subject, trace, extra={"about": about})
