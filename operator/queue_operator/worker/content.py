"""Content types that the SDK writes and reads, texts that can be stored, and names of kinds."""

import re
from typing import Final

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Replaces what neither protobuf nor Postgres can hold."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def kind_of(value: object) -> str:
    """The type of a value as a reader would call it: "a set", "an object"."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
