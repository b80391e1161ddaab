"""Windows made of spans, and what is counted how."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.backends.protocol import MAX_TIME_RANGE_S, StatsWindow
from queue_operator.backends.tallies import (
    SPANS,
    Measured,
    Standing,
    Tally,
    Told,
    begin_of,
    parts_of,
    told_by,
)
from queue_operator.domain.histogram import BUCKETS, bucket_of, lower_bound
from queue_operator.domain.states import TARGET, TERMINAL, Event, JobState

NOWS = st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))
RANGES = st.floats(0.001, MAX_TIME_RANGE_S)


@given(NOWS, RANGES)
def test_parts_make_up_the_window_without_gap_or_overlap(now: datetime, range_s: float) -> None:
    since = begin_of(StatsWindow(time_range_s=range_s), now)
    parts = parts_of(since, now)
    assert parts[0].begins_at == since
    assert all(one.ends_at == other.begins_at for one, other in pairwise(parts))
    assert parts[-1].ends_at - timedelta(minutes=1) <= now < parts[-1].ends_at


@given(NOWS, RANGES)
def test_parts_are_whole_spans_that_are_still_kept(now: datetime, range_s: float) -> None:
    spans = {span.seconds: span for span in SPANS}
    parts = parts_of(begin_of(StatsWindow(time_range_s=range_s), now), now)
    for part in parts:
        span = spans[part.span_s]
        assert span.begin(part.begins_at) == part.begins_at
        assert span.begin(part.ends_at) == part.ends_at
        assert part.begins_at >= span.oldest(now)
    assert len(parts) <= 2 * len(SPANS) - 1


@given(NOWS, RANGES, NOWS)
def test_what_is_not_closed_is_told_by_minutes(
    now: datetime, range_s: float, closed: datetime
) -> None:
    since = begin_of(StatsWindow(time_range_s=range_s), now)
    parts = parts_of(since, now, closed)
    assert parts[0].begins_at == since
    assert all(one.ends_at == other.begins_at for one, other in pairwise(parts))
    assert parts[-1].ends_at == parts_of(since, now)[-1].ends_at
    for part in parts:
        assert part.span_s == SPANS[0].seconds or part.ends_at <= closed
    assert parts_of(since, now, parts[-1].ends_at) == parts_of(since, now)


@given(NOWS, RANGES)
def test_a_window_is_at_most_a_span_longer(now: datetime, range_s: float) -> None:
    since = begin_of(StatsWindow(time_range_s=range_s), now)
    longer_s = (now - since).total_seconds() - range_s
    assert -0.001 < longer_s < 86_400
    if range_s < 2 * 86_400:
        assert longer_s < 60.001


def test_spans_are_multiples_of_each_other() -> None:
    assert all(longer.seconds % shorter.seconds == 0 for shorter, longer in pairwise(SPANS))
    assert all(longer.kept > shorter.kept for shorter, longer in pairwise(SPANS))


@pytest.mark.parametrize(("event", "before"), sorted(TARGET))
def test_every_end_of_a_job_is_counted_once(event: Event, before: JobState) -> None:
    after = TARGET[event, before]
    told = told_by(event, after)
    if after in TERMINAL or event in (Event.CLAIM, Event.FAIL):
        assert told is not None
    else:
        assert told is None


def test_an_attempt_that_failed_for_good_is_counted_as_both() -> None:
    tally = Tally()
    for told in (Told.ATTEMPT_FAILED, Told.DEAD_LETTER, Told.FAILED, Told.COMPLETED):
        tally.count(told, None, 7)
    happened = tally.happened
    assert (happened.attempts_failed, happened.dead_letter, happened.failed) == (3, 1, 1)
    assert (tally.run.counts, tally.wait.counts) == ({7: 4}, {})


def test_measured_values_add_up() -> None:
    one, other = Measured(), Measured()
    for value in (5, 100, 100_000):
        one.note(value)
    other.note(70)
    one.add(other)
    one.add(Measured())
    assert one.counts.total() == 4
    assert one.latency().max_us == 100_000
    assert Measured().latency().max_us is None


def test_what_waits_is_all_but_what_runs() -> None:
    standing = Standing(1, 2, 4, 8, 16, 32)
    assert standing.waiting == 1 + 2 + 4 + 16 + 32
    assert Standing.sum_of([standing, standing]) == Standing(2, 4, 8, 16, 32, 64)


@given(st.integers(0, BUCKETS - 1))
def test_a_bucket_begins_at_its_lower_bound(bucket: int) -> None:
    lowest = lower_bound(bucket)
    assert bucket_of(lowest) == bucket
    assert lowest == 0 or bucket_of(lowest - 1) == bucket - 1


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_no_percentile_is_above_the_largest(values: list[int]) -> None:
    measured = Measured()
    for value in values:
        measured.note(value)
    found = measured.latency()
    assert found.max_us == max(values)
    assert all(one is not None and one <= max(values) for one in (found.p50_us, found.p99_us))
