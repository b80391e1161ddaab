"""Durations as people write them: seconds, a timedelta, or ISO 8601 text."""

from datetime import timedelta
from typing import Final

from pydantic import TypeAdapter, ValidationError

Duration = float | timedelta | str
"""Seconds, a `timedelta`, or text such as "PT5M" (five minutes) or "P1DT12H"."""

_ISO: Final = TypeAdapter(timedelta)


def seconds_of(value: Duration) -> float:
    """Raises ValueError for anything that is no duration."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        return _parsed(value).total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ValueError("no duration")


def _parsed(text: str) -> timedelta:
    # Pydantic also takes "00:05" and bare numbers, whose unit a reader would have to guess.
    if not text.lstrip("+-").startswith("P"):
        raise ValueError("no ISO 8601 duration")
    try:
        return _ISO.validate_python(text)
    except ValidationError:
        raise ValueError("no ISO 8601 duration") from None
