"""What the metrics about the stored jobs are made of, in a store that several processes share."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Leadership(Protocol):
    """One of those who share a store has the turn to tell of it."""

    async def lead(self, holder: str, ttl_s: float) -> bool:
        """Takes the turn, or keeps it for so long; whether `holder` has it now."""
        ...

    async def resign(self, holder: str) -> None:
        """Gives the turn back, if it is the holder's."""
        ...
