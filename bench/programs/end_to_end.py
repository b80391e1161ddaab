"""`python -m bench.programs.end_to_end`: one operator and two workers of the SDK, all of them
processes of their own that talk over gRPC, as a program, see `bench.lines`.
"""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from statistics import quantiles
from typing import Any, Final

import uvloop

from bench.lines import Spec, expect, read_spec, say, tick
from bench.meter import Usage, usage
from bench.programs.fleet import NoopWorker, Operator, operator, workers
from bench.programs.noop import stamp
from bench.programs.product import audit
from bench.programs.stores import JOB_TYPE, TAGS, job_id
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.client.grpc import GrpcQueue
from queue_operator.domain.job import Job

WORKERS: Final = 2
_LOOK_S: Final = 0.005
_STALL_S: Final = 120.0
_SETTLE_S: Final = 1.0


class Load:
    """What is submitted to the fleet, and how far it is."""

    def __init__(self, spec: Spec, backend: PostgresBackend, fleet: Sequence[NoopWorker]) -> None:
        self._spec = spec
        self._backend = backend
        self._fleet = fleet
        self._payload = os.urandom(spec["payload"])
        self.submitted = 0
        self.completed = 0

    def counts(self) -> dict[str, int]:
        return {"submitted": self.submitted, "completed": sum(one.runs for one in self._fleet)}

    async def preload(self) -> None:
        """Stores all jobs, before there is anybody to work them."""
        jobs, size = self._spec["jobs"], self._spec["submit_batch"]
        for first in range(0, jobs, size):
            numbers = range(first, min(first + size, jobs))
            await self._backend.enqueue_jobs([self._job(n, self._payload) for n in numbers])
            self.submitted += len(numbers)

    async def trickle(self, queue: GrpcQueue) -> None:
        """Single submissions at random times, `rate` a second on average, each sent when it is
        due whether or not those before it are through.
        """
        rng = random.Random(1)  # noqa: S311  (no secret, and the same times in each run)
        end_s = time.monotonic() + self._spec["seconds"]
        due_s, number = time.monotonic(), 0
        async with asyncio.TaskGroup() as group:
            while (due_s := due_s + rng.expovariate(self._spec["rate"])) < end_s:
                await asyncio.sleep(max(due_s - time.monotonic(), 0))
                group.create_task(self._submit(queue, number, due_s))
                number += 1

    async def _submit(self, queue: GrpcQueue, number: int, due_s: float) -> None:
        await queue.enqueue_job(self._job(number, stamp(int(due_s * 1e9)) + self._payload[8:]))
        self.submitted += 1

    async def finished(self) -> None:
        """Returns once the store has all jobs as completed."""
        async with asyncio.timeout(self._spec.get("seconds", 0) + _STALL_S):
            while self.completed < self.submitted:
                # The database is not asked before it can have news.
                if sum(one.runs for one in self._fleet) >= self.submitted:
                    self.completed = (await self._backend.get_job_stats(())).completed_jobs
                await asyncio.sleep(_LOOK_S)

    def _job(self, number: int, payload: bytes) -> Job:
        return Job(id=job_id(number), type=JOB_TYPE, payload=payload, tags=TAGS)


class Costs:
    """Processor time of the operator and the workers between two moments."""

    def __init__(self, server: Operator, fleet: Sequence[NoopWorker]) -> None:
        self._server = server
        self._fleet = fleet
        self._before = self._read()

    def metrics(self, jobs: int) -> dict[str, float]:
        now = self._read()
        spent = [
            after.cpu_s - before.cpu_s for before, after in zip(self._before, now, strict=True)
        ]
        return {
            "operator_cpu_s_per_1000": spent[0] / max(jobs, 1) * 1000,
            "worker_cpu_s_per_1000": sum(spent[1:]) / max(jobs, 1) * 1000,
            "operator_rss_mb": now[0].rss_mb,
            "worker_rss_mb": max(one.rss_mb for one in now[1:]),
        }

    def _read(self) -> list[Usage]:
        return [usage(pid) for pid in (self._server.pid, *(w.process.pid for w in self._fleet))]


async def _work(load: Load, server: Operator, fleet: Sequence[NoopWorker], mode: str) -> None:
    if mode == "burn_down":
        for worker in fleet:
            worker.go()
    else:
        async with GrpcQueue(server.grpc_address) as queue:
            await load.trickle(queue)
    await load.finished()


def _percentiles(taken_ms: Sequence[float]) -> dict[str, float]:
    if len(taken_ms) < 2:
        return {}
    cuts = quantiles(taken_ms, n=100)
    return {
        "pickup_p50_ms": cuts[49],
        "pickup_p95_ms": cuts[94],
        "pickup_p99_ms": cuts[98],
        "pickup_max_ms": max(taken_ms),
    }


async def main() -> None:
    spec: dict[str, Any] = read_spec()
    mode: str = spec["mode"]
    await migrate(spec["dsn"])
    backend = await PostgresBackend.open(spec["dsn"], pool_size=2)
    async with (
        operator(spec["dsn"]) as server,
        workers(
            server.grpc_address, WORKERS, capacity=spec["capacity"], stamped=mode == "pickup"
        ) as fleet,
    ):
        load = Load(spec, backend, fleet)
        if mode == "burn_down":
            await load.preload()
        else:
            for worker in fleet:
                worker.go()
            # The workers connect meanwhile, which is no part of what is measured.
            await asyncio.sleep(_SETTLE_S)
        say("ready")
        await expect("go")
        costs, started = Costs(server, fleet), time.perf_counter()
        ticks = asyncio.create_task(tick(load.counts, started))
        await _work(load, server, fleet, mode)
        elapsed = time.perf_counter() - started
        ticks.cancel()
        spent = costs.metrics(load.completed)
        for worker in fleet:
            await worker.drain()
        taken = [ms for worker in fleet for ms in worker.picked_up_ms]
        counts = {"submitted": load.submitted, "completed": load.completed}
        say("done", elapsed=elapsed, **counts, **spent, **_percentiles(taken))
        await expect("finish")
    stored = await audit(spec["dsn"])
    say(
        "ledger",
        submitted=load.submitted,
        stored=stored.jobs,
        completed=stored.completed,
        duplicates=sum(worker.runs for worker in fleet) - stored.completed + stored.repeated,
        lost=load.submitted - stored.completed,
    )
    await backend.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
