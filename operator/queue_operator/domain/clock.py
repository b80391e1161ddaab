"""Where time comes from, for the parts that need one. Decisions about jobs use the
database's clock; this one paces loops and is replaced in tests.
"""

from typing import Protocol


class Clock(Protocol):
    """`monotonic` counts seconds from an arbitrary start; `sleep` waits that many."""

    def monotonic(self) -> float: ...

    async def sleep(self, delay_s: float) -> None: ...
