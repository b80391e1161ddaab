"""How everything that runs in the background starts, survives failures and stops."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from queue_operator.backends.ending import end_tasks
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.retry import Backoff, BackoffStrategy, delay_s

logger = logging.getLogger(__name__)

RECONNECT: Final = Backoff(BackoffStrategy.EXPONENTIAL, initial_delay_s=0.1, max_delay_s=5.0)
"""Full jitter, so that replicas do not return to a recovering store in step."""


class Service(Protocol):
    """`start` returns when the part works; `stop` when nothing of it runs any more."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Troubles:
    """Counts failures in a row, logs the first and the recovery, and says how long to wait."""

    def __init__(self, name: str, rng: Callable[[], float] = random.random) -> None:
        self._name = name
        self._rng = rng
        self._failures = 0

    def failed(self, error: Exception) -> float:
        """Seconds until the next try."""
        self._failures += 1
        if not isinstance(error, Unavailable):
            logger.error("%s failed and will be tried again", self._name, exc_info=error)
        elif self._failures == 1:
            logger.warning("%s waits for the store: %s", self._name, error)
        return delay_s(RECONNECT, self._failures, self._rng)

    def recovered(self) -> None:
        if self._failures:
            logger.warning("%s works again after %d failed tries", self._name, self._failures)
            self._failures = 0


class Loops:
    """Background tasks that repeat one turn for ever and outlive its failures."""

    def __init__(self, clock: Clock, rng: Callable[[], float] = random.random) -> None:
        self._clock = clock
        self._rng = rng
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, name: str, turn: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(self._repeat(name, turn), name=name))

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        await end_tasks(tasks)

    async def _repeat(self, name: str, turn: Callable[[], Awaitable[None]]) -> None:
        troubles = Troubles(name, self._rng)
        while True:
            try:
                await turn()
            except Exception as error:
                await self._clock.sleep(troubles.failed(error))
            else:
                troubles.recovered()
