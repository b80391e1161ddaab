"""What happened in a span of time, and what stands at its end, summed up. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final, NamedTuple, Self, TypeVar

from queue_operator.backends.statistics import (
    MAX_TIME_RANGE_S,
    Breakdown,
    Counts,
    Latency,
    StatsWindow,
    WindowStats,
)
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.histogram import bucket_of, percentile
from queue_operator.domain.ordering import Priority
from queue_operator.domain.states import SLOT_HOLDING, TERMINAL, Event, JobState
from queue_operator.domain.validation import check_choices, check_positive
from queue_operator.domain.views import Phase

_Name = TypeVar("_Name", str, Priority)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
MINUTE_S: Final = 60


class Span(NamedTuple):
    """How long what is summed up together is, and for how long it is kept."""

    seconds: int
    kept: timedelta

    def begin(self, at: datetime) -> datetime:
        """Where the span that `at` lies in begins."""
        return at - (at - _EPOCH) % timedelta(seconds=self.seconds)

    def oldest(self, now: datetime) -> datetime:
        return now - self.kept


SPANS: Final = (
    Span(MINUTE_S, 3 * _DAY),
    Span(3600, 35 * _DAY),
    Span(86_400, 400 * _DAY),
)
"""From the finest to the coarsest; each is a multiple of the one before."""


class Part(NamedTuple):
    """A range of a window that spans of one length fill."""

    span_s: int
    begins_at: datetime
    ends_at: datetime


def check_window(window: StatsWindow) -> None:
    """Raises InvalidArgument."""
    range_s = window.time_range_s
    check_positive("time_range_s", range_s)
    if range_s > MAX_TIME_RANGE_S:
        raise InvalidArgument("time_range_s", f"must be at most {MAX_TIME_RANGE_S:.0f} seconds")
    check_choices("breakdown_by", window.breakdown_by, Breakdown)


def begin_of(window: StatsWindow, now: datetime) -> datetime:
    """Where a window begins: at a full minute, or, where minutes are forgotten already, at the
    next coarser span.
    """
    wanted = now - timedelta(seconds=window.time_range_s)
    for span in SPANS:
        if span.begin(wanted) >= span.oldest(now):
            return span.begin(wanted)
    return SPANS[-1].begin(wanted)


def parts_of(
    since: datetime,
    until: datetime,
    closed: datetime | None = None,
    longest_s: int = SPANS[-1].seconds,
) -> list[Part]:
    """The window in spans as long as possible, none above `longest_s`; those from `closed` on are
    the shortest.
    """
    last = SPANS[0].begin(until) + timedelta(seconds=SPANS[0].seconds)
    level = sum(span.seconds <= longest_s for span in SPANS[1:])
    parts = _parts(since, last, closed or last, level)
    return sorted(parts, key=lambda part: part.begins_at)


def _parts(since: datetime, until: datetime, closed: datetime, level: int) -> Iterator[Part]:
    if since >= until:
        return
    span, step = SPANS[level], timedelta(seconds=SPANS[level].seconds)
    if level == 0:
        yield Part(span.seconds, since, until)
        return
    first = span.begin(since - timedelta(microseconds=1)) + step
    last = span.begin(min(until, closed))
    if first >= last:
        yield from _parts(since, until, closed, level - 1)
        return
    yield Part(span.seconds, first, last)
    yield from _parts(since, first, closed, level - 1)
    yield from _parts(last, until, closed, level - 1)


class Told(IntEnum):
    """What a row of the event log tells, as far as it is counted."""

    SUBMITTED = 1
    CLAIMED = 2
    COMPLETED = 3
    DEAD_LETTER = 4
    CANCELLED = 5
    ATTEMPT_FAILED = 6
    FAILED = 7


def told_by(event: str, after: JobState | None, *, permanent: bool = False) -> Told | None:
    """None for what is not counted. `permanent` is what ended a job in DEAD_LETTER."""
    if event == "SUBMIT":
        return Told.SUBMITTED
    if event == Event.CLAIM:
        return Told.CLAIMED
    if after is JobState.COMPLETED:
        return Told.COMPLETED
    if after is JobState.DEAD_LETTER:
        return Told.FAILED if permanent else Told.DEAD_LETTER
    if after in TERMINAL:
        return Told.CANCELLED
    return Told.ATTEMPT_FAILED if event == Event.FAIL else None


_FAILED: Final = (Told.DEAD_LETTER, Told.FAILED, Told.ATTEMPT_FAILED)


@dataclass(slots=True)
class Happened:
    """How often what happened to jobs of one type and priority."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0
    attempts_failed: int = 0

    def count(self, told: Told) -> None:
        name = told.name.lower()
        if hasattr(self, name):
            setattr(self, name, getattr(self, name) + 1)
        self.attempts_failed += told in _FAILED

    def add(self, other: "Happened") -> None:
        for each in fields(other):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @classmethod
    def sum_of(cls, many: Iterable["Happened"]) -> Self:
        total = cls()
        for one in many:
            total.add(one)
        return total


@dataclass(slots=True)
class Measured:
    """How long something took: values by bucket, and the largest."""

    counts: Counter[int] = field(default_factory=Counter)
    max_us: int | None = None

    def note(self, value_us: int) -> None:
        self.put(bucket_of(value_us), 1, value_us)

    def put(self, bucket: int, count: int, max_us: int) -> None:
        self.counts[bucket] += count
        self.max_us = max_us if self.max_us is None else max(self.max_us, max_us)

    def add(self, other: "Measured") -> None:
        self.counts.update(other.counts)
        if other.max_us is not None:
            self.put(bucket_of(other.max_us), 0, other.max_us)

    def latency(self) -> Latency:
        return Latency(
            p50_us=self._percentile(500),
            p90_us=self._percentile(900),
            p99_us=self._percentile(990),
            max_us=self.max_us,
        )

    def _percentile(self, per_mille: int) -> int | None:
        """That of the histogram, but never above the largest, which is exact."""
        found = percentile(self.counts, per_mille)
        return found if found is None or self.max_us is None else min(found, self.max_us)


@dataclass(slots=True)
class Tally:
    """All that is kept of a span."""

    happened: Happened = field(default_factory=Happened)
    wait: Measured = field(default_factory=Measured)
    run: Measured = field(default_factory=Measured)

    def count(self, told: Told, after: JobState | None, took_us: int | None) -> None:
        """How long a job that was given up ran nobody knows."""
        self.happened.count(told)
        if took_us is not None and after is not JobState.UNKNOWN_STOPPED:
            (self.wait if told is Told.CLAIMED else self.run).note(took_us)

    def add(self, other: "Tally") -> None:
        self.happened.add(other.happened)
        self.wait.add(other.wait)
        self.run.add(other.run)


@dataclass(slots=True)
class Standing:
    """Jobs of one type and priority that have not ended, as they stand now."""

    pending: int = 0
    delayed: int = 0
    scheduled: int = 0
    running: int = 0
    retrying_later: int = 0
    retrying_due: int = 0

    @classmethod
    def sum_of(cls, many: Iterable["Standing"]) -> Self:
        total = cls()
        for one in many:
            for each in fields(one):
                setattr(total, each.name, getattr(total, each.name) + getattr(one, each.name))
        return total

    @property
    def waiting(self) -> int:
        waiting = self.pending + self.delayed + self.scheduled
        return waiting + self.retrying_later + self.retrying_due


class JobKind(NamedTuple):
    """What counts are kept apart by, within a namespace."""

    type: str
    priority: Priority


def standing_from(
    rows: Iterable[tuple[str, str, str, int, int, int]],
) -> dict[JobKind, Standing]:
    """From counts by type, priority and state; the last two say how many of them wait for other
    jobs, and how many for a time.
    """
    found: dict[JobKind, Standing] = {}
    for kind, priority, state, jobs, blocked, later in rows:
        one = found.setdefault(JobKind(kind, Priority(priority)), Standing())
        if state in SLOT_HOLDING:
            one.running += jobs
        elif state == JobState.INITIAL_PENDING:
            one.pending += blocked
            one.delayed += later
            one.scheduled += jobs - blocked - later
        else:
            one.retrying_later += later
            one.retrying_due += jobs - later
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a store found of a window; what ended is counted by kind, or not at all."""

    since: datetime
    until: datetime
    standing: Mapping[JobKind, Standing]
    happened: Mapping[JobKind, Happened]
    wait: Measured
    run: Measured


def summed_up(found: Findings, breakdown_by: frozenset[Breakdown]) -> WindowStats:
    now, past = Standing.sum_of(found.standing.values()), Happened.sum_of(found.happened.values())
    kinds = sorted(found.standing.keys() | found.happened.keys())
    return WindowStats(
        since=found.since,
        until=found.until,
        pending=now.pending,
        scheduled=now.scheduled + now.retrying_due,
        running=now.running,
        delayed=now.delayed + now.retrying_later,
        submitted=past.submitted,
        completed=past.completed,
        failed=past.failed,
        dead_letter=past.dead_letter,
        cancelled=past.cancelled,
        attempts_failed=past.attempts_failed,
        queue_latency=found.wait.latency(),
        execution_time=found.run.latency(),
        by_type=_counts(found, {kind: kind.type for kind in kinds})
        if Breakdown.TYPE in breakdown_by
        else {},
        by_priority=_counts(found, {kind: kind.priority for kind in kinds})
        if Breakdown.PRIORITY in breakdown_by
        else {},
        by_phase=_by_phase(now, past) if Breakdown.STATE in breakdown_by else {},
        due_by_type=_summed(
            {kind: one.scheduled + one.retrying_due for kind, one in found.standing.items()}
        )
        if Breakdown.TYPE in breakdown_by
        else {},
        failed_by_type=_summed({kind: one.attempts_failed for kind, one in found.happened.items()})
        if Breakdown.TYPE in breakdown_by
        else {},
    )


def _summed(counts: Mapping[JobKind, int]) -> dict[str, int]:
    """By type, without those that have none."""
    found: Counter[str] = Counter()
    for kind, count in counts.items():
        found[kind.type] += count
    return {name: count for name, count in found.items() if count}


def _counts(found: Findings, names: Mapping[JobKind, _Name]) -> dict[_Name, Counts]:
    """By the name that each kind goes under."""
    counted: dict[_Name, Counts] = {}
    for kind, name in names.items():
        now = found.standing.get(kind, Standing())
        past = found.happened.get(kind, Happened())
        before = counted.get(name, Counts())
        counted[name] = Counts(
            pending=before.pending + now.waiting,
            running=before.running + now.running,
            completed=before.completed + past.completed,
            failed=before.failed + past.failed,
            dead_letter=before.dead_letter + past.dead_letter,
            cancelled=before.cancelled + past.cancelled,
        )
    return counted


def _by_phase(now: Standing, past: Happened) -> dict[Phase, Counts]:
    return {
        Phase.PENDING: Counts(pending=now.pending),
        Phase.DELAYED: Counts(pending=now.delayed),
        Phase.SCHEDULED: Counts(pending=now.scheduled),
        Phase.RUNNING: Counts(running=now.running),
        Phase.RETRYING: Counts(pending=now.retrying_later + now.retrying_due),
        Phase.COMPLETED: Counts(completed=past.completed),
        Phase.FAILED: Counts(failed=past.failed),
        Phase.DEAD_LETTER: Counts(dead_letter=past.dead_letter),
        Phase.CANCELLED: Counts(cancelled=past.cancelled),
    }
