"""Durations as Prometheus writes them."""

import argparse
import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION: Final = re.compile(r"(\d+)(ms|[smhdw])")
_RANGE: Final = re.compile(r"\[(\d+(?:ms|[smhdw]))\]")
_OFFSET: Final = re.compile(r"\boffset (\d+(?:ms|[smhdw]))\b")


def seconds(text: str) -> float:
    """Of a duration such as `90s` or `1h`. Raises ArgumentTypeError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s, 30m or 1h")
    return int(found[1]) * _UNITS[found[2]]


def shortened(expression: str, factor: float) -> str:
    """The expression with each of its windows and offsets shorter by a factor, for tests and shows
    in which time passes faster.
    """

    def shorter(text: str) -> str:
        return f"{max(1, round(seconds(text) / factor * 1000))}ms"

    expression = _RANGE.sub(lambda found: f"[{shorter(found[1])}]", expression)
    return _OFFSET.sub(lambda found: f"offset {shorter(found[1])}", expression)
