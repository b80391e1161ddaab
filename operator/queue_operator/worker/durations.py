"""Lengths of time as handlers and their tests give them."""

from datetime import timedelta

from queue_operator.domain.durations import NotADuration, seconds_of
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import check_duration

Duration = float | timedelta | str
"""Seconds, a `timedelta`, or text that every door takes, such as "5m", "1h30m" or "PT5M"."""


def length_of(field: str, value: Duration) -> float:
    """Its seconds. Raises InvalidArgument for no duration, one below 0, or above a century."""
    try:
        seconds = seconds_of(value)
    except NotADuration as error:
        raise InvalidArgument(field, str(error)) from None
    check_duration(field, seconds)
    return seconds
