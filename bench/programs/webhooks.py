"""`python -m bench.programs.webhooks`: what it costs the lives of jobs that a receiver is told of
their ends, as a program, see `bench.lines`. Jobs without a callback URL, with one while nobody
sends, and with one while a sender works, live in turn, in one database: each is compared with its
neighbour, and which comes first changes.
"""

import asyncio
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.lines import expect, read_spec, say
from bench.meter import read
from bench.programs.fleet import operator
from bench.programs.product import complete
from bench.programs.scrape import Endpoint
from bench.programs.stores import JOB_TYPE, TAGS
from bench.server import Server, free_port
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.domain.job import Demand, Job

_LEASE_TTL_S: Final = 60.0
_LOOK_S: Final = 0.25
_STALL_S: Final = 600.0
_MB: Final = 2**20


class Lives:
    """Jobs are submitted, claimed and completed, a batch after the other."""

    def __init__(self, backend: PostgresBackend, spec: dict[str, Any]) -> None:
        self._backend = backend
        self._batch: int = spec["batch"]
        self._payload = os.urandom(spec["payload"])
        self.done = 0

    async def run(self, count: int, url: str = "") -> float:
        """How many a second."""
        demand = Demand(assignee_id="bench", limit=self._batch, types=frozenset({JOB_TYPE}))
        started, end = time.perf_counter(), self.done + count
        while self.done < end:
            numbers = range(self.done, self.done + self._batch)
            await self._backend.enqueue_jobs([self._job(number, url) for number in numbers])
            claimed = await self._backend.claim([demand], lease_ttl_s=_LEASE_TTL_S)
            self.done += await complete(self._backend, [(one.job_id, one.token) for one in claimed])
        return count / (time.perf_counter() - started)

    def _job(self, number: int, url: str) -> Job:
        return Job(
            id=f"{number:012}",
            type=JOB_TYPE,
            payload=self._payload,
            tags=TAGS,
            callback_url=url,
        )


class Told:
    """What the operator's metrics say of its sender."""

    def __init__(self, port: int) -> None:
        self._endpoint = Endpoint(port)

    async def figure(self, name: str) -> float:
        text = await self._endpoint.scrape()
        found = re.search(rf"^queueoperator_webhook_{re.escape(name)} (\S+)$", text, re.M)
        return float(found[1]) if found else 0.0

    async def delivered(self) -> int:
        return int(await self.figure('deliveries_total{outcome="delivered"}'))

    async def all_of(self, count: int) -> None:
        """Returns once so many were delivered; another process counts them."""
        async with asyncio.timeout(_STALL_S):
            missing = count
            while missing > 0:
                await asyncio.sleep(_LOOK_S)
                missing = count - await self.delivered()


def _sender(operator_pid: int) -> int:
    """The child that is behind all others."""
    children = Path(f"/proc/{operator_pid}/task/{operator_pid}/children").read_text().split()
    return max(map(int, children), key=lambda pid: os.getpriority(os.PRIO_PROCESS, pid))


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """For less than the time after which it would count as hung."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Cost:
    """What some jobs took, all that came of them included: their rate while they lived, processor
    time of the database, and its log.
    """

    jobs_per_s: float
    server_us: float
    wal_bytes: float


class Scene:
    """One database, an operator and a receiver."""

    def __init__(self, dsn: str, lives: Lives, told: Told, sender: int, url: str) -> None:
        self._dsn = dsn
        self._lives = lives
        self._told = told
        self._sender = sender
        self._url = url
        self._ends = 0
        self._server = Server.at(dsn, own=True).pid
        self.deliveries: list[float] = []

    async def plain(self, jobs: int) -> Cost:
        return await self._cost(jobs, lambda: self._lives.run(jobs))

    async def with_url(self, jobs: int, *, stopped: bool) -> Cost:
        """While the sender works, or is `stopped`; then all are told."""

        async def run() -> float:
            with _stopped(self._sender) if stopped else nullcontext():
                rate = await self._lives.run(jobs, self._url)
            self._ends += jobs
            started, before = time.perf_counter(), await self._told.delivered()
            await self._told.all_of(self._ends)
            if stopped:
                self.deliveries.append((self._ends - before) / (time.perf_counter() - started))
            return rate

        return await self._cost(jobs, run)

    async def _cost(self, jobs: int, run: Callable[[], Awaitable[float]]) -> Cost:
        before = read(self._dsn, os.getpid(), self._server)
        rate = await run()
        after = read(self._dsn, os.getpid(), self._server)
        return Cost(
            rate,
            (after.server_cpu_s - before.server_cpu_s) / jobs * 1e6,
            (after.wal_bytes - before.wal_bytes) / jobs,
        )


async def _measured(scene: Scene, told: Told, jobs: int, rounds: int) -> dict[str, float]:
    """Lives beside others; which comes first changes from round to round: what the rates of a
    machine differ by within minutes is more than what is asked.
    """
    plain: list[Cost] = []
    stored: list[Cost] = []
    with_url: list[Cost] = []
    await scene.plain(jobs // 4)
    await scene.with_url(jobs // 4, stopped=False)
    for turn in range(rounds):
        parts: list[tuple[list[Cost], Callable[[int], Awaitable[Cost]]]] = [
            (plain, scene.plain),
            (stored, partial(scene.with_url, stopped=True)),
            (with_url, partial(scene.with_url, stopped=False)),
        ]
        for found, part in parts[turn % 3 :] + parts[: turn % 3]:
            found.append(await part(jobs))
    return {
        "plain_jobs_per_s": statistics.median(one.jobs_per_s for one in plain),
        "told_jobs_per_s": statistics.median(one.jobs_per_s for one in with_url),
        "stored_of_plain": _ratio(stored, plain),
        "told_of_plain": _ratio(with_url, plain),
        "deliveries_per_s": statistics.median(scene.deliveries),
        "plain_server_us": statistics.median(one.server_us for one in plain),
        "told_server_us": statistics.median(one.server_us for one in with_url),
        "plain_wal_bytes": statistics.median(one.wal_bytes for one in plain),
        "told_wal_bytes": statistics.median(one.wal_bytes for one in with_url),
        "sender_rss_mb": await told.figure("sender_resident_memory_bytes") / _MB,
        "sender_cpu_s_per_1000": await told.figure("sender_cpu_seconds_total")
        / await told.delivered()
        * 1000,
    }


def _ratio(some: Sequence[Cost], others: Sequence[Cost]) -> float:
    """The median of the pairs'."""
    pairs = zip(some, others, strict=True)
    return statistics.median(one.jobs_per_s / other.jobs_per_s for one, other in pairs)


async def main() -> None:
    spec: dict[str, Any] = read_spec()
    await migrate(spec["dsn"])
    metrics_port, port = free_port(), free_port()
    receiver = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.programs.receiver", str(port)
    )
    settings = {
        "METRICS__PORT": str(metrics_port),
        "WEBHOOKS__ENABLED": "true",
        "WEBHOOKS__ALLOW": '["127.0.0.1"]',
        "WEBHOOKS__ALLOW_HTTP": "true",
        "WEBHOOKS__PORTS": f"[{port}]",
        "WEBHOOKS__PER_RECEIVER": "64",
    }
    backend = await PostgresBackend.open(spec["dsn"])
    try:
        async with operator(spec["dsn"], **settings) as server:
            lives, told = Lives(backend, spec), Told(metrics_port)
            url = f"http://127.0.0.1:{port}/done"
            say("ready")
            await expect("go")
            started = time.perf_counter()
            sender = _sender(server.pid)
            scene = Scene(spec["dsn"], lives, told, sender, url)
            found = await _measured(scene, told, spec["jobs"], spec["rounds"])
            elapsed = time.perf_counter() - started
            say("done", elapsed=elapsed, submitted=lives.done, completed=lives.done, **found)
            await expect("finish")
    finally:
        await backend.close()
        receiver.kill()
        await receiver.wait()
    say(
        "ledger",
        submitted=lives.done,
        stored=lives.done,
        completed=lives.done,
        duplicates=0,
        lost=0,
    )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
