"""The memory backend as a store of the conformance suite."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from queue_operator.backends.memory import MemoryBackend, MemoryShelf
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits
from queue_operator.testing.store import half


class ManualClock:
    """A time that goes on by a microsecond each time it is asked, and otherwise by hand."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=1)
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class MemoryStore:
    """A dictionary of jobs, with a clock that only the test moves."""

    clock: ManualClock = field(default_factory=ManualClock)
    shelf: MemoryShelf = field(default_factory=MemoryShelf)
    durable: bool = False

    async def open(
        self, *, limits: Limits = DEFAULT_LIMITS, rng: Callable[[], float] = half
    ) -> MemoryBackend:
        return MemoryBackend(
            self.shelf, limits=limits, clock=self.clock, rng=rng, cancel_timeout_s=30.0
        )

    async def age(self, seconds: float, *, outage: bool = False) -> None:
        self.clock.advance(seconds)
        if not outage:
            self.shelf.swept_at = self.clock()

    async def break_down(self) -> None:
        self.shelf.reachable = False

    async def mend(self) -> None:
        self.shelf.reachable = True

    async def faults(self) -> list[str]:
        numbers = [one.number for one in self.shelf.jobs.values()]
        wrong = [
            f"job {one.job.id} is {one.job.state}, its history ends {one.transitions[-1].after}"
            for one in self.shelf.jobs.values()
            if one.transitions[-1].after is not one.job.state
        ]
        return wrong if len(set(numbers)) == len(numbers) else [*wrong, "two jobs have one number"]

    async def close(self) -> None:
        self.shelf = MemoryShelf()
