"""`python -m bench.programs.pinned_hour`: an hour's traffic and what it leaves behind, as a
program, see `bench.lines`. Whether dead rows may be removed meanwhile is up to the benchmark.

First some traffic on a young database; then history, in large batches; then traffic again.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import psycopg
import uvloop

from bench.lines import Spec, expect, read_spec, say, tick
from bench.programs.chores import Chores, PulseWatch
from bench.programs.ledger import Ledger
from bench.programs.product import audit
from bench.programs.timings import Timings, figures
from bench.programs.traffic import LARGE, Pace, Traffic
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.sql import load
from queue_operator.collector import collect_seldom

_HOUR_S: Final = 3_600.0
_WARM_S: Final = 1.0
_HELD_TYPE: Final = "held"
_MOST_TABLES: Final = 8
_PATIENCE_S: Final = 200.0
_DEAD: Final = load(__package__, "dead_rows")
_AUDIT: Final = load(__package__, "retried_audit")


class Hour:
    """One run."""

    def __init__(self, spec: Spec, backend: PostgresBackend, timings: Timings) -> None:
        self._spec = spec
        self._backend = backend
        self._timings = timings
        self._pace = Pace(delay_s=spec["delay_s"])
        self.ledger = Ledger()
        payload = os.urandom(spec["payload"])
        self._traffic = Traffic(backend, self.ledger, timings, self._pace, payload)
        self._chores = Chores(backend, timings, self._pace)
        self._metrics: dict[str, float] = {}

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Some jobs run, and the first calls are over; in the end all is worked off."""
        held = await self._traffic.hold(self._spec["held"], _HELD_TYPE)
        async with self._chores.going_on(held):
            await self._traffic.steady(self._spec["rate"], time.perf_counter() + _WARM_S)
            yield
            await self._traffic.finish(held)
            await self._drain()

    async def run(self, started: float) -> None:
        end_s, window_s = started + self._spec["seconds"], self._spec["window_s"]
        await self._traffic.steady(self._spec["rate"], started + window_s)
        young = self._figures(started, started + window_s, "_first")
        await self._burn()
        self._metrics |= await self._dead_rows()
        began = time.perf_counter()
        # Two windows at least, however long the history took.
        end_s = max(end_s, began + 2 * window_s)
        await self._traffic.steady(self._spec["rate"], end_s)
        self._metrics |= young | self._figures(began, end_s, "")
        self._metrics |= {
            f"{name}_typical_p99_ms": self._timings.typical(name, began, end_s, window_s)
            for name in self._timings.names
            if not name.startswith("burn_")
        }
        self._metrics |= self._figures(end_s - window_s, end_s, "_last")

    def metrics(self) -> dict[str, float]:
        unavailable = self._timings.unavailable
        return {
            **self._metrics,
            "leases_lost": self._chores.lost,
            "unavailable": unavailable.total(),
            **{f"unavailable_{name}": count for name, count in unavailable.items()},
        }

    async def say_ledger(self) -> None:
        stored = await audit(self._spec["dsn"], _AUDIT)
        stats = await self._backend.get_job_stats(())
        if (stats.total_jobs, stats.completed_jobs) != (stored.jobs, stored.completed):
            raise RuntimeError(f"the counts say {stats}, the tables {stored}")
        say(
            "ledger",
            submitted=self.ledger.submitted,
            stored=stored.jobs,
            completed=stored.completed,
            duplicates=self.ledger.duplicates + stored.repeated,
            lost=self.ledger.submitted - stored.completed,
        )

    async def _burn(self) -> None:
        """As an hour would do it, in the time given for it; so many jobs take as long as they take,
        and nothing else is done more often.
        """
        began, jobs = time.perf_counter(), self._spec["burn_jobs"]
        if not jobs:
            self._pace.compressed = min(self._spec["burn_s"] / _HOUR_S, 1.0)
        burnt = await self._traffic.burn(began + self._spec["burn_s"], jobs)
        self._pace.compressed = 1.0
        self._metrics |= {"burnt_jobs": burnt, "burn_s": time.perf_counter() - began}

    async def _dead_rows(self) -> dict[str, float]:
        """Of all tables, and of those that have most."""
        async with await psycopg.AsyncConnection.connect(self._spec["dsn"]) as connection:
            rows = await (await connection.execute(_DEAD)).fetchall()
        tables = {f"dead_rows_of_{table}": count for table, count in rows[:_MOST_TABLES]}
        return {"dead_rows_before": sum(count for _, count in rows), **tables}

    def _figures(self, first_s: float, last_s: float, suffix: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in self._timings.names:
            if not name.startswith("burn_"):
                taken = self._timings.between(name, first_s, last_s)
                found |= figures(f"{name}{suffix}", taken)
                if not suffix:
                    found[f"{name}s"] = len(taken)
        return found

    async def _drain(self) -> None:
        """What was delayed comes in its time, and what was lost with its lease."""
        async with asyncio.timeout(_PATIENCE_S):
            while not await self._all_ended():
                if not await self._traffic.take(LARGE):
                    await asyncio.sleep(0.05)

    async def _all_ended(self) -> bool:
        stats = await self._backend.get_job_stats(())
        return stats.total_jobs == stats.completed_jobs


async def main() -> None:
    spec = read_spec()
    await migrate(spec["dsn"])
    timings = Timings()
    backend = await PostgresBackend.open(spec["dsn"], sleep=PulseWatch(timings))
    collect_seldom()
    hour = Hour(spec, backend, timings)
    async with hour.ready():
        say("ready")
        await expect("go")
        started = time.perf_counter()
        ticks = asyncio.create_task(tick(hour.ledger.counts, started))
        await hour.run(started)
        elapsed = time.perf_counter() - started
        ticks.cancel()
        say("done", elapsed=elapsed, **hour.ledger.counts(), **hour.metrics())
        await expect("finish")
    await hour.say_ledger()
    await backend.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
