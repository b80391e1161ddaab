"""How much of what workers sent may wait for the store: while it is away, memory stays bounded."""

import asyncio
from collections import deque


class Backlog:
    """Bytes of all sessions together, at most `limit`, but for one message of each.

    Whoever is over the limit waits in order of arrival, and reads nothing more meanwhile.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def add(self, size: int, *, alone: bool) -> None:
        """Returns once there is room; every `add` that returns has its `remove`. At once where it
        is `alone`, the only message of its session: whoever sends little waits for nobody.
        """
        if not alone and (self._waiting or not self._fits(size)):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    # The room was ours already.
                    self.remove(size)
                raise
        else:
            self._used += size

    def remove(self, size: int) -> None:
        """What was added is stored, or its session is over."""
        self._used -= size
        while self._waiting and self._fits(self._waiting[0][0]):
            waiting, turn = self._waiting.popleft()
            if not turn.done():
                self._used += waiting
                turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._limit
