"""Messages that ended are kept for a while, whether or not anybody sends."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

from queue_operator.backends.ending import end_tasks
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError
from queue_operator.settings import WebhookSettings

logger = logging.getLogger(__name__)

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
        self._said = ""

    @asynccontextmanager
    async def pruning(self) -> AsyncIterator[None]:
        """Now and then, meanwhile."""
        task = asyncio.create_task(self._run(), name="pruning of messages")
        try:
            yield
        finally:
            await end_tasks([task])

    async def _run(self) -> None:
        while True:
            await self.turn()
            await self._clock.sleep(TURN_S if self._leads() else LOOK_S)

    async def turn(self) -> None:
        """Says of each new kind of failure what it is, and no more."""
        try:
            await self._prune()
            self._said = ""
        except Exception as error:
            why = str(error) if isinstance(error, QueueError) else repr(error)
            if why != self._said:
                self._said = why
                logger.warning("messages that ended are pruned later: %s", why)

    async def _prune(self) -> None:
        kept = self._settings
        for _ in range(STEPS):
            if not self._leads():
                return
            pruned = await self._outbox.prune(
                delivered_s=kept.keep_delivered_s, failed_s=kept.keep_failed_s, limit=STEP
            )
            if pruned < STEP:
                return
