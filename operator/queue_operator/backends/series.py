"""A window cut into steps, and what happened in each. Pure."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from queue_operator.backends.statistics import StatsWindow
from queue_operator.backends.tallies import SPANS, Happened, Measured, Tally, begin_of, parts_of
from queue_operator.backends.tallying import Ledger
from queue_operator.backends.watching import (
    SERIES_POINTS,
    SeriesPoint,
    SeriesWindow,
    StatsSeries,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_STEPS_S: Final = (
    *(minutes * _MINUTE_S for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR_S for hours in (1, 2, 4, 8, 12)),
    *(days * _DAY_S for days in (1, 2, 4)),
)
"""Each is a multiple of every span that is no longer."""


def begin_and_step(asked: SeriesWindow, now: datetime) -> tuple[datetime, int]:
    """Where the first step begins, and how long each is."""
    window = StatsWindow(namespace=asked.namespace, time_range_s=asked.time_range_s)
    since = begin_of(window, now)
    span = next((one for one in SPANS if since >= one.oldest(now)), SPANS[-1])
    wanted_s = (now - since).total_seconds() / (SERIES_POINTS - 2)
    fitting = (step for step in _STEPS_S if step >= wanted_s and step % span.seconds == 0)
    step_s = next(fitting, _STEPS_S[-1])
    first = since - (since - _EPOCH) % timedelta(seconds=step_s)
    # A step that begins before what is kept would be told as if less had happened in it.
    is_whole = first >= span.oldest(now)
    return (first if is_whole else first + timedelta(seconds=step_s)), step_s


def series(
    begin: datetime, step_s: int, until: datetime, tallies: Mapping[datetime, Tally]
) -> StatsSeries:
    """All points; those without a tally are empty."""
    step, at, points = timedelta(seconds=step_s), begin, []
    while at <= until:
        points.append(_point(at, tallies.get(at) or Tally()))
        at += step
    return StatsSeries(until=until, step_s=step_s, points=tuple(points))


def _point(at: datetime, tally: Tally) -> SeriesPoint:
    happened = tally.happened
    return SeriesPoint(
        begins_at=at,
        submitted=happened.submitted,
        completed=happened.completed,
        failed=happened.failed,
        dead_letter=happened.dead_letter,
        cancelled=happened.cancelled,
        attempts_failed=happened.attempts_failed,
        queue_latency=tally.wait.latency(),
        execution_time=tally.run.latency(),
    )


def series_of(ledger: Ledger, asked: SeriesWindow, now: datetime) -> StatsSeries:
    """From what an engine keeps."""
    begin, step_s = begin_and_step(asked, now)
    step, at = timedelta(seconds=step_s), begin
    found: dict[datetime, Tally] = {}
    while at <= now:
        found[at] = _sum(
            tally for _, tally in ledger.tallies(asked.namespace, parts_of(at, at + step - _FULL))
        )
        at += step
    return series(begin, step_s, now, found)


_FULL: Final = timedelta(microseconds=1)
"""Parts reach to the end of the minute in which they end."""


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally(Happened(), Measured(), Measured())
    for one in tallies:
        total.add(one)
    return total
