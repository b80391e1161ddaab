"""Durations, times and tags on the command line."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from queue_operator.cli.values import Duration, Tag, When, parse_duration, tag_map


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("2d", 172_800),
        ("1w", 604_800),
        ("PT5M", 300),
        ("P1DT1S", 86_401),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert Duration().convert(text, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "x", "5 m", "m", "5y", "PX", "nan", "inf", "9" * 30, "-5", "P1M", "P1Y", "00:05"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


def test_times_are_given_as_they_are_or_as_how_long_ago() -> None:
    noon = datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert When().convert("2030-01-31T12:00:00Z", None, None) == noon
    assert When().convert("2030-01-31T14:00:00+02:00", None, None) == noon
    before = datetime.now(UTC) - timedelta(hours=2)
    ago = When().convert("2h", None, None)
    assert before <= ago <= datetime.now(UTC) - timedelta(hours=2)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("yesterday", "write 2h"),
        ("2030-01-31T12:00:00", "has no zone"),
        ("2030-01-31", "has no zone"),
        ("9999999d", "is no time"),
    ],
)
def test_what_is_no_time(text: str, match: str) -> None:
    with pytest.raises(click.BadParameter, match=match):
        When().convert(text, None, None)


def test_a_time_to_come_is_not_written_as_ago() -> None:
    with pytest.raises(click.BadParameter, match="is no time: write 2030"):
        When(ago=False).convert("2h", None, None)


def test_tags() -> None:
    given = ("region=eu", "urgent", "expression=a=b")
    tags = [Tag().convert(text, None, None) for text in given]
    assert tag_map(tags) == {"region": "eu", "urgent": "", "expression": "a=b"}
    with pytest.raises(click.BadParameter, match="write key=value"):
        Tag().convert("=eu", None, None)
    with pytest.raises(click.UsageError, match="region: given with two values"):
        tag_map([("region", "eu"), ("region", "us")])


@pytest.mark.parametrize("text", ["-1", "-5s", "-PT5S"])
def test_a_negative_duration_is_called_that(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must not be negative"):
        Duration().convert(text, None, None)
    with pytest.raises(click.BadParameter, match="is no time"):
        When().convert(text, None, None)
