"""Keeps the statistics up to date, off the way of the jobs. Every replica does; the store gives
one at a time its turn.
"""

import random
from collections.abc import Callable
from typing import Final

from queue_operator.backends.protocol import Backend, Statistics
from queue_operator.domain.clock import Clock
from queue_operator.queue.lifecycle import Loops

ROWS: Final = 5000
"""Rows of the event log that are added at a time; where there are more, the next follow at once."""
BUSY_S: Final = 5.0
IDLE_S: Final = 20.0
"""How often it looks: whoever asks meanwhile has what is not added yet read for himself."""


class Bookkeeper:
    """Rolls up what happened, ever more seldom while nothing does."""

    def __init__(
        self, backend: Backend, clock: Clock, rng: Callable[[], float] = random.random
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._loops = Loops(clock, rng)
        self._pause_s = BUSY_S

    async def start(self) -> None:
        if isinstance(self._backend, Statistics):
            self._loops.run("rolling up statistics", self._turn)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _turn(self) -> None:
        await self._clock.sleep(self._pause_s)
        await self.roll_up()

    async def roll_up(self) -> None:
        """All there is, in steps."""
        if not isinstance(self._backend, Statistics):
            return
        rolled = added = await self._backend.roll_up(limit=ROWS)
        while added >= ROWS:
            added = await self._backend.roll_up(limit=ROWS)
        self._pause_s = BUSY_S if rolled else min(self._pause_s * 2, IDLE_S)
