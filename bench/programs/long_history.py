"""`python -m bench.programs.long_history`: what calls about few jobs cost when many have ended, as
a program, see `bench.lines`.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Collection, Sequence
from typing import Final

import psycopg
import uvloop

from bench.lines import Spec, expect, read_spec, say
from bench.programs.product import LEASE_TTL_S, complete
from bench.programs.sample import SAMPLE, counted, multiply
from bench.programs.stores import JOB_TYPE, job_id
from bench.programs.tag_sets import SETS, of_job
from bench.programs.timings import Timings, figures
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.job import DEFAULT_NAMESPACE, Demand, Job
from queue_operator.domain.states import JobState

SMALL: Final = "small"
_IN_SMALL: Final = 1_000
_FEW: Final = 10
_TIMES: Final = 5
_LANES_DELETED: Final = 2
_BATCH: Final = 500
_JOBS_PER_EVENT: Final = 10
_DAYS: Final = 100
_KEPT_S: Final = 90 * 86_400.0
_NO_TTL_S: Final = 0.001
_COUNT: Final = load(__package__, "idle_count")
_PAGES: Final = load(__package__, "history_pages")
_AGE: Final = load(__package__, "history_age")
_EVENTS: Final = load(__package__, "history_events")


class Cost:
    """Time, and pages that the server read, of each call. Those of a statement that was ended are
    not known.
    """

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection
        self._timings = Timings()
        self._pages: dict[str, list[int]] = {}
        self._rows: dict[str, int] = {}

    async def of(self, what: str, call: Awaitable[int]) -> int:
        """How many rows were answered for or changed; 0 where the store was unavailable."""
        before = await self._read()
        rows = await self._timings.of(what, call) or 0
        self._pages.setdefault(what, []).append(await self._read() - before)
        self._rows[what] = self._rows.get(what, 0) + rows
        return rows

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = {"unavailable": self._timings.unavailable.total()}
        for name, pages in self._pages.items():
            found |= figures(name, self._timings.all(name))
            found |= {f"{name}_pages": max(pages), f"{name}_rows": self._rows[name] / len(pages)}
        return found

    async def _read(self) -> int:
        row = await (await self._connection.execute(_PAGES)).fetchone()
        return int(row[0]) if row else 0


class History:
    """Few jobs among many. Each kind of call has lanes of its own, so that none helps another."""

    def __init__(self, spec: Spec, backend: PostgresBackend) -> None:
        self._spec = spec
        self._backend = backend
        self._payload = os.urandom(spec["payload"])
        self._number = SAMPLE
        self.submitted = 0
        self.deleted = 0

    async def build(self) -> None:
        """`jobs` that ended well, and the log of some of them over the last hundred days."""
        await self._ended([self._job(n, of_job(n)) for n in range(SAMPLE)], DEFAULT_NAMESPACE)
        while await self._backend.roll_up(limit=_BATCH):
            pass
        dsn, jobs = self._spec["dsn"], self._spec["jobs"]
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            spread = {"copies": jobs // _JOBS_PER_EVENT, "days": _DAYS}
            await connection.execute(_AGE, spread)
            await connection.execute(_EVENTS, spread)
            await connection.execute("VACUUM (ANALYZE) queue_operator.job_event")
        await multiply(dsn, jobs // SAMPLE, self._progress)
        self.submitted = jobs
        # The first submission afterwards finds that its numbers are taken, and draws others.
        small = [self._job(n, of_job(n), SMALL) for n in range(_IN_SMALL)]
        await self._ended(small, SMALL)
        self.submitted += len(small)

    async def ask(self, cost: Cost) -> None:
        """One call after the other."""
        for turn in range(_TIMES):
            await self._submit(SETS[turn], _FEW)
            await cost.of("cancel", self._cancel(SETS[turn], ()))
        for turn in range(_TIMES, 2 * _TIMES):
            ids = await self._submit(SETS[turn], 1)
            await cost.of("refuse", self._refused(SETS[turn]))
            await self._cancel((), ids)
        for turn in range(_TIMES):
            ids = [job_id(n) for n in range(turn * _FEW, (turn + 1) * _FEW)]
            self.deleted += await cost.of("delete", self._backend.delete_jobs((), ids))
        for tags in SETS[-_LANES_DELETED:]:
            self.deleted += await cost.of("delete_lane", self._backend.delete_jobs(tags, ()))
        cleanup = self._backend.cleanup_expired_jobs(_NO_TTL_S, namespace=SMALL)
        self.deleted += await cost.of("cleanup", cleanup)
        await cost.of("prune", self._backend.prune_events(_KEPT_S))
        await cost.of("prune_nothing", self._backend.prune_events(_KEPT_S))

    async def say_ledger(self) -> None:
        spaces = (DEFAULT_NAMESPACE, SMALL)
        stats = [await self._backend.get_job_stats((), namespace=space) for space in spaces]
        states = await counted(self._spec["dsn"])
        by_stats = {s: sum(one.by_state.get(s, 0) for one in stats) for s in JobState}
        if {state: jobs for state, jobs in by_stats.items() if jobs} != states:
            raise RuntimeError(f"the counts say {by_stats}, the tables {states}")
        stored = sum(states.values())
        say(
            "ledger",
            submitted=self.submitted,
            stored=stored,
            completed=by_stats[JobState.COMPLETED],
            duplicates=max(stored - (self.submitted - self.deleted), 0),
            lost=max(self.submitted - self.deleted - stored, 0),
        )

    def _job(self, number: int, tags: frozenset[str], namespace: str = DEFAULT_NAMESPACE) -> Job:
        return Job(
            id=job_id(number), type=JOB_TYPE, payload=self._payload, tags=tags, namespace=namespace
        )

    async def _ended(self, jobs: Sequence[Job], namespace: str) -> None:
        await self._backend.enqueue_jobs(jobs)
        demand = Demand(assignee_id="bench", limit=_BATCH, namespace=namespace)
        left = len(jobs)
        while left:
            claimed = await self._backend.claim([demand], lease_ttl_s=LEASE_TTL_S)
            pairs = [(one.job_id, one.token) for one in claimed]
            left -= await complete(self._backend, pairs, namespace)

    def _progress(self, jobs: int) -> None:
        say("tick", at=0.0, submitted=jobs, completed=0)

    async def _submit(self, tags: frozenset[str], count: int) -> list[str]:
        numbers = range(self._number, self._number + count)
        self._number += count
        self.submitted += count
        return await self._backend.enqueue_jobs([self._job(n, tags) for n in numbers])

    async def _cancel(self, tags: Collection[str], ids: Collection[str]) -> int:
        cancelled = await self._backend.cancel_jobs(tags, ids)
        return len(cancelled.cancelled_job_ids)

    async def _refused(self, tags: frozenset[str]) -> int:
        """One of them waits, so none may go."""
        try:
            await self._backend.delete_jobs(tags, ())
        except InvalidTransition:
            return 0
        raise RuntimeError("jobs of which one waits were deleted")


async def main() -> None:
    spec = read_spec()
    await migrate(spec["dsn"])
    async with await psycopg.AsyncConnection.connect(spec["dsn"], autocommit=True) as connection:
        await connection.execute(_COUNT)
        backend = await PostgresBackend.open(spec["dsn"])
        history = History(spec, backend)
        await history.build()
        cost = Cost(connection)
        say("ready")
        await expect("go")
        started = time.perf_counter()
        await history.ask(cost)
        elapsed = time.perf_counter() - started
        counts = {"submitted": history.submitted, "completed": 0}
        say("done", elapsed=elapsed, **counts, **cost.metrics())
        await expect("finish")
        await history.say_ledger()
        await backend.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
