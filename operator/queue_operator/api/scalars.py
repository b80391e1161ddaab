"""Times and durations as `external-api.md` section 6 writes them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, WithJsonSchema

MAX_DURATION: Final = timedelta(days=3660)
"""Ten years and a bit: longer is a mistake in the unit."""


def _duration(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and value.startswith("P")):
        return value
    if isinstance(value, timedelta):
        return value
    raise ValueError("must be an ISO 8601 duration such as 'PT5M', or a number of seconds")


_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]")


def _timestamp(value: object) -> object:
    # Numbers, also those written as strings, would be taken for seconds since 1970.
    if isinstance(value, datetime) or (isinstance(value, str) and _DATE.match(value)):
        return value
    raise ValueError("must be an ISO 8601 timestamp such as '2024-01-15T10:30:00Z'")


def _utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        # A store would take it, and then fail whoever reads the row.
        raise ValueError("must be within the years 2 to 9998 in UTC") from None


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

Timestamp = Annotated[AwareDatetime, BeforeValidator(_timestamp), AfterValidator(_utc)]
"""Must carry a time zone; is UTC afterwards."""
