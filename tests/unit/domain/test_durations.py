"""One grammar of durations."""

import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.domain.durations import (
    PATTERN,
    NegativeDuration,
    NotADuration,
    iso_text,
    seconds_of,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0", 0),
        ("0.5", 0.5),
        ("1e3", 1000),
        ("5e-324", 0.000001),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("20us", 0.00002),
        ("1500ns", 0.000002),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1m1h", 3660),
        ("PT5M", 300),
        ("PT0S", 0),
        ("PT0.5S", 0.5),
        ("PT0,5S", 0.5),
        ("PT1.5H", 5400),
        ("P1D", 86_400),
        ("P0.5D", 43_200),
        ("P1DT12H", 129_600),
        ("P2W", 1_209_600),
        ("P1W1DT1H1M1.5S", 694_861.5),
        ("PT1H5S", 3605),
        ("PT0.0000001S", 0.000001),
    ],
)
def test_a_text_says_how_long(text: str, seconds: float) -> None:
    assert re.search(PATTERN, text)
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "PT5",
        "PT1S1H",
        "PT1H1H",
        "PT1.5H1M",
        "P1.5DT1H",
        "P1DT1",
        "P1HT1M",
        "pt5m",
        "PT5m",
        "5M",
        "5 m",
        " 5m",
        "5m ",
        "5y",
        "m",
        "00:05",
        "1 day",
        "five",
        "nan",
        "inf",
        "1_0",
        "0x10",
        "+5m",
        "٣s",
        "PT5M\n",
    ],
)
def test_no_other_text_does(text: str) -> None:
    assert not re.search(PATTERN.replace("$", r"\Z"), text)
    with pytest.raises(
        NotADuration, match=r'is no duration: write seconds \(90\), units \("1h30m"'
    ):
        seconds_of(text)


@pytest.mark.parametrize("text", ["P1M", "P1Y", "P1Y2M", "P1M1D", "P1Y1W", "P0.5Y", "P1MT1M"])
def test_years_and_months_have_no_fixed_length(text: str) -> None:
    with pytest.raises(NotADuration, match="no fixed length: write P30D for thirty days, PT1M"):
        seconds_of(text)


@pytest.mark.parametrize("value", ["-1", "-5s", "-PT5S", "- P1D", -1, -0.5, timedelta(days=-1)])
def test_what_is_negative_is_called_that(value: Any) -> None:
    with pytest.raises(NegativeDuration, match="must not be negative"):
        seconds_of(value)


def test_numbers_are_seconds_and_timedeltas_themselves() -> None:
    assert [seconds_of(value) for value in (90, 0.5, timedelta(minutes=2))] == [90, 0.5, 120]
    # What is a little over nothing is not nothing.
    assert seconds_of(5e-324) == 0.000001


@pytest.mark.parametrize("value", [10**4000, 1e308, "9" * 64, "1e99", timedelta.max])
def test_the_longest_is_long_and_not_an_error_of_arithmetic(value: Any) -> None:
    assert seconds_of(value) > 1e13


@pytest.mark.parametrize(
    "value", [True, None, [], {"seconds": 1}, float("nan"), float("inf"), b"5"]
)
def test_nothing_else_is_a_duration(value: Any) -> None:
    with pytest.raises(NotADuration, match=r"must be a duration: seconds \(90\)"):
        seconds_of(value)


def test_a_text_without_end_is_refused_by_its_length() -> None:
    with pytest.raises(NotADuration, match="has 1000001 characters; a duration has at most 64"):
        seconds_of("P" + "1" * 1_000_000)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "PT0S"),
        (timedelta(seconds=90), "PT1M30S"),
        (timedelta(hours=1), "PT1H"),
        (timedelta(days=400, seconds=1), "P400DT1S"),
        (timedelta(milliseconds=1400), "PT1.4S"),
        (timedelta(microseconds=20), "PT0.00002S"),
        (timedelta(seconds=-90), "-PT1M30S"),
    ],
)
def test_iso_text_has_no_unit_of_unknown_length(length: timedelta, text: str) -> None:
    assert iso_text(length) == text


@given(st.timedeltas(min_value=timedelta(), max_value=timedelta(days=36_500)))
def test_what_is_written_is_read_as_the_same(length: timedelta) -> None:
    assert timedelta(seconds=seconds_of(iso_text(length))) == length
