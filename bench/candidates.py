"""What a storage design must offer to be measured."""

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

Claimed = Sequence[tuple[str, str]]
"""Pairs of job id and lease token."""


class Candidate(Protocol):
    """Jobs are submitted, claimed under a token, and completed under that token."""

    name: ClassVar[str]

    @classmethod
    async def open(cls, dsn: str) -> Self:
        """Makes the schema in an empty database and connects."""
        ...

    async def submit(self, ids: Sequence[str], payload: bytes) -> None: ...

    async def claim(self, limit: int) -> Claimed: ...

    async def complete(self, claimed: Claimed) -> int:
        """Completes jobs whose token is current, and says how many."""
        ...

    async def close(self) -> None: ...
