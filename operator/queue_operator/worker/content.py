"""Content types that the SDK writes and reads, and texts that can be stored."""

import re
from typing import Final

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Replaces what neither protobuf nor Postgres can hold."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def cut(text: str, limit: int, *, keep_end: bool = False) -> str:
    """At most `limit` bytes of UTF-8, with no half characters."""
    data = text.encode()
    if len(data) <= limit:
        return text
    return (data[-limit:] if keep_end else data[:limit]).decode(errors="ignore")
