"""Ids that sort by the time they were made."""

import uuid
from typing import Final

_NS_PER_MS: Final = 1_000_000
_FRACTIONS: Final = 1 << 12
ENTROPY_BITS: Final = 62


def uuid7(unix_ns: int, entropy: int) -> str:
    """The UUIDv7 (RFC 9562) of a time in nanoseconds since 1970: milliseconds, twelve bits
    below them, then the low 62 bits of `entropy`, which must be random.
    """
    ms, rest_ns = divmod(unix_ns, _NS_PER_MS)
    fraction = rest_ns * _FRACTIONS // _NS_PER_MS
    random_bits = entropy & (1 << ENTROPY_BITS) - 1
    value = (ms & (1 << 48) - 1) << 80 | 7 << 76 | fraction << 64 | 2 << 62 | random_bits
    return str(uuid.UUID(int=value))
