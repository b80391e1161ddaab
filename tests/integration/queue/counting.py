"""Statements counted by the server itself, and a clock that lets a minute pass in moments."""

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg
from tests.waiting import STATEMENT_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings

_COUNT = """
    SELECT query, sum(calls)::bigint FROM pg_stat_statements
    WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND query NOT LIKE '%pg_stat_statements%'
    GROUP BY query
"""
_AT_MOST_S = 2.0

Sleep = Callable[[float], Awaitable[None]]
Statements = Callable[[], Awaitable[dict[str, int]]]


@asynccontextmanager
async def counted(dsn: str) -> AsyncIterator[Statements]:
    """Gives a call that tells how often each statement was run since this began."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

        async def read() -> dict[str, int]:
            return dict(await (await connection.execute(_COUNT)).fetchall())

        before = await read()

        async def since() -> dict[str, int]:
            now = await read()
            spent: Counter[str] = Counter()
            for query, calls in now.items():
                spent[" ".join(query.split())[:80]] += calls - before.get(query, 0)
            return +spent

        yield since


class PacedClock:
    """Its time stands still but in `pass_by`, which lets each loop finish its turn before the
    next one wakes: as many turns happen as in real time, with nothing of the waiting.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._asleep = self._woken = 0
        self._numbers = 0
        self._changed = asyncio.Event()

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        waking = asyncio.get_running_loop().create_future()
        self._numbers += 1
        heapq.heappush(self._sleepers, (self.now_s + delay_s, self._numbers, waking))
        self._asleep += 1
        self._changed.set()
        try:
            await waking
        finally:
            self._asleep -= 1
            self._woken += 1

    async def pass_by(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        # Where all wait for the store and nobody for the time, the store gets to answer.
        await asyncio.wait([asyncio.ensure_future(next_turn())])
        while self._sleepers and self._sleepers[0][0] <= end_s:
            due_s, _, waking = heapq.heappop(self._sleepers)
            if waking.done():
                continue
            self.now_s = max(self.now_s, due_s)
            asleep, woken = self._asleep, self._woken
            waking.set_result(None)
            while self._woken == woken:
                await asyncio.wait([asyncio.ensure_future(next_turn())])
            await self._until_asleep(asleep)
        self.now_s = end_s

    async def _until_asleep(self, count: int) -> None:
        """One that waits for something else from now on is not waited for for long."""
        try:
            async with asyncio.timeout(_AT_MOST_S):
                while self._asleep < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass


class TurningClock(PacedClock):
    """Where nothing waits for the world outside, a few turns of the loop are time enough."""

    async def _until_asleep(self, count: int) -> None:
        await turns(30)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.wait([asyncio.ensure_future(next_turn())])


async def next_turn() -> None:
    """Nothing: the loop comes round."""


@asynccontextmanager
async def paced_queue(
    dsn: str, clock: PacedClock, *, deaf: bool = False, polls: Sleep | None = None
) -> AsyncIterator[QueueService]:
    """A queue all of whose loops follow the clock. One that is deaf hears no notifications, as
    behind a pooler. `polls` stands for the clock's sleep between two polls of the store.
    """
    backend = await PostgresBackend.open(
        dsn, sleep=clock.sleep, pooler=deaf, statement_timeout_s=STATEMENT_S
    )
    backend._pulse._sleep = polls or clock.sleep
    queue = QueueService(backend, QueueSettings(), clock=clock)
    await queue.start()
    try:
        yield queue
    finally:
        await queue.close()
