"""Ids that sort by the time they were made, and ids that are made again the same."""

import uuid
from typing import Final

_NS_PER_MS: Final = 1_000_000
_FRACTIONS: Final = 1 << 12
ENTROPY_BITS: Final = 62
_SPAWNED: Final = uuid.UUID("6f0d8b8e-6a0c-5d0e-9a57-3d5b1c6f2e41")


def uuid7(unix_ns: int, entropy: int) -> str:
    """The UUIDv7 (RFC 9562) of a time in nanoseconds since 1970: milliseconds, twelve bits
    below them, then the low 62 bits of `entropy`, which must be random.
    """
    ms, rest_ns = divmod(unix_ns, _NS_PER_MS)
    fraction = rest_ns * _FRACTIONS // _NS_PER_MS
    random_bits = entropy & (1 << ENTROPY_BITS) - 1
    value = (ms & (1 << 48) - 1) << 80 | 7 << 76 | fraction << 64 | 2 << 62 | random_bits
    # To make a UUID of it first takes twice as long.
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def spawned_id(namespace: str, parent_id: str, key: str) -> str:
    """The id of a child: the same for the same key of the same parent."""
    # A separator that none of the three can hold.
    return str(uuid.uuid5(_SPAWNED, "\x00".join((namespace, parent_id, key))))
