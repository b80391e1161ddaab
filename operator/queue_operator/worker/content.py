"""Content types that the SDK writes and reads, texts that can be stored, and names of kinds."""

import re
from typing import Final

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Replaces what neither protobuf nor Postgres can hold; a plain string, whatever subclass of
    it was given.
    """
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", str.__str__(text))


def text_of(value: object) -> str:
    """Its text. An object of user code that cannot say what it is must not stop the worker."""
    try:
        return str.__str__(str(value))
    except Exception as error:
        return f"{kind_of(value)} whose text cannot be had: {type(error).__name__}"


def kind_of(value: object) -> str:
    """The type of a value as a reader would call it: "a set", "an object"."""
    name = type(value).__name__ or "object"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
