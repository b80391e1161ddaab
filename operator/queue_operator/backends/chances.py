"""The random part of tokens: from one draw per claim, and nothing of it tells of the rest."""

import os
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Final

Entropy = Callable[[int], bytes]
"""Gives so many bytes that nobody can guess."""

SYSTEM: Final[Entropy] = os.urandom

_CHANCE_BYTES: Final = 8
_TOKEN_BYTES: Final = 16
_VERSION: Final = 4


def chances(entropy: Entropy, count: int) -> tuple[int, ...]:
    """So many numbers of 64 bits and a sign, from one draw."""
    return struct.unpack(f">{count}q", entropy(_CHANCE_BYTES * count))


def tokens(entropy: Entropy, count: int) -> Iterator[str]:
    """So many tokens, from one draw."""
    drawn = entropy(_TOKEN_BYTES * count)
    for start in range(0, len(drawn), _TOKEN_BYTES):
        yield str(uuid.UUID(bytes=drawn[start : start + _TOKEN_BYTES], version=_VERSION))
