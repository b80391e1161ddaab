import re

import pytest

from queue_operator.crd.duration import parse_duration_s
from queue_operator.domain.durations import PATTERN


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("PT5M", 300), ("1h30m", 5400), ("0.5", 0.5), ("P2W", 14 * 86_400), (0, 0), (90, 90)],
)
def test_understands_whole_seconds_and_the_text_of_every_door(
    value: str | int, seconds: float
) -> None:
    assert parse_duration_s(value) == seconds


@pytest.mark.parametrize("text", ["P1Y", "P1M", "00:05", "1 day", "PT1S1H"])
def test_what_no_door_understands_the_rule_of_the_crd_refuses_too(text: str) -> None:
    assert not re.search(PATTERN, text)
    with pytest.raises(ValueError, match=r"duration|no fixed length"):
        parse_duration_s(text)


@pytest.mark.parametrize("value", [True, None, [], {"seconds": 1}])
def test_refuses_other_types(value: object) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration_s(value)


def test_a_fraction_is_told_how_to_be_written() -> None:
    with pytest.raises(ValueError, match=r'write "1\.5s"'):
        parse_duration_s(1.5)


@pytest.mark.parametrize("value", [3_153_600_001, "P36501D", "PT999999999H"])
def test_is_bounded_as_at_every_door(value: int | str) -> None:
    assert parse_duration_s(3_153_600_000) == 3_153_600_000
    with pytest.raises(ValueError, match="must be at most 3153600000 seconds"):
        parse_duration_s(value)


def test_a_negative_one_is_called_that() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        parse_duration_s(-1)
