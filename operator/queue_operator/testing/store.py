"""What the suite needs of a store beside the contract: opening it, letting time pass, breaking
it, and a look behind the curtain.
"""

from collections.abc import Callable
from typing import Protocol

from queue_operator.backends.protocol import Backend, Failures, History, Lookup, Search
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits

TTL_S = 60.0


def half() -> float:
    """The jitter of the tests: every draw is the middle."""
    return 0.5


class Contract(Backend, Search, Lookup, History, Failures, Protocol):
    """What every store of a queue implements."""


class Store(Protocol):
    """One store, empty at the start of a test."""

    @property
    def durable(self) -> bool:
        """Whether what is stored outlives the process and the last backend on it."""
        ...

    async def open(
        self, *, limits: Limits = DEFAULT_LIMITS, rng: Callable[[], float] = half
    ) -> Contract:
        """A backend on the store, closed at the end of the test. All backends of a store see
        the same jobs. Time limits for cancels are 30 s.
        """
        ...

    async def age(self, seconds: float, *, outage: bool = False) -> None:
        """Makes everything that is stored that much older. Sweeps are taken to have gone on
        meanwhile unless there was an `outage`.
        """
        ...

    async def break_down(self) -> None:
        """Until `mend`, no backend reaches the store: calls raise Unavailable within seconds.
        What is stored stays as it is.
        """
        ...

    async def mend(self) -> None:
        """Ends `break_down`; open backends work again, if not with their first call."""
        ...

    async def faults(self) -> list[str]:
        """Broken invariants: a job that is not in exactly one place, a count that differs from
        a recount. Empty when all is well.
        """
        ...

    async def close(self) -> None:
        """Closes the backends and takes the store away. Possible in any condition."""
        ...
