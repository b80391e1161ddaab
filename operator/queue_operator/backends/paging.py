"""Cursors: where the next page of a search begins, as text that callers hand back."""

import base64
import binascii
import hashlib
import json
from dataclasses import fields
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from queue_operator.backends.protocol import FailureSearch, JobSearch
from queue_operator.backends.webhooks import MessageSearch
from queue_operator.domain.errors import InvalidArgument

_PAGING: Final = {"cursor", "limit", "count", "after"}
_DIGEST_BYTES: Final = 6
_FOREIGN: Final = "is not a cursor of this search; leave it out to begin with the first page"

_FIRST: Final = datetime(2, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_NUMBERS: Final = 2**63

Position = tuple[datetime, int]
"""The sort key of the last job of a page: a time, and the job's number."""


def encode_cursor(search: JobSearch | FailureSearch, position: Position) -> str:
    """The cursor that goes on after `position`."""
    at, number = position
    text = json.dumps([_digest(search), at.astimezone(UTC).isoformat(), number])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(search: JobSearch | FailureSearch) -> Position | None:
    """The position that the search's cursor stands for, None on the first page.

    Raises InvalidArgument for a cursor of another search, and for what is none at all.
    """
    if not search.cursor:
        return None
    try:
        digest, at, number = _decoded(search.cursor)
        time = datetime.fromisoformat(at)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise InvalidArgument("cursor", _FOREIGN) from None
    # Whoever forges one may know the digest, and write any JSON beside it.
    if digest != _digest(search) or not (_is_stored(time) and _is_number(number)):
        raise InvalidArgument("cursor", _FOREIGN)
    return time, number


def encode_place(search: MessageSearch, number: int) -> str:
    """The cursor that goes on below a number."""
    text = json.dumps([_digest(search), number])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_place(search: MessageSearch) -> int:
    """The number that the search's cursor stands for, above all on the first page. Raises
    InvalidArgument as `decode_cursor`.
    """
    if not search.after:
        return _NUMBERS - 1
    try:
        digest, number = _decoded(search.after)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise InvalidArgument("after", _FOREIGN) from None
    if not (_is_number(number) and digest == _digest(search)):
        raise InvalidArgument("after", _FOREIGN)
    return int(number)


def _decoded(cursor: str) -> Any:
    padded = cursor + "=" * (-len(cursor) % 4)
    return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))


def _is_stored(at: datetime) -> bool:
    """Whether a store can have this time."""
    return at.tzinfo is not None and _FIRST <= at <= _LAST


def _is_number(value: object) -> bool:
    """Whether it may be the number of a job: Infinity and 2**63 come as JSON too."""
    return type(value) is int and 0 <= value < _NUMBERS


def _digest(search: JobSearch | FailureSearch | MessageSearch) -> str:
    """Of the filters and the order: a page of other size may follow, counted or not."""
    told = {f.name: _plain(getattr(search, f.name)) for f in fields(search)}
    text = json.dumps({k: v for k, v in told.items() if k not in _PAGING}, sort_keys=True)
    kind = type(search).__name__
    digest = hashlib.sha256(f"{kind} {text}".encode(), usedforsecurity=False)
    return digest.hexdigest()[: 2 * _DIGEST_BYTES]


def _plain(value: Any) -> Any:
    match value:
        case frozenset():
            return sorted(map(_plain, value))
        case datetime():
            return value.astimezone(UTC).isoformat()
        case Enum():
            return value.value
    return value
