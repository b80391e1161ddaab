"""A clock that the test turns, and a queue with quotas."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.queue.counting import START, Counting, Limited

from queue_operator.backends.memory import MemoryShelf
from queue_operator.queue.service import QueueService
from queue_operator.settings import Quota, QuotaSettings


class ManualClock:
    """Time stands still until somebody sleeps; then `skip` jumps to the next waking."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._fell_asleep = asyncio.Event()
        self._count = 0

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        self._count += 1
        waking = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + delay_s, self._count, waking))
        self._fell_asleep.set()
        await waking

    async def skip(self) -> float:
        """Waits for a sleeper, wakes the one due first and gives how long it slept."""
        while True:
            while self._sleepers:
                due_s, _, waking = heapq.heappop(self._sleepers)
                if not waking.done():
                    slept_s, self.now_s = due_s - self.now_s, max(self.now_s, due_s)
                    waking.set_result(None)
                    return slept_s
            self._fell_asleep.clear()
            await self._fell_asleep.wait()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def backend(clock: ManualClock) -> Counting:
    return Counting(MemoryShelf(), clock=lambda: START + timedelta(seconds=clock.now_s))


@pytest.fixture
async def limited(backend: Counting, clock: ManualClock) -> AsyncIterator[Limited]:
    queues: list[QueueService] = []

    def make(**quota: Any) -> QueueService:
        quotas = QuotaSettings(namespaces={"team": Quota(**quota)})
        queues.append(QueueService(backend, clock=clock, quotas=quotas))
        return queues[-1]

    yield make
    for queue in queues:
        await queue.stop()
