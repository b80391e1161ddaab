"""`python -m bench.programs.rest_reads`: how long it takes to be told of one job, of a page of
jobs, and of all, over REST, when many are stored, as a program, see `bench.lines`.
"""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from datetime import datetime
from statistics import quantiles
from typing import Any, Final

import psycopg
import uvloop

from bench.lines import Spec, expect, read_spec, say
from bench.meter import usage
from bench.programs.fleet import Operator, operator
from bench.programs.http_caller import Caller, Callers, request
from bench.programs.sample import SAMPLE, build, counted
from bench.programs.stores import job_id
from bench.programs.varied import VARIED, Filters, searches
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.sql import load

_OK: Final = 200
_CALLERS: Final = 16
_STATUS_PER_S: Final = 200
_PAGE: Final = 100
_FILLED_MINUTES: Final = 24 * 60
_BREAKDOWNS: Final = "breakdown_by=TYPE&breakdown_by=PRIORITY&breakdown_by=STATE"
_WINDOWS: Final = {"stats_hour": "PT1H", "stats_day": "PT23H"}
_NEWEST: Final = "SELECT max(created_at) FROM queue_operator.job"


class Asking:
    """Questions to one operator, and how long each kind took."""

    def __init__(self, spec: Spec, callers: Callers, newest: datetime) -> None:
        self._copies = spec["jobs"] // SAMPLE
        self._spec = spec
        self._callers = callers
        self._newest = newest

    async def status(self) -> dict[str, float]:
        """Single jobs at random, so many a second, each asked for when it is due whether or not
        those before it are answered.
        """
        rng = random.Random(1)  # noqa: S311  (no secret, and the same jobs in each run)
        free: asyncio.Queue[Caller] = asyncio.Queue()
        for caller in self._callers.all:
            free.put_nowait(caller)
        taken_ms: list[float] = []

        async def ask(message: bytes, due_s: float) -> None:
            caller = await free.get()
            await _answered(caller, message)
            taken_ms.append((time.monotonic() - due_s) * 1000)
            free.put_nowait(caller)

        started_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for place in range(int(self._spec["seconds"] * _STATUS_PER_S)):
                due_s = started_s + place / _STATUS_PER_S
                await asyncio.sleep(max(due_s - time.monotonic(), 0))
                group.create_task(ask(self._any_job(rng), due_s))
        return _percentiles("status", taken_ms)

    async def search(self) -> dict[str, float]:
        """The first page of each search several times, then as many pages after it."""
        metrics: dict[str, float] = {}
        every: list[float] = []
        for name, filters in searches(self._newest, self._copies).items():
            first, later = await self._pages(filters)
            every += first + later
            metrics[f"search_{name}_first_p99_ms"] = _cut(first, 99)
            metrics[f"search_{name}_p99_ms"] = _cut(first + later, 99)
        of_all = _percentiles("search", every)
        worst = max(value for name, value in metrics.items() if name.endswith("_p99_ms"))
        return {**metrics, **of_all, "search_worst_p99_ms": worst}

    async def stats(self) -> dict[str, float]:
        """With all breakdowns, of an hour and of a day."""
        metrics: dict[str, float] = {}
        for name, window in _WINDOWS.items():
            message = request("GET", f"/v1/stats?{_BREAKDOWNS}&time_range={window}")
            taken = [await self._timed(message) for _ in range(self._spec["calls"])]
            metrics |= _percentiles(name, [ms for ms, _ in taken])
        worst = max(metrics[f"{name}_max_ms"] for name in _WINDOWS)
        return {**metrics, "rest_stats_max_ms": worst}

    async def _pages(self, filters: Filters) -> tuple[list[float], list[float]]:
        wanted = {"limit": _PAGE, **filters}
        first: list[float] = []
        later: list[float] = []
        for _ in range(self._spec["calls"]):
            taken, answer = await self._search(wanted)
            first.append(taken)
        if filters.keys() == {"states"} and not answer["jobs"]:
            raise RuntimeError(f"there is no job for {filters}")
        while (cursor := answer["next_cursor"]) and len(later) < self._spec["calls"]:
            taken, answer = await self._search({**wanted, "cursor": cursor})
            later.append(taken)
        return first, later

    async def _search(self, wanted: Filters) -> tuple[float, dict[str, Any]]:
        message = request("POST", "/v1/jobs/search", json.dumps(wanted).encode())
        taken, body = await self._timed(message)
        answer: dict[str, Any] = json.loads(body)
        return taken, answer

    async def _timed(self, message: bytes) -> tuple[float, bytes]:
        before = time.perf_counter()
        body = await _answered(self._callers.all[0], message)
        return (time.perf_counter() - before) * 1000, body

    def _any_job(self, rng: random.Random) -> bytes:
        copy, identifier = rng.randrange(self._copies), job_id(rng.randrange(SAMPLE))
        return request("GET", f"/v1/jobs/{identifier}-{copy}" if copy else f"/v1/jobs/{identifier}")


async def _answered(caller: Caller, message: bytes) -> bytes:
    status, body = await caller.call(message)
    if status != _OK:
        raise RuntimeError(f"{message[:200]!r} was answered {status}: {body[:500]!r}")
    return body


def _cut(taken_ms: Sequence[float], percent: int) -> float:
    return quantiles(taken_ms, n=100, method="inclusive")[percent - 1]


def _percentiles(name: str, taken_ms: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_p50_ms": _cut(taken_ms, 50),
        f"{name}_p99_ms": _cut(taken_ms, 99),
        f"{name}_max_ms": max(taken_ms),
    }


async def _store(spec: Spec) -> datetime:
    """The jobs, and a day of minutes in which as much happened as in the sample's. Gives when
    the newest was submitted.
    """
    await migrate(spec["dsn"])
    backend = await PostgresBackend.open(spec["dsn"])

    def progress(jobs: int) -> None:
        say("tick", at=0.0, submitted=jobs, completed=0)

    await build(spec["dsn"], backend, spec["jobs"], spec["payload"], progress, VARIED)
    while await backend.roll_up():
        continue
    await backend.close()
    async with await psycopg.AsyncConnection.connect(spec["dsn"], autocommit=True) as connection:
        await connection.execute("SET search_path = queue_operator")
        await connection.execute(load(__package__, "sample_roll_ups"), {"minutes": _FILLED_MINUTES})
        await connection.execute("VACUUM (ANALYZE) roll_up, roll_up_latency")
        row = await (await connection.execute(_NEWEST)).fetchone()
    newest: datetime = (row or (datetime.min,))[0]
    return newest


async def _ask(asking: Asking, parts: str, server: Operator) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for part in parts.split():
        metrics |= await getattr(asking, part)()
    return {**metrics, "operator_rss_mb": usage(server.pid).rss_mb}


async def main() -> None:
    spec: dict[str, Any] = read_spec()
    newest = await _store(spec)
    async with operator(spec["dsn"]) as server, Callers(server.rest_port, _CALLERS) as callers:
        say("ready")
        await expect("go")
        started = time.perf_counter()
        metrics = await _ask(Asking(spec, callers, newest), spec["parts"], server)
        elapsed = time.perf_counter() - started
        say("done", elapsed=elapsed, submitted=spec["jobs"], completed=0, **metrics)
        await expect("finish")
    states = await counted(spec["dsn"])
    stored = sum(states.values())
    lost = spec["jobs"] - stored
    say(
        "ledger",
        submitted=spec["jobs"],
        stored=stored,
        completed=0,
        duplicates=0,
        lost=lost,
    )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
