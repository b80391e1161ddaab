"""Payloads, result values and times as SQLite holds them: JSON as TEXT, bytes as a BLOB, times
as text that sorts like time.
"""

import json
from datetime import UTC, datetime
from typing import cast

from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.validation import check_json_depth, check_time
from queue_operator.tasks.protocol import Value


def encode(field: str, value: object, limit: int) -> str | bytes:
    """Raises InvalidArgument for what would not come back equal, such as a tuple, a key that is
    no string or bytes inside a list, and PayloadTooLarge for more than `limit` bytes.
    """
    stored = value if isinstance(value, bytes) else _json(field, value)
    if len(stored) > limit:
        raise PayloadTooLarge(field, len(stored), limit)
    return stored


def decode(stored: str | bytes | None) -> Value:
    """What `encode` was given; None for a value that was never set."""
    if stored is None or isinstance(stored, bytes):
        return stored
    return cast(Value, json.loads(stored))


def encode_time(field: str, at: object) -> str:
    """`at` in UTC, to the microsecond. Raises InvalidArgument for a naive time."""
    if not isinstance(at, datetime):
        raise InvalidArgument(field, f"must be a datetime, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise InvalidArgument(field, "must carry a time zone")
    check_time(field, at)
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def decode_time(stored: str) -> datetime:
    return datetime.fromisoformat(stored)


def _json(field: str, value: object) -> str:
    try:
        # ASCII, because lone surrogates and NUL have no other way into a TEXT.
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        check_json_depth(field, text.encode())
        kept = json.loads(text) == value
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(field, f"must be bytes or a JSON value: {error}") from None
    if not kept:
        raise InvalidArgument(
            field, "must be bytes or a JSON value: lists, not tuples, and strings as keys"
        )
    return text
