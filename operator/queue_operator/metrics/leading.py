"""Which replica shows what is the same on all of them, so that it is shown once."""

import asyncio
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from queue_operator.backends.figures import Leadership
from queue_operator.domain.clock import Clock

BEATS: Final = 3
"""How often the turn is kept before it would be over."""


class Leader:
    """Whether it is this replica's turn, asked anew with each beat. Without a `store` that others
    share it always is.
    """

    def __init__(self, store: Leadership | None, clock: Clock, ttl_s: float) -> None:
        self._store = store
        self._clock = clock
        self._ttl_s = ttl_s
        # A process that begins anew under the same name is another one.
        self._holder = secrets.token_hex(8)
        self._until = float("inf") if store is None else float("-inf")
        self._beating = asyncio.Lock()

    @property
    def holder(self) -> str:
        return self._holder

    @property
    def beat_s(self) -> float:
        return self._ttl_s / BEATS

    @property
    def leads(self) -> bool:
        """May be asked from any thread. Over when no beat has succeeded in time, also where this
        process was stopped meanwhile and does not know yet.
        """
        return self._clock.monotonic() < self._until

    async def beat(self) -> None:
        """Takes the turn or keeps it. Raises QueueError; the turn may then go on for a while."""
        if self._store is None:
            return
        # One of two at a time would find the row locked, and take it for another's.
        async with self._beating:
            # Others count from later on, so that there are never two.
            begun = self._clock.monotonic()
            is_ours = await self._store.lead(self._holder, self._ttl_s)
            self._until = begun + self._ttl_s if is_ours else float("-inf")

    async def resign(self) -> None:
        """Leaves the turn to others at once. Raises QueueError; then they have to wait."""
        if self._store is not None:
            async with self._beating:
                self._until = float("-inf")
                # It may be ours although no beat was answered.
                await self._store.resign(self._holder)


class LeaderOnly(Collector):
    """Shows what `inner` collects while `leads` says so, and else nothing."""

    def __init__(self, inner: Collector, leads: Callable[[], bool]) -> None:
        self._inner = inner
        self._leads = leads

    def collect(self) -> Iterable[Metric]:
        """Called by the scrape, in its own thread."""
        return self._inner.collect() if self._leads() else ()
