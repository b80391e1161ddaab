"""Ids for jobs whose callers give none."""

import os
import time
from typing import Final

from queue_operator.domain.ids import ENTROPY_BITS, uuid7

_BYTES: Final = (ENTROPY_BITS + 7) // 8
_AT_ONCE: Final = 256
_spare: Final[list[bytes]] = []


def new_job_id() -> str:
    """A UUIDv7 of now. Threads may ask at once."""
    return uuid7(time.time_ns(), int.from_bytes(_entropy()))


def _entropy() -> bytes:
    """Random bytes that no id has had. To ask the system for each took a sixth of a batch."""
    try:
        return _spare.pop()
    except IndexError:
        drawn = os.urandom(_BYTES * _AT_ONCE)
        first, *others = (drawn[at : at + _BYTES] for at in range(0, len(drawn), _BYTES))
        _spare.extend(others)
        return first
