"""Times and durations as `external-api.md` section 6 writes them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from queue_operator.backends.statistics import MAX_TIME_RANGE_S
from queue_operator.domain.durations import (
    MAX_CHARACTERS,
    NegativeDuration,
    iso_text,
    microseconds_of,
)
from queue_operator.domain.limits import MAX_DURATION_S
from queue_operator.domain.numbers import number, whole

MAX_DURATION: Final = timedelta(seconds=MAX_DURATION_S)

_MOST_US: Final = timedelta.max // timedelta(microseconds=1)


def _duration(value: object) -> timedelta:
    try:
        return timedelta(microseconds=min(microseconds_of(value), _MOST_US))
    except NegativeDuration as error:
        raise PydanticCustomError("greater_than_equal", "must not be negative") from error


_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]")


_SPACE_FOR_PLUS: Final = re.compile(r":\d\d(\.\d+)? \d\d:?\d\d$")


def _timestamp(value: object) -> object:
    if isinstance(value, str) and _SPACE_FOR_PLUS.search(value):
        raise ValueError("has a space before its offset: in a query, + is written as %2B")
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


def _duration_schema(most_days: int, *, zero: bool) -> dict[str, Any]:
    """What is sure to be taken: the usual ways to write durations of up to about a year, and any
    number of seconds.
    """
    digits = r"\d" if zero else "[1-9]"
    # Seconds are rounded up, so that even the least of them are a duration.
    least = {"minimum": 0} if zero else {"exclusiveMinimum": 0}
    seconds = rf"{digits}\d{{0,4}}(\.\d{{1,6}})?S"
    minutes = rf"{digits}\d{{0,3}}M(\d{{1,2}}S)?"
    hours = rf"{digits}\d{{0,2}}H(\d{{1,2}}M)?(\d{{1,2}}S)?"
    days = rf"{digits}\d?D(T\d{{1,2}}H)?"
    units = rf"{digits}\d{{0,2}}(h(\d{{1,2}}m)?|m|s|ms)"
    pattern = f"^(P({days}|T({hours}|{minutes}|{seconds}))|{units})$"
    return {
        "anyOf": [
            {"type": "string", "maxLength": MAX_CHARACTERS, "pattern": pattern},
            {"type": "number", **least, "maximum": most_days * 86_400},
        ],
        "description": 'Seconds, or text: "90", "1h30m", "250ms" or ISO 8601 without years and '
        "months.",
        "examples": ["PT5M", "1h30m", 300],
    }


Duration = Annotated[
    timedelta,
    Field(ge=timedelta(0), le=MAX_DURATION),
    BeforeValidator(_duration),
    WithJsonSchema(_duration_schema(MAX_DURATION.days, zero=True)),
]
"""Zero or more."""

PositiveDuration = Annotated[
    timedelta,
    Field(gt=timedelta(0), le=MAX_DURATION),
    BeforeValidator(_duration),
    WithJsonSchema(_duration_schema(MAX_DURATION.days, zero=False)),
]


_WINDOW_DAYS: Final = int(MAX_TIME_RANGE_S // 86_400)

QueryDuration = Annotated[
    timedelta,
    Field(gt=timedelta(0), le=timedelta(days=_WINDOW_DAYS)),
    BeforeValidator(_duration),
    WithJsonSchema(_duration_schema(_WINDOW_DAYS, zero=False)),
]
"""The same as a parameter; no longer than statistics reach back."""

# A day that every month has, in years that every store knows, with an offset that is in use.
_TIMESTAMP_PATTERN: Final = (
    r"^(1[6-9]|[2-8]\d)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])"
    r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-3]):[0-5]\d)$"
)


WHOLE: Final = BeforeValidator(whole)
"""Of an integer."""

NUMBER: Final = BeforeValidator(number)
"""Of a fraction."""

Timestamp = Annotated[
    AwareDatetime,
    BeforeValidator(_timestamp),
    AfterValidator(_utc),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": _TIMESTAMP_PATTERN,
            "description": "ISO 8601 with an offset.",
            "examples": ["2026-01-15T10:30:00Z"],
        }
    ),
]
"""Must carry a time zone; is UTC afterwards."""

Elapsed = Annotated[
    timedelta,
    PlainSerializer(iso_text, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            # The format `duration` of JSON Schema has no fractions of a second.
            "pattern": r"^-?P(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$",
            "description": "ISO 8601 duration.",
            "examples": ["PT1.4S"],
        }
    ),
]
"""A duration in an answer."""
