"""Ids for jobs that came without one: UUIDv7, so that they sort by time."""

import secrets
import time
import uuid
from typing import Final

_FRACTIONS: Final = 1 << 12
_NS_PER_MS: Final = 1_000_000


def new_job_id() -> str:
    """A UUIDv7 (RFC 9562): milliseconds, twelve bits below them, random bits."""
    ms, rest_ns = divmod(time.time_ns(), _NS_PER_MS)
    fraction = rest_ns * _FRACTIONS // _NS_PER_MS
    value = (ms & (1 << 48) - 1) << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))
