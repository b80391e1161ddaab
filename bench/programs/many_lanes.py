"""`python -m bench.programs.many_lanes`: many claimers with different demands on a backlog of
many tag sets, as a program, see `bench.lines`.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from statistics import quantiles

import uvloop

from bench.lines import Spec, expect, read_spec, say, tick
from bench.programs.ledger import Ledger
from bench.programs.product import LEASE_TTL_S, audit, complete
from bench.programs.stores import JOB_TYPE, job_id
from bench.programs.tag_sets import SETS, demands, of_job
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.domain.job import Demand, Job


class Claimers:
    """All of them in one process on one backend, as the sessions of one operator."""

    def __init__(self, backend: PostgresBackend, spec: Spec, ledger: Ledger) -> None:
        self._backend = backend
        self._spec = spec
        self._ledger = ledger
        self._claims_s: list[float] = []
        self._empty = 0
        self._full = 0

    async def load(self) -> None:
        """Stores the backlog, two calls at a time."""
        payload = os.urandom(self._spec["payload"])

        async def load_share() -> None:
            while left := self._spec["jobs"] - self._ledger.reserved:
                numbers = self._ledger.reserve(min(left, self._spec["submit_batch"]))
                jobs = [
                    Job(id=job_id(n), type=JOB_TYPE, payload=payload, tags=of_job(n))
                    for n in numbers
                ]
                await self._backend.enqueue_jobs(jobs)
                self._ledger.record_submitted(len(jobs))

        await asyncio.gather(load_share(), load_share())

    async def run(self, started: float) -> None:
        """Claim and complete, until the time is over."""
        wanted = demands(self._spec["claimers"])
        await asyncio.gather(
            *(self._claim(f"claimer-{n}", tags, started) for n, tags in enumerate(wanted))
        )

    async def _claim(self, name: str, wanted: Iterator[frozenset[str]], started: float) -> None:
        before = time.perf_counter()
        while time.perf_counter() - started < self._spec["seconds"]:
            demand = Demand(assignee_id=name, limit=self._spec["batch"], tags=next(wanted))
            assigned = await self._backend.claim([demand], lease_ttl_s=LEASE_TTL_S)
            if not assigned:
                # The time runs on: what matters is when the claimer has something to do.
                self._empty += 1
                continue
            self._claims_s.append(time.perf_counter() - before)
            self._full += len(assigned) == self._spec["batch"]
            claimed = [(one.job_id, one.token) for one in assigned]
            self._ledger.record_claimed(claimed)
            if await complete(self._backend, claimed) != len(claimed):
                raise RuntimeError(f"{name}: not all of {len(claimed)} jobs were completed")
            self._ledger.record_completed(claimed)
            before = time.perf_counter()

    def metrics(self) -> dict[str, float]:
        cuts = quantiles(self._claims_s, n=100)
        return {
            "claim_p50_ms": cuts[49] * 1000,
            "claim_p99_ms": cuts[98] * 1000,
            "claim_max_ms": max(self._claims_s) * 1000,
            "claims": len(self._claims_s),
            "full_claims": self._full,
            "empty_claims": self._empty,
            "lanes": len(SETS),
        }


async def main() -> None:
    spec = read_spec()
    await migrate(spec["dsn"])
    backend = await PostgresBackend.open(spec["dsn"], pool_size=spec["claimers"])
    ledger = Ledger()
    claimers = Claimers(backend, spec, ledger)
    loading = asyncio.create_task(tick(ledger.counts, time.perf_counter()))
    await claimers.load()
    loading.cancel()
    say("ready")
    await expect("go")
    started = time.perf_counter()
    ticks = asyncio.create_task(tick(ledger.counts, started))
    await claimers.run(started)
    elapsed = time.perf_counter() - started
    ticks.cancel()
    say("done", elapsed=elapsed, **ledger.counts(), **claimers.metrics())
    await expect("finish")
    stored = await audit(spec["dsn"])
    say(
        "ledger",
        submitted=ledger.submitted,
        stored=stored.jobs,
        completed=stored.completed,
        duplicates=ledger.duplicates + stored.repeated,
        # The backlog is not worked off: a job is lost that is not stored, or not as it ended.
        lost=ledger.submitted - stored.jobs + ledger.completed - stored.completed,
    )
    await backend.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
