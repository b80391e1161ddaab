"""Ids of messages: where a message lies, and what tells it from that of a copy of the store."""

import re
import uuid
from typing import Final, NamedTuple

_ID: Final = re.compile(r"msg_([1-9][0-9]{0,18})_([0-9a-f]{32})")
_NUMBERS: Final = 2**63


class Named(NamedTuple):
    """The two parts of an id."""

    number: int
    salt: uuid.UUID


def id_of(number: int, salt: uuid.UUID) -> str:
    return f"msg_{number}_{salt.hex}"


def named(id: str) -> Named | None:
    """None for a text that no message has as its id."""
    found = _ID.fullmatch(id)
    if found is None or int(found[1]) >= _NUMBERS:
        return None
    return Named(int(found[1]), uuid.UUID(found[2]))
