"""Whether anything holds an event loop."""

import asyncio
import gc
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

MOST_HELD_S: Final = 0.25
"""No single request may hold the loop of a server for longer: heartbeats stand still meanwhile."""
_EVERY_S: Final = 0.002
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")
"""Of a thread, in nanoseconds: how long it ran, and how long it was ready and others ran."""


class LoopWatch:
    """Inside, `longest_s` is the longest that nothing else had a turn. Time in which this process,
    or the thread of the loop, was ready and had no processor does not count: that is somebody
    else's doing.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._scheduled = -1
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.TimerHandle | None = None
        self._last = (0.0, 0.0)

    async def __aenter__(self) -> Self:
        # As the operator does it when it starts: what tests before have left is not looked through.
        gc.collect()
        gc.freeze()
        self._scheduled = os.open(_SCHEDULED, os.O_RDONLY)
        self._last = self._now()
        self._wait()
        # What came before is no part of it.
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._look()
        gc.unfreeze()
        os.close(self._scheduled)
        if self._next is not None:
            self._next.cancel()

    def _wait(self) -> None:
        self._next = self._loop.call_later(_EVERY_S, self._tick)

    def _tick(self) -> None:
        self._look()
        self._wait()

    def _now(self) -> tuple[float, float]:
        """The time that the thread of the loop was not kept from, and the process's own."""
        delayed_ns = int(os.pread(self._scheduled, 100, 0).split()[1])
        return time.perf_counter() - delayed_ns / 1e9, time.process_time()

    def _look(self) -> None:
        now = self._now()
        wall, processor = now[0] - self._last[0], now[1] - self._last[1]
        self.longest_s = max(self.longest_s, min(wall, processor))
        self._last = now
