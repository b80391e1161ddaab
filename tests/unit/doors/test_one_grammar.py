"""A duration that one door reads, every door reads, and as the same."""

import click
import pytest
from pydantic import ValidationError
from tests.unit.doors.readers import TEXTS, Door

from queue_operator.cli.values import Duration
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job

REFUSED = (InvalidArgument, ValidationError, click.BadParameter)


def command(*, delay: str) -> Job:
    read = Duration().convert(delay, None, None)
    return Job(id="j", type="t", delay_s=read.total_seconds())


@pytest.mark.parametrize("door", [*TEXTS, command])
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("2d", 172_800),
        ("PT5M", 300),
        ("PT0.5S", 0.5),
        ("PT0,5S", 0.5),
        ("P1DT12H", 129_600),
        ("P400D", 34_560_000),
        ("P1W1D", 691_200),
        ("PT0S", 0),
    ],
)
def test_what_is_understood(door: Door, text: str, seconds: float) -> None:
    assert door(delay=text).delay_s == seconds


@pytest.mark.parametrize("door", [*TEXTS, command])
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("P1M", "no fixed length: write P30D"),
        ("P1Y", "no fixed length: write P30D"),
        ("P1Y2M3D", "no fixed length: write P30D"),
        ("PT1S1H", "is no duration: write seconds"),
        ("PT1H1H", "is no duration: write seconds"),
        ("P1DT", "is no duration: write seconds"),
        ("PT1.5H1M", "is no duration: write seconds"),
        ("00:05", "is no duration: write seconds"),
        ("1 day", "is no duration: write seconds"),
        ("", "is no duration: write seconds"),
        ("-5s", "must not be negative"),
        ("-PT5S", "must not be negative"),
    ],
)
def test_what_is_not_is_refused_with_what_to_write(door: Door, text: str, hint: str) -> None:
    with pytest.raises(REFUSED) as refused:
        door(delay=text)
    assert "delay" in str(refused.value) or door is command
    assert hint in str(refused.value)
