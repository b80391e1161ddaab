"""Durations as a manifest writes them: ISO 8601, or whole seconds."""

import math
import re
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, TypeAdapter, ValidationError, WithJsonSchema

_SECONDS: Final = r"\d{1,9}(\.\d{1,6})?S"
_TIME: Final = rf"T(\d{{1,9}}H(\d{{1,9}}M)?({_SECONDS})?|\d{{1,9}}M({_SECONDS})?|{_SECONDS})"
PATTERN: Final = rf"^P(\d{{1,4}}W|\d{{1,5}}D({_TIME})?|{_TIME})$"
"""At least one part, in order; months and years are left out, their length varies."""

MAX_DURATION_S: Final = 10 * 365 * 86_400
"""Ten years: beyond that it is a mistake."""

_ISO: Final = TypeAdapter(timedelta)


def parse_duration_s(value: Any) -> float:
    """Seconds of an ISO 8601 duration ("PT5M") or of an integer.

    Raises ValueError saying which spellings are understood.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('must be an ISO 8601 duration such as "PT5M" or whole seconds')
    if isinstance(value, int):
        return _bounded(float(value))
    if not re.fullmatch(PATTERN, value):
        raise ValueError(f'{value!r} is not an ISO 8601 duration such as "PT5M" or "P1DT12H"')
    try:
        return _bounded(_ISO.validate_python(value).total_seconds())
    except ValidationError:
        # Well-formed, but beyond what a timedelta holds.
        return _bounded(math.inf)


def _bounded(seconds: float) -> float:
    if not 0 <= seconds <= MAX_DURATION_S:
        raise ValueError(f"must be from 0 to {MAX_DURATION_S} seconds")
    return seconds


Duration = Annotated[
    float,
    BeforeValidator(parse_duration_s),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "maximum": MAX_DURATION_S,
            "maxLength": 64,
            # A rule and not `pattern`, whose message would be the pattern.
            "x-kubernetes-validations": [
                {
                    "rule": f"type(self) == int || self.matches(r'{PATTERN}')",
                    "message": 'must be an ISO 8601 duration such as "PT5M" or whole seconds',
                }
            ],
        }
    ),
]
"""Seconds, parsed by `parse_duration_s`."""
