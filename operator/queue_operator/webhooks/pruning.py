"""Messages that ended are kept for a while, whether or not anybody sends."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from queue_operator.domain.clock import Clock
from queue_operator.queue.lifecycle import Loops
from queue_operator.settings import WebhookSettings

TURN_S: Final = 10.0
LOOK_S: Final = 1.0
"""How often it is asked whether this replica leads, while it does not."""
STEP: Final = 10_000
"""Messages of each kind that one step deletes, in a transaction of its own."""
STEPS: Final = 10
"""Of one turn: more than are delivered meanwhile."""


class Prunable(Protocol):
    """The part of an outbox that is asked."""

    async def prune(self, *, delivered_s: float, failed_s: float, limit: int) -> int: ...


class Pruner:
    """Works in the server's process, of that replica which `leads`."""

    def __init__(
        self,
        outbox: Prunable,
        settings: WebhookSettings,
        clock: Clock,
        leads: Callable[[], bool],
    ) -> None:
        self._outbox = outbox
        self._settings = settings
        self._clock = clock
        self._leads = leads
        self._loops = Loops(clock)

    @asynccontextmanager
    async def pruning(self) -> AsyncIterator[None]:
        """Now and then, meanwhile."""
        self._loops.run("pruning messages", self._turn)
        try:
            yield
        finally:
            await self._loops.stop()

    async def _turn(self) -> None:
        await self._clock.sleep(TURN_S if self._leads() else LOOK_S)
        await self.prune()

    async def prune(self) -> None:
        """What is kept for long enough, or a good part of it. Raises QueueError."""
        kept = self._settings
        for _ in range(STEPS):
            if not self._leads():
                return
            pruned = await self._outbox.prune(
                delivered_s=kept.keep_delivered_s, failed_s=kept.keep_failed_s, limit=STEP
            )
            if pruned < STEP:
                return
