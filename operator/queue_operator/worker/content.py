"""Content types that the SDK writes and reads, and texts that can be stored."""

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
