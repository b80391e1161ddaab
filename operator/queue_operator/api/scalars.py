"""Times and durations as `external-api.md` section 6 writes them."""

from datetime import timedelta
from typing import Annotated, Final

from pydantic import AwareDatetime, BeforeValidator, Field, WithJsonSchema

MAX_DURATION: Final = timedelta(days=3660)
"""Ten years and a bit: longer is a mistake in the unit."""


def _duration(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and value.startswith("P")):
        return value
    if isinstance(value, timedelta):
        return value
    raise ValueError("must be an ISO 8601 duration such as 'PT5M', or a number of seconds")


def _timestamp(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError("must be an ISO 8601 timestamp such as '2024-01-15T10:30:00Z'")
    return value


_DURATION_SCHEMA: Final = {
    "anyOf": [{"type": "string", "format": "duration"}, {"type": "number", "minimum": 0}],
    "description": "ISO 8601 duration or seconds, at most ten years.",
    "examples": ["PT5M", 300],
}

Duration = Annotated[
    timedelta,
    Field(ge=timedelta(0), le=MAX_DURATION),
    BeforeValidator(_duration),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""Zero or more."""

PositiveDuration = Annotated[
    timedelta,
    Field(gt=timedelta(0), le=MAX_DURATION),
    BeforeValidator(_duration),
    WithJsonSchema(_DURATION_SCHEMA),
]

Timestamp = Annotated[AwareDatetime, BeforeValidator(_timestamp)]
"""Must carry a time zone."""
