"""How an engine counts: at once, with each row of the log that it writes."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from queue_operator.backends.statistics import StatsWindow, WindowStats
from queue_operator.backends.steering import Usage
from queue_operator.backends.tallies import (
    SPANS,
    Findings,
    Happened,
    JobKind,
    Part,
    Standing,
    Tally,
    begin_of,
    parts_of,
    summed_up,
    told_by,
)
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import ELIGIBLE, SLOT_HOLDING, JobState
from queue_operator.domain.views import Phase, phase


class Ledger(Protocol):
    """Where tallies are kept: whoever was given one changes what is stored."""

    def tally(self, namespace: str, span_s: int, begins_at: datetime, kind: JobKind) -> Tally:
        """An empty one where there is none."""
        ...

    def tallies(self, namespace: str, parts: Sequence[Part]) -> Iterable[tuple[JobKind, Tally]]:
        """All that lie in these parts."""
        ...

    def standing(self, namespace: str, now: datetime) -> Mapping[JobKind, Standing]: ...

    def forget_tallies(self, span_s: int, oldest: datetime) -> None:
        """Those that begin before that."""
        ...


def tell_tallies(
    ledger: Ledger, now: datetime, event: str, after: JobState | None, job: Job, row: Any
) -> None:
    """Counts what a row of the log tells of one job; `row` has its fields."""
    permanent = any(
        failed is not None and failed["category"] == ErrorCategory.PERMANENT
        for failed in row.get("failed", ())
    )
    told = told_by(event, after, permanent=permanent)
    if told is None:
        return
    [took_us] = row.get("wait_us") or row.get("run_us") or (None,)
    kind = JobKind(job.type, job.priority)
    for span in SPANS:
        tally = ledger.tally(job.namespace, span.seconds, span.begin(now), kind)
        tally.count(told, after, took_us)


def window_of(ledger: Ledger, asked: StatsWindow, now: datetime) -> WindowStats:
    since, total = begin_of(asked, now), Tally()
    happened: dict[JobKind, Happened] = {}
    for kind, tally in ledger.tallies(asked.namespace, parts_of(since, now)):
        total.add(tally)
        happened.setdefault(kind, Happened()).add(tally.happened)
    found = Findings(
        since=since,
        until=now,
        standing=ledger.standing(asked.namespace, now),
        happened=happened,
        wait=total.wait,
        run=total.run,
    )
    return summed_up(found, asked.breakdown_by)


def forget_old(ledger: Ledger, now: datetime) -> None:
    for span in SPANS:
        ledger.forget_tallies(span.seconds, span.oldest(now))


def usage_of(jobs: Mapping[JobState, int]) -> Usage:
    """From counts by state."""
    return Usage(
        pending=sum(count for state, count in jobs.items() if state in ELIGIBLE),
        running=sum(count for state, count in jobs.items() if state in SLOT_HOLDING),
    )


def standing_of(jobs: Iterable[Job], now: datetime) -> dict[JobKind, Standing]:
    """Those that have not ended."""
    found: dict[JobKind, Standing] = {}
    for job in jobs:
        one = found.setdefault(JobKind(job.type, job.priority), Standing())
        if job.state in SLOT_HOLDING:
            one.running += 1
            continue
        later = job.eligible_at is not None and job.eligible_at > now
        match phase(job, now):
            case Phase.PENDING:
                one.pending += 1
            case Phase.DELAYED:
                one.delayed += 1
            case Phase.SCHEDULED:
                one.scheduled += 1
            case _:
                one.retrying_later += later
                one.retrying_due += not later
    return found
