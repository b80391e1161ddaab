"""Many callers, one statement at a time: while one runs, the next batch gathers itself."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable
from queue_operator.queue.clock import sleep_unless
from queue_operator.queue.lifecycle import Troubles

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

_BACKLOG_BATCHES: Final = 8
"""Callers wait once this many batches are pending, so memory stays bounded in an outage."""


@dataclass(slots=True, eq=False)
class _Call(Generic[Item, Result]):
    items: Sequence[Item]
    answer: "asyncio.Future[list[Result]]"
    taken: int = 0
    results: list[Result] = field(default_factory=list)


class Coalescer(Generic[Item, Result]):
    """Gathers items of all callers into batches of at most `max_batch`, in order of arrival.

    `apply` must answer one result per item. While it raises Unavailable the same batch is
    tried again, with backoff; any other error splits the batch until the guilty item is
    alone, and `refuse` makes its result, so one bad item disturbs nobody else.
    """

    def __init__(
        self,
        name: str,
        apply: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        refuse: Callable[[Item, Exception], Result],
        *,
        max_batch: int,
        clock: Clock,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._name = name
        self._apply = apply
        self._refuse = refuse
        self._max_batch = max_batch
        self._clock = clock
        self._troubles = Troubles(name, rng)
        self._calls: deque[_Call[Item, Result]] = deque()
        self._pending = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._stopping.clear()
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Applies what is pending; what the store will not take now raises Unavailable."""
        self._stopping.set()
        self._arrived.set()
        if self._task is not None:
            await self._task
            self._task = None

    @property
    def has_room(self) -> bool:
        """False while so much is pending that callers have to wait."""
        return self._room.is_set()

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """Results in the order of `items`, after they were applied. Waits for room first.

        Raises Unavailable when the queue stops before the store took them.
        """
        while not self._room.is_set():
            await self._room.wait()
        return await self.offer(items)

    def offer(self, items: Sequence[Item]) -> "asyncio.Future[list[Result]]":
        """`submit` without waiting for room; the items are in line when this returns."""
        answer: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        if not items:
            answer.set_result([])
        elif self._stopping.is_set():
            _fail(answer, self._too_late())
        else:
            self._calls.append(_Call(items, answer))
            self._count(len(items))
            self._arrived.set()
        return answer

    def _too_late(self) -> Unavailable:
        return Unavailable(f"{self._name}: the queue is shutting down; send it again elsewhere")

    def _count(self, change: int) -> None:
        self._pending += change
        if self._pending > self._max_batch * _BACKLOG_BATCHES:
            self._room.clear()
        else:
            self._room.set()

    async def _run(self) -> None:
        while True:
            while self._calls:
                await self._turn()
            if self._stopping.is_set():
                return
            self._arrived.clear()
            await self._arrived.wait()

    async def _turn(self) -> None:
        batch, owners = self._take()
        try:
            results = await self._apply_stubbornly(batch)
        except Unavailable as error:
            self._give_up(owners, error)
            return
        position = 0
        for call, count in owners:
            call.results.extend(results[position : position + count])
            position += count
            if len(call.results) == len(call.items) and not call.answer.done():
                call.answer.set_result(call.results)

    def _take(self) -> tuple[list[Item], list[tuple[_Call[Item, Result], int]]]:
        batch: list[Item] = []
        owners: list[tuple[_Call[Item, Result], int]] = []
        while self._calls and len(batch) < self._max_batch:
            call = self._calls[0]
            part = call.items[call.taken : call.taken + self._max_batch - len(batch)]
            call.taken += len(part)
            batch.extend(part)
            owners.append((call, len(part)))
            if call.taken == len(call.items):
                self._calls.popleft()
        self._count(-len(batch))
        return batch, owners

    def _give_up(self, owners: list[tuple[_Call[Item, Result], int]], error: Unavailable) -> None:
        calls = [call for call, _ in owners] + list(self._calls)
        self._calls.clear()
        self._pending = 0
        self._room.set()
        lost = sum(len(call.items) for call in set(calls))
        logger.warning("%s stops with %d entries that the store did not take", self._name, lost)
        for call in calls:
            _fail(call.answer, error)

    async def _apply_stubbornly(self, batch: Sequence[Item]) -> list[Result]:
        while True:
            try:
                results = list(await self._apply(batch))
            except Unavailable as error:
                delay_s = self._troubles.failed(error)
                if await sleep_unless(self._stopping, delay_s, self._clock):
                    raise
            except Exception as error:
                return await self._bisect(batch, error)
            else:
                self._troubles.recovered()
                return results

    async def _bisect(self, batch: Sequence[Item], error: Exception) -> list[Result]:
        if len(batch) == 1:
            logger.error("%s refuses one entry", self._name, exc_info=error)
            return [self._refuse(batch[0], error)]
        middle = len(batch) // 2
        first = await self._apply_stubbornly(batch[:middle])
        return first + await self._apply_stubbornly(batch[middle:])


def _fail(answer: "asyncio.Future[list[Result]]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        # Some callers do not wait, and asyncio would report an exception nobody looked at.
        answer.exception()
