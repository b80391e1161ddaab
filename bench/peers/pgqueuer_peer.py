"""PgQueuer as a program of the benchmark, see `bench.lines`. It runs in an environment of its
own, with asyncpg and uvloop, as PgQueuer's documentation has it fastest.
"""

import asyncio
import time
from datetime import timedelta

import asyncpg  # type: ignore[import-not-found]
import uvloop
from pgqueuer import PgQueuer  # type: ignore[import-not-found]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]
from pgqueuer.types import QueueExecutionMode  # type: ignore[import-not-found]

from bench.lines import Spec, expect, read_spec, say, tick

_ENTRYPOINT = "noop"
_DIGITS = 12
_REMAINING = "SELECT count(*) FROM pgqueuer"


class Bench:
    """One run. `runs` counts by the number of a job, which its payload begins with."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.runs = bytearray()
        self.completed = 0
        self.submitted = 0
        self.managers: list[PgQueuer] = []
        self.workers: asyncio.Task[object]
        self.drained = asyncio.Event()
        self.filler = b"x" * (spec["payload"] - _DIGITS)

    async def connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(self.spec["dsn"])

    def counts(self) -> dict[str, int]:
        return {"submitted": self.submitted, "completed": self.completed}

    async def prepare(self) -> None:
        self.connection = await self.connect()
        self.queries = Queries(AsyncpgDriver(self.connection))
        await self.queries.install()
        if self.spec["mode"] == "burn_down":
            await self.submit_all()

    async def submit_all(self) -> None:
        submitters = [Queries(AsyncpgDriver(await self.connect())) for _ in range(self._callers)]
        await asyncio.gather(*(self._submit_share(queries) for queries in submitters))

    @property
    def _callers(self) -> int:
        return int(self.spec["submitters"])

    async def _submit_share(self, queries: Queries) -> None:
        while self.spec["jobs"] > len(self.runs):
            await self.submit(queries, self.spec["jobs"] - len(self.runs))

    async def submit(self, queries: Queries, at_most: int) -> None:
        count = min(self.spec["submit_batch"], at_most)
        first = len(self.runs)
        self.runs += bytes(count)
        payloads = [b"%0*d" % (_DIGITS, n) + self.filler for n in range(first, first + count)]
        await queries.enqueue([_ENTRYPOINT] * count, payloads, [0] * count)
        self.submitted += count
        self.drained.clear()

    async def run_workers(self, mode: QueueExecutionMode) -> None:
        for _ in range(self.spec["workers"]):
            manager = PgQueuer(AsyncpgDriver(await self.connect()))
            manager.entrypoint(_ENTRYPOINT)(self._handle)
            self.managers.append(manager)
        # A second, in case a notification is lost.
        often = timedelta(seconds=1)
        batch = self.spec["batch"]
        await asyncio.gather(
            *(
                manager.run(batch_size=batch, mode=mode, dequeue_timeout=often)
                for manager in self.managers
            )
        )

    async def _handle(self, job: object) -> None:
        self.runs[int(job.payload[:_DIGITS])] += 1  # type: ignore[attr-defined]
        self.completed += 1
        if self.completed == self.submitted:
            self.drained.set()

    async def keep_depth(self, started: float) -> None:
        while time.perf_counter() - started < self.spec["seconds"]:
            if self.submitted - self.completed < self.spec["depth"]:
                await self.submit(self.queries, self.spec["submit_batch"])
            else:
                await asyncio.sleep(0.001)

    async def work(self, started: float) -> None:
        """The measured part."""
        if self.spec["mode"] == "submit":
            await self.submit_all()
        elif self.spec["mode"] == "burn_down":
            await self.run_workers(QueueExecutionMode.drain)
        else:
            self.workers = asyncio.create_task(self.run_workers(QueueExecutionMode.continuous))
            await self.keep_depth(started)

    async def finish(self) -> None:
        if self.spec["mode"] == "continuous":
            await self._drain()
        remaining = await self.connection.fetchval(_REMAINING)
        ran = sum(1 for runs in self.runs if runs)
        only_stored = self.spec["mode"] == "submit"
        say(
            "ledger",
            submitted=self.submitted,
            stored=remaining if only_stored else self.submitted,
            completed=ran,
            duplicates=sum(runs - 1 for runs in self.runs if runs > 1),
            # What has run and is there still would run again.
            lost=self.submitted - remaining
            if only_stored
            else max(self.submitted - ran, remaining),
        )

    async def _drain(self) -> None:
        if self.completed < self.submitted:
            drained: asyncio.Task[object] = asyncio.create_task(self.drained.wait())
            await asyncio.wait({drained, self.workers}, return_when=asyncio.FIRST_COMPLETED)
        for manager in self.managers:
            manager.shutdown.set()
        await self.workers


async def main() -> None:
    bench = Bench(read_spec())
    await bench.prepare()
    say("ready")
    await expect("go")
    started = time.perf_counter()
    ticks = asyncio.create_task(tick(bench.counts, started))
    await bench.work(started)
    elapsed = time.perf_counter() - started
    ticks.cancel()
    say("done", elapsed=elapsed, **bench.counts())
    await expect("finish")
    await bench.finish()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
