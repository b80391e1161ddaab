"""What panels and alerts would otherwise scan for, computed ahead.

Two promises are kept account of, for each namespace: jobs start in time, and jobs do not die. The
burn rate of a window is how many times faster than allowed the errors of a promise come: at 1 the
budget is used up exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from observability.rules import Group, Record


@dataclass(frozen=True, slots=True)
class Promise:
    """What people count on.

    Attributes:
        name: of its errors, in the names of recorded series.
        every: of what there is an account, as a rate over `%s`.
        errors: those of them that broke the promise.
        objective: the placeholder of the part that must keep it.

    """

    name: str
    total: str
    every: str
    errors: str
    objective: str

    def burn(self, window: str) -> str:
        """The recorded burn rate of a window."""
        return f"job_namespace:queueoperator_{self.name}:burnrate{window}"

    def rate(self) -> str:
        """The recorded rate of errors, over five minutes."""
        return f"job_namespace:queueoperator_{self.name}:rate5m"

    def total_rate(self) -> str:
        """The recorded rate of all, over five minutes."""
        return f"job_namespace:queueoperator_{self.total}:rate5m"


START: Final = Promise(
    name="late_starts",
    total="starts",
    every="sum by (job, namespace) (rate(queueoperator_job_wait_seconds_count{:op}[%s]))",
    errors="sum by (job, namespace) (rate(queueoperator_job_wait_seconds_count{:op}[%s])) - "
    "sum by (job, namespace) "
    '(rate(queueoperator_job_wait_seconds_bucket{:op, le=~"@startSeconds@([.]0)?"}[%s]))',
    objective="startObjective",
)
SURVIVE: Final = Promise(
    name="dead_letters",
    total="finished",
    every="sum by (job, namespace) (rate(queueoperator_jobs_finished_total{:op}[%s]))",
    errors="sum by (job, namespace) "
    '(rate(queueoperator_jobs_finished_total{:op, state="dead_letter"}[%s]))',
    objective="surviveObjective",
)
PROMISES: Final = (START, SURVIVE)

SCANNED: Final = ("1m", "5m", "30m")
"""Windows that are read from the counters themselves."""
AVERAGED: Final = ("1h", "2h", "6h", "1d", "3d")
"""Windows that are read from the recorded rates: a scan of three days would be three days' samples
of every type.
"""

BACKLOG: Final = "job_namespace:queueoperator_backlog:sum"
SLOTS: Final = "job_namespace:queueoperator_slots:sum"


def _of(promise: Promise) -> Iterator[Record]:
    yield Record(promise.total_rate(), promise.every.replace("%s", "5m"))
    yield Record(promise.rate(), promise.errors.replace("%s", "5m"))
    budget = f"(1 - @{promise.objective}@)"
    for window in SCANNED:
        errors = promise.errors.replace("%s", window)
        every = promise.every.replace("%s", window)
        yield Record(promise.burn(window), f"(({errors}) / ({every} > 0)) / {budget}")
    for window in AVERAGED:
        errors = f"avg_over_time({promise.rate()}{{:op}}[{window}])"
        every = f"avg_over_time({promise.total_rate()}{{:op}}[{window}])"
        yield Record(promise.burn(window), f"({errors} / ({every} > 0)) / {budget}")


GROUPS: Final = (
    Group("queue-operator-promises", [record for promise in PROMISES for record in _of(promise)]),
    Group(
        "queue-operator-capacity",
        [
            Record(
                BACKLOG,
                """clamp_min(sum by (job, namespace) (queueoperator_needed_slots{:op}) - (
                    sum by (job, namespace) (
                        queueoperator_jobs{:op, state=~"running|cancelling"})
                    or 0 * sum by (job, namespace) (queueoperator_needed_slots{:op})), 0)""",
            ),
            Record(
                SLOTS,
                'sum by (job, namespace) (queueoperator_worker_slots{:op, state=~"busy|free"})',
            ),
        ],
    ),
)
