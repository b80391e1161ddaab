"""What tests give to the harness: made what the queue takes, or refused with what to write."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Final

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.validation import MAX_DURATION_S
from queue_operator.worker.durations import Duration, seconds_of

_FIELDS: Final = tuple(field.name for field in fields(Job))


def converted(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `Job`. Raises InvalidArgument for what is no field, or cannot be its value."""
    for name in given:
        if name not in _FIELDS:
            close = get_close_matches(name, _FIELDS, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InvalidArgument(name, f"is no field of a job{hint}")
    return {name: _CONVERTED.get(name, _as_it_is)(name, value) for name, value in given.items()}


def seconds(field: str, value: Duration) -> float:
    """Raises InvalidArgument for no duration, or one below 0 or above 100 years."""
    try:
        found = seconds_of(value)
    except ValueError:
        found = -1.0
    if not 0 <= found <= MAX_DURATION_S:
        raise InvalidArgument(
            field,
            f"must be a number of seconds, a timedelta or ISO 8601 text such as 'PT10M' (ten "
            f"minutes), from 0 to 100 years, not {value!r}",
        )
    return found


def _as_it_is(name: str, value: Any) -> Any:
    return value


def _priority(name: str, value: Any) -> Any:
    """The queue refuses what is none, and says which there are."""
    return Priority(value) if value in tuple(Priority) else value


def _texts(make: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    def convert(name: str, value: Any) -> Any:
        # One text is a collection too, of its letters.
        if not isinstance(value, str):
            try:
                return make(value)
            except TypeError:
                pass
        raise InvalidArgument(name, f"must be a list of texts, not {value!r}")

    return convert


_CONVERTED: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "tags": _texts(frozenset),
    "depends_on": _texts(tuple),
    "priority": _priority,
}
