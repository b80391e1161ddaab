"""The memory backend: nothing waits inside a change, so every call is alone."""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from queue_operator.backends.engine import Engine
from queue_operator.backends.memory.shelf import MemoryShelf
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits

_T = TypeVar("_T")


class MemoryBackend(Engine):
    """Every store's model. Nothing outlives the process; backends on one shelf share its jobs."""

    def __init__(
        self,
        shelf: MemoryShelf | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: Callable[[], float] = random.random,
        cancel_timeout_s: float = 30.0,
    ) -> None:
        self._own = shelf or MemoryShelf()
        self._closed = False
        super().__init__(
            self._own, limits=limits, clock=clock, rng=rng, cancel_timeout_s=cancel_timeout_s
        )
        self._own.swept_at = self._own.swept_at or self._now

    async def _alone(self, work: Callable[[], _T], *, reads: bool = False) -> _T:
        await asyncio.sleep(0)
        if self._closed or not self._own.reachable:
            raise Unavailable("the memory store is closed or was put out of reach")
        return work()

    async def close(self) -> None:
        self._closed = True
