"""Durations as a manifest writes them: text of the grammar of all doors, or whole seconds."""

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from queue_operator.domain.durations import FORMS, MAX_CHARACTERS, PATTERN, seconds_of
from queue_operator.domain.limits import MAX_DURATION_S

_MESSAGE: Final = (
    'must be whole seconds, or text such as "90s", "1h30m" or "PT1H30M"; '
    "years and months have no fixed length"
)


def parse_duration_s(value: Any) -> float:
    """Seconds of text of the grammar, or of an integer.

    Raises ValueError saying which spellings are understood.
    """
    if isinstance(value, float):
        # Kubernetes knows a field of integers and texts, and none of numbers and texts.
        raise ValueError(f'must be whole seconds or text: write "{value:g}s"')
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"must be a duration: {FORMS}")
    seconds = seconds_of(value)
    if seconds > MAX_DURATION_S:
        raise ValueError(f"must be at most {MAX_DURATION_S:.0f} seconds")
    return seconds


Duration = Annotated[
    float,
    BeforeValidator(parse_duration_s),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "maximum": int(MAX_DURATION_S),
            "maxLength": MAX_CHARACTERS,
            # A rule and not `pattern`, whose message would be the pattern.
            "x-kubernetes-validations": [
                {
                    "rule": f"type(self) == int || self.matches(r'{PATTERN}')",
                    "message": _MESSAGE,
                }
            ],
        }
    ),
]
"""Seconds, parsed by `parse_duration_s`."""
