import re

import pytest

from queue_operator.crd.duration import MAX_DURATION_S, PATTERN, parse_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT5M", 300),
        ("PT0.5S", 0.5),
        ("P1D", 86_400),
        ("P1DT12H", 129_600),
        ("PT1H30M5S", 5_405),
        ("PT1H5S", 3_605),
        ("P2W", 14 * 86_400),
        ("PT0S", 0),
        (0, 0),
        (90, 90),
    ],
)
def test_understands(text: str | int, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5m", "5", "P", "PT", "P1DT", "P1Y", "P1M", "-PT5M", "PT5", "PT5M ", "PT1S1H", "pt5m"],
)
def test_refuses_other_spellings(text: str) -> None:
    assert not re.fullmatch(PATTERN, text)
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_duration_s(text)


@pytest.mark.parametrize("value", [True, 1.5, None, [], {"seconds": 1}])
def test_refuses_other_types(value: object) -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        parse_duration_s(value)


@pytest.mark.parametrize("value", [-1, MAX_DURATION_S + 1, "P9999W", "PT999999999H"])
def test_is_bounded(value: int | str) -> None:
    with pytest.raises(ValueError, match="from 0 to"):
        parse_duration_s(value)
