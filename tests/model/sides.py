"""One store of a pair, and its times and tokens told in words that are the same for all stores."""

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, runtime_checkable

from queue_operator.backends.protocol import (
    CancelInbox,
    Checkpoints,
    EventLog,
    JobLogs,
    Pauses,
    Places,
    ProgressSink,
    Spawner,
    Suspensions,
)
from queue_operator.domain.job import Job
from queue_operator.testing.memory import ManualClock
from queue_operator.testing.store import Contract, Store

# Time passes in multiples of 100 s, and every limit lies between two of them: however long a
# call takes (up to some 20 s), the same limits have passed on both sides.
AGES_S: Final = (100.0, 200.0, 400.0)
TTL_S: Final = 130.0
DELAYS_S: Final = (30.0, 230.0)
CREATED_S: Final = (-3630.0, 230.0)
# By how much a stored time may lie after or before the call that stored it, in seconds.
_DISTANCES_S: Final = (0, *CREATED_S, *DELAYS_S, TTL_S, -30, 60, 90, 120, 150, 160, 180)


@runtime_checkable
class Whole(
    Contract,
    EventLog,
    CancelInbox,
    ProgressSink,
    Checkpoints,
    Spawner,
    JobLogs,
    Pauses,
    Suspensions,
    Places,
    Protocol,
):
    """All that is compared."""

    async def _get(self, namespace: str, job_ids: list[str]) -> dict[str, Job]:
        """Many records at once: they are read after every step."""
        ...


@dataclass
class Side:
    """A store with one backend on it. `clock` is the store's, None where it uses the real one:
    then what is stored is moved back instead of the clock being moved forward.
    """

    name: str
    store: Store
    backend: Whole
    clock: ManualClock | None
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    tokens: list[str] = field(default_factory=list)
    _aged: timedelta = timedelta(0)
    _starts: list[datetime] = field(default_factory=list)
    _ends: list[datetime] = field(default_factory=list)

    @classmethod
    async def of(cls, name: str, store: Store) -> "Side":
        backend = await store.open(rng=_least)
        assert isinstance(backend, Whole)
        return cls(name, store, backend, getattr(store, "clock", None))

    def begin(self) -> None:
        """A step begins, now."""
        now = datetime.now(UTC)
        if self.clock is not None:
            self.clock.now = now = max(self.clock(), now + self._aged)
        self.began = now
        self._starts.append(self._moved(now))

    def end(self) -> None:
        now = datetime.now(UTC) if self.clock is None else self.clock()
        self._ends.append(self._moved(now))

    async def age(self, seconds: float, outage: bool) -> None:
        """Lets time pass; no step of its own, or it would be as long as that."""
        self._aged += timedelta(seconds=seconds)
        await self.store.age(seconds, outage=outage)
        # Delayed jobs become due; whoever finds nothing looks for those first.
        await self.backend.dequeue_jobs("nobody", ["of nobody"], 1)

    def _moved(self, at: datetime) -> datetime:
        """As if nothing had ever been moved back."""
        return at if self.clock is not None else at + self._aged

    def when(self, at: datetime | None) -> str:
        """The step that `at` belongs to, and how far it lies from it."""
        if at is None:
            return ""
        for distance in _DISTANCES_S:
            moment = self._moved(at) - timedelta(seconds=distance)
            place = bisect_right(self._starts, moment) - 1
            if place >= 0 and (place == len(self._ends) or moment <= self._ends[place]):
                return f"step {place}" + (f" {distance:+g} s" if distance else "")
        return f"no step: {self._moved(at).isoformat()}"

    def token_name(self, token: str) -> str:
        """The claim that gave a token."""
        return f"claim {self.tokens.index(token)}" if token in self.tokens else token


def _least() -> float:
    """The jitter of these histories: a backoff of the system's would end within seconds."""
    return 0.0
