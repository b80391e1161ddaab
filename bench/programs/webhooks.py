"""`python -m bench.programs.webhooks`: what it costs the lives of jobs that a receiver is told of
their ends, as a program, see `bench.lines`. Jobs without a callback URL, with one while nobody
sends, and with one while a sender works, live in turn, in one database.
"""

import asyncio
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.lines import expect, read_spec, say
from bench.programs.fleet import operator
from bench.programs.product import complete
from bench.programs.scrape import Endpoint
from bench.programs.stores import JOB_TYPE, TAGS
from bench.server import free_port
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


async def _measured(
    lives: Lives, told: Told, sender: int, url: str, jobs: int, rounds: int
) -> dict[str, float]:
    rates: dict[str, list[float]] = {"plain": [], "stored": [], "told": [], "deliveries": []}
    await lives.run(jobs // 4)
    for done in range(rounds):
        rates["plain"].append(await lives.run(jobs))
        with _stopped(sender):
            rates["stored"].append(await lives.run(jobs, url))
        started, ends = time.perf_counter(), (2 * done + 1) * jobs
        left = ends - await told.delivered()
        await told.all_of(ends)
        rates["deliveries"].append(left / (time.perf_counter() - started))
        rates["told"].append(await lives.run(jobs, url))
        await told.all_of(ends + jobs)
    plain, stored, with_url, deliveries = map(statistics.median, rates.values())
    return {
        "plain_jobs_per_s": plain,
        "told_jobs_per_s": with_url,
        "stored_of_plain": stored / plain,
        "told_of_plain": with_url / plain,
        "deliveries_per_s": deliveries,
        "sender_rss_mb": await told.figure("sender_resident_memory_bytes") / _MB,
        "sender_cpu_s_per_1000": await told.figure("sender_cpu_seconds_total")
        / (2 * jobs * rounds)
        * 1000,
    }


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
            found = await _measured(lives, told, sender, url, spec["jobs"], spec["rounds"])
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
