"""Values as the JSON of a request."""

import json
from typing import Any, Final

from queue_operator.domain.errors import InvalidArgument

_OUT_OF_RANGE: Final = "Out of range float values"


def encode(body: Any, field: str = "request") -> bytes:
    """`body` as JSON. Raises InvalidArgument, which names `field`, for what JSON cannot hold."""
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except UnicodeEncodeError:
        reason = "half a character (a lone surrogate) is no text"
    except RecursionError:
        reason = "it is nested too deeply"
    except (ValueError, TypeError) as error:
        is_number = str(error).startswith(_OUT_OF_RANGE)
        reason = "NaN and Infinity are no numbers there" if is_number else str(error)
    raise InvalidArgument(field, f"cannot be written as JSON: {reason}")
