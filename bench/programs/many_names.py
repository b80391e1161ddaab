"""`python -m bench.programs.many_names`: a tag set of its own for each job, as a program, see
`bench.lines`.

First how fast such jobs come in beside ordinary ones, in turns; then claims while many lanes wait
and many more were used; in the end everything ends, is deleted and forgotten.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle
from statistics import median
from typing import Final

import psycopg
import uvloop

from bench.lines import Spec, expect, read_spec, say, tick
from bench.meter import usage
from bench.programs.ledger import Ledger
from bench.programs.product import LEASE_TTL_S, audit, complete
from bench.programs.stores import JOB_TYPE, TAGS, Stored, job_id
from bench.programs.timings import Timings, figures
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.sql import load
from queue_operator.collector import collect_seldom
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import DEFAULT_LEASE_TTL_S, heartbeat_interval_s

POOLS: Final = 10
"""Beside a name of its own each job has the tag of one of so many pools."""
_ROUNDS: Final = 7
_CALLERS: Final = 2
_SINGLE_CALLERS: Final = 16
_SINGLES: Final = 4
"""Of the jobs of a round, one in so many comes alone in a round of singles."""
_BATCH: Final = 1_000
_CLAIM: Final = 100
_CLAIMERS: Final = 2
_DELETED_AT_ONCE: Final = 5_000
_IDLE_ROUNDS: Final = 5
_ROWS: Final = 5_000
_NOTHING_THERE_S: Final = 0.005
_LANES: Final = load(__package__, "lanes_left")

TagsOf = Callable[[int], frozenset[str]]
Submit = Callable[[TagsOf, int], Awaitable[None]]


def own_tags(number: int) -> frozenset[str]:
    """A set that no other job has."""
    return frozenset({f"order-{number}", f"pool-{number % POOLS}"})


def ordinary_tags(_: int) -> frozenset[str]:
    return TAGS


class Names:
    """One run on one backend."""

    def __init__(self, backend: PostgresBackend, spec: Spec, ledger: Ledger) -> None:
        self._backend = backend
        self._spec = spec
        self._ledger = ledger
        self._payload = os.urandom(spec["payload"])
        self.timings = Timings()
        self.deleted = 0

    def counts(self) -> dict[str, int]:
        """To delete is to get on as well."""
        counts = self._ledger.counts()
        return {**counts, "completed": counts["completed"] + self.deleted}

    async def rates(self) -> dict[str, float]:
        """Jobs per second of batches and of single submissions, the medians of some rounds."""
        kinds = {
            "batch": (ordinary_tags, self._batches),
            "own_batch": (own_tags, self._batches),
            "single": (ordinary_tags, self._singles),
            "own_single": (own_tags, self._singles),
        }
        rates: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(_ROUNDS):
            for name, (tags_of, submit) in kinds.items():
                rates[name].append(await self._rate(tags_of, submit))
                await self.work_off()
        middle = {name: median(found) for name, found in rates.items()}
        return {
            **{f"{name}_jobs_per_s": rate for name, rate in middle.items()},
            "of_ordinary": middle["own_batch"] / middle["batch"],
            "single_of_ordinary": middle["own_single"] / middle["single"],
        }

    async def use(self, names: int) -> None:
        """Jobs come and go until so many lanes were used."""
        while (left := names - self._ledger.reserved) > 0:
            await self._batches(own_tags, min(left, self._spec["submit_batch"] * _CALLERS))
            await self.work_off()

    async def wait(self, lanes: int) -> None:
        """So many jobs come to wait."""
        await self._batches(own_tags, lanes)

    async def claim(self, seconds: float) -> None:
        """Claim and complete, while as many come as go."""
        end_s = time.perf_counter() + seconds
        demands = [_any_pool(n) for n in range(_CLAIMERS)]
        await asyncio.gather(*(self._claim(one, end_s) for one in demands))

    async def first_claim(self, dsn: str) -> None:
        """By a process that has just begun, and knows of no lane."""
        backend = await PostgresBackend.open(dsn, pool_size=1)
        demand = Demand(assignee_id="new", limit=_CLAIM)
        await self._take(demand, "first_claim", backend)
        await backend.close()

    async def keep(self) -> None:
        """What an operator does beside that."""
        while True:
            await asyncio.sleep(heartbeat_interval_s(DEFAULT_LEASE_TTL_S))
            await look_after(self._backend)

    async def listen(self) -> None:
        """Learns of lanes as they come to wait, as an operator does."""
        async for _ in self._backend.listen():
            pass

    async def work_off(self) -> None:
        """All that waits."""
        demand = Demand(assignee_id="bench", limit=_BATCH)
        while self._ledger.completed < self._ledger.submitted:
            if not await self._take(demand, "work_off"):
                await asyncio.sleep(_NOTHING_THERE_S)

    async def delete(self) -> None:
        """All jobs, by their ids."""
        for first in range(0, self._ledger.reserved, _DELETED_AT_ONCE):
            last = min(first + _DELETED_AT_ONCE, self._ledger.reserved)
            ids = [job_id(n) for n in range(first, last)]
            self.deleted += await self._backend.delete_jobs((), ids)

    async def _rate(self, tags_of: TagsOf, submit: Submit) -> float:
        before, first = time.perf_counter(), self._ledger.submitted
        await submit(tags_of, self._spec["round"])
        return (self._ledger.submitted - first) / (time.perf_counter() - before)

    async def _batches(self, tags_of: TagsOf, jobs: int) -> None:
        await self._callers(_CALLERS, jobs, self._spec["submit_batch"], tags_of)

    async def _singles(self, tags_of: TagsOf, jobs: int) -> None:
        await self._callers(_SINGLE_CALLERS, jobs // _SINGLES, 1, tags_of)

    async def _callers(self, callers: int, jobs: int, size: int, tags_of: TagsOf) -> None:
        """Jobs of so many callers at once, so many in a call."""
        shares: Iterator[int] = iter([min(size, jobs - n) for n in range(0, jobs, size)])

        async def caller() -> None:
            for share in shares:
                await self._submit(share, tags_of)

        await asyncio.gather(*(caller() for _ in range(callers)))

    async def _submit(self, count: int, tags_of: TagsOf) -> None:
        jobs = [
            Job(id=job_id(n), type=JOB_TYPE, payload=self._payload, tags=tags_of(n))
            for n in self._ledger.reserve(count)
        ]
        if count == 1:
            await self._backend.enqueue_job(jobs[0])
        else:
            await self._backend.enqueue_jobs(jobs)
        self._ledger.record_submitted(count)

    async def _claim(self, demands: Iterator[Demand], end_s: float) -> None:
        while time.perf_counter() < end_s:
            if taken := await self._take(next(demands), "claim"):
                await self._submit(taken, own_tags)
            else:
                await asyncio.sleep(_NOTHING_THERE_S)

    async def _take(self, demand: Demand, what: str, backend: PostgresBackend | None = None) -> int:
        store = backend or self._backend
        claim = store.claim([demand], lease_ttl_s=LEASE_TTL_S)
        assigned = await self.timings.of(what, claim) or []
        claimed = [(one.job_id, one.token) for one in assigned]
        self._ledger.record_claimed(claimed)
        if claimed and await complete(store, claimed) != len(claimed):
            raise RuntimeError(f"not all of {len(claimed)} jobs were completed")
        self._ledger.record_completed(claimed)
        return len(claimed)


def _any_pool(claimer: int) -> Iterator[Demand]:
    """The first claimer asks for anything, others for the jobs of one pool after the other."""
    pools = [frozenset({f"pool-{n}"}) for n in range(POOLS)] if claimer else [frozenset[str]()]
    return cycle(Demand(assignee_id=f"claimer-{claimer}", limit=_CLAIM, tags=t) for t in pools)


async def look_after(backend: PostgresBackend) -> None:
    """Folds the counts, and rolls up what has happened."""
    await backend.expire_leases(lease_ttl_s=LEASE_TTL_S)
    while await backend.roll_up(limit=_ROWS) >= _ROWS:
        pass


async def lanes_left(dsn: str) -> int:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        row = await (await connection.execute(_LANES)).fetchone()
    return int(row[0]) if row else 0


async def forget(backend: PostgresBackend, dsn: str) -> int:
    """What an hour of sweeps does to names that nobody uses; gives how many lanes are left."""
    left, idle = await lanes_left(dsn), 0
    while left and idle < _IDLE_ROUNDS:
        await look_after(backend)
        await backend._housekeeping.tidying.tidy(unused_s=0.0, hidden_s=0.0)
        before, left = left, await lanes_left(dsn)
        idle = idle + 1 if left == before else 0
    return left


def _rss_mb() -> float:
    return usage(os.getpid()).rss_mb


async def _measure(names: Names, spec: Spec) -> dict[str, float]:
    metrics = await names.rates()
    metrics["rates_rss_mb"] = _rss_mb()
    await names.use(spec["names"] - spec["waiting"])
    listening = asyncio.create_task(names.listen())
    await names.wait(spec["waiting"])
    metrics["waiting_rss_mb"] = _rss_mb()
    await names.first_claim(spec["dsn"])
    await names.claim(spec["seconds"])
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    metrics |= figures("claim", names.timings.all("claim"))
    metrics |= {"first_claim_ms": max(names.timings.all("first_claim"))}
    metrics["lanes_used"] = await lanes_left(spec["dsn"])
    await names.work_off()
    return metrics


async def _end(names: Names, backend: PostgresBackend, dsn: str) -> dict[str, float]:
    before = time.perf_counter()
    await names.delete()
    deleted = time.perf_counter()
    left = await forget(backend, dsn)
    return {
        "deletes_per_s": names.deleted / (deleted - before),
        "forget_s": time.perf_counter() - deleted,
        "lanes_left": left,
        "end_rss_mb": _rss_mb(),
    }


def _say_ledger(names: Names, ledger: Ledger, stored: Stored) -> None:
    """What is there less often than submitted, in whichever way, is lost."""
    ended = min(stored.jobs, stored.completed, names.deleted)
    say(
        "ledger",
        submitted=ledger.submitted,
        stored=stored.jobs,
        completed=stored.completed,
        duplicates=ledger.duplicates + stored.repeated,
        lost=ledger.submitted - ended,
    )


async def main() -> None:
    spec = read_spec()
    await migrate(spec["dsn"])
    backend = await PostgresBackend.open(spec["dsn"])
    collect_seldom()
    ledger = Ledger()
    names = Names(backend, spec, ledger)
    say("ready")
    await expect("go")
    started = time.perf_counter()
    beside = [
        asyncio.create_task(tick(names.counts, started)),
        asyncio.create_task(names.keep()),
    ]
    metrics = await _measure(names, spec)
    stored = await audit(spec["dsn"])
    metrics |= await _end(names, backend, spec["dsn"])
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    elapsed = time.perf_counter() - started
    say("done", elapsed=elapsed, **ledger.counts(), **metrics)
    await expect("finish")
    _say_ledger(names, ledger, stored)
    await backend.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
