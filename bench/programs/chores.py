"""What an operator does beside the jobs: heartbeats, sweeps, statistics, quotas, pulses."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from bench.programs.timings import Timings
from bench.programs.traffic import LEASE_TTL_S, Pace
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import StatsWindow
from queue_operator.domain.job import DEFAULT_NAMESPACE, Assignment
from queue_operator.domain.lease import Held, LeaseStatus, heartbeat_interval_s

_ROWS: Final = 5_000
_LEAST_S: Final = 0.005
_BUCKET: Final = "bench"
_PLENTY: Final = 1e9
_LAG_S: Final = 0.05


class PulseWatch:
    """The `sleep` of a backend, which tells how long each beat of its pulse takes: from the end of
    one sleep to the beginning of the next.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._asleep = 0
        self._woke_s: float | None = None

    async def __call__(self, seconds: float) -> None:
        if not self._asleep and self._woke_s is not None:
            self._timings.note("pulse", time.perf_counter() - self._woke_s)
        self._asleep += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._asleep -= 1
            self._woke_s = time.perf_counter()


class Chores:
    """Each at its own interval. Those that write are done the more often the more the time is
    compressed, so that they leave as much behind.
    """

    def __init__(self, backend: PostgresBackend, timings: Timings, pace: Pace) -> None:
        self._backend = backend
        self._timings = timings
        self._pace = pace
        self._held: list[Held] = []
        self.lost = 0

    @asynccontextmanager
    async def going_on(self, held: Sequence[Assignment]) -> AsyncIterator[None]:
        """While the block runs; `held` are kept alive."""
        self._held = [Held(one.job_id, one.token) for one in held]
        beat_s = heartbeat_interval_s(LEASE_TTL_S)
        chores = [
            self._every(beat_s, self._heartbeat, writes=True),
            self._every(beat_s, self._sweep, writes=True),
            self._every(5.0, self._roll_up, writes=True),
            self._every(0.02, self._take, writes=True),
            self._every(0.1, self._usage),
            self._every(1.0, self._ask),
            self._every(0.25, self._ping),
            self._every(0.0, self._lag),
            self._listen(),
        ]
        tasks = [asyncio.create_task(one) for one in chores]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _every(
        self, seconds: float, chore: Callable[[], Awaitable[None]], *, writes: bool = False
    ) -> None:
        while True:
            factor = self._pace.compressed if writes else 1.0
            await asyncio.sleep(max(seconds * factor, min(seconds, _LEAST_S)))
            await chore()

    async def _heartbeat(self) -> None:
        extend = self._backend.extend_leases(self._held, lease_ttl_s=LEASE_TTL_S)
        answers = await self._timings.of("heartbeat", extend) or []
        self.lost += sum(one.status is not LeaseStatus.CURRENT for one in answers)

    async def _sweep(self) -> None:
        expire = self._backend.expire_leases(lease_ttl_s=LEASE_TTL_S)
        self.lost += len(await self._timings.of("sweep", expire) or [])

    async def _roll_up(self) -> None:
        while await self._timings.of("roll_up", self._backend.roll_up(limit=_ROWS)) == _ROWS:
            pass

    async def _take(self) -> None:
        take = self._backend.take_tokens(_BUCKET, 1.0, rate_per_s=_PLENTY, burst=_PLENTY)
        await self._timings.of("take", take)

    async def _usage(self) -> None:
        await self._timings.of("usage", self._backend.usage_of([DEFAULT_NAMESPACE]))

    async def _ask(self) -> None:
        await self._timings.of("job_stats", self._backend.get_job_stats(()))
        await self._timings.of("window_stats", self._backend.window_stats(StatsWindow()))
        await self._timings.of("depth", self._backend.queue_depth())

    async def _ping(self) -> None:
        """What any call waits for: a connection, and a statement that reads no table."""
        await self._timings.of("ping", self._backend.ping())

    async def _lag(self) -> None:
        """How late this program comes to what it has to do."""
        before = time.perf_counter()
        await asyncio.sleep(_LAG_S)
        self._timings.note("lag", time.perf_counter() - before - _LAG_S)

    async def _listen(self) -> None:
        async for _ in self._backend.listen():
            pass
