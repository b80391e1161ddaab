"""Ids for submissions without one, made before the first try, so that a second try cannot
store the job twice.
"""

import secrets
import time
import uuid
from typing import Final

_NS_PER_MS: Final = 1_000_000


def new_job_id() -> str:
    """A UUIDv7 (RFC 9562): milliseconds, then random bits."""
    ms = time.time_ns() // _NS_PER_MS & (1 << 48) - 1
    value = ms << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))
