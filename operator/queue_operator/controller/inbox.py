"""Sightings on their way to the database, bounded by their number and by what they take."""

import asyncio
from collections.abc import Sequence
from typing import Final

from queue_operator.controller.sighting import Sighting

MOST: Final = 10_000
MOST_BYTES: Final = 16 * 1024 * 1024
BATCH_BYTES: Final = 4 * 1024 * 1024


class Inbox:
    """Whoever lists objects waits here for room. Whoever cannot wait is told that there is none.

    What was handed out in a batch takes room until it is `done`. Anything fits an empty inbox.
    """

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._waiting: asyncio.Queue[Sighting] = asyncio.Queue()
        self._held = 0
        self._bytes = 0
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return self._held

    def offer(self, sighting: Sighting) -> bool:
        """False when there is no room."""
        fits = self._held < self._most and self._bytes + sighting.size <= self._most_bytes
        if self._held and not fits:
            return False
        self._held += 1
        self._bytes += sighting.size
        self._idle.clear()
        self._waiting.put_nowait(sighting)
        return True

    async def put(self, sighting: Sighting) -> None:
        while not self.offer(sighting):
            await self._something_done()

    async def half_empty(self) -> None:
        while 2 * self._held > self._most or 2 * self._bytes > self._most_bytes:
            await self._something_done()

    async def _something_done(self) -> None:
        self._room.clear()
        await self._room.wait()

    async def batch(self, most: int, window_s: float) -> Sequence[Sighting]:
        """The next one, and those that come within the window."""
        batch = [await self._waiting.get()]
        size = batch[0].size
        try:
            async with asyncio.timeout(window_s):
                while len(batch) < most and size < BATCH_BYTES:
                    batch.append(await self._waiting.get())
                    size += batch[-1].size
        except TimeoutError:
            pass
        return batch

    def done(self, batch: Sequence[Sighting]) -> None:
        self._held -= len(batch)
        self._bytes -= sum(sighting.size for sighting in batch)
        self._room.set()
        if not self._held:
            self._idle.set()

    async def drained(self) -> None:
        """Once all that was put in is done."""
        await self._idle.wait()
