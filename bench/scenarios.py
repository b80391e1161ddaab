"""The scenarios, the same for every candidate."""

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import psycopg

from bench.candidates import Candidate, Claimed

_SUBMIT_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """`jobs` of the burn-down, `batch` jobs per claim, `payload` bytes, `depth` of the steady
    scenario.
    """

    jobs: int
    batch: int
    payload: int
    depth: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What one candidate did in one scenario. WAL is that of claim and completion in the
    burn-down, and includes submission in the steady scenario. `rss_mb` is our process.
    """

    scenario: str
    candidate: str
    jobs: int
    jobs_per_s: float
    first_third_per_s: float
    last_third_per_s: float
    wal_bytes_per_job: float
    claim_p50_ms: float
    claim_p99_ms: float
    rss_mb: float


@dataclass(slots=True)
class _Meter:
    """Counts jobs as they complete, and times claims."""

    dsn: str
    claims_s: list[float] = field(default_factory=list)
    done_at: list[tuple[float, int]] = field(default_factory=list)
    started: float = 0.0
    wal_start: int = 0

    def start(self) -> None:
        self.wal_start = _wal_position(self.dsn)
        self.started = time.perf_counter()

    @property
    def jobs(self) -> int:
        return sum(count for _, count in self.done_at)

    def figures(self, scenario: str, candidate: str) -> Figures:
        end = self.done_at[-1][0]
        third = (end - self.started) / 3
        cuts = quantiles(self.claims_s, n=100)
        return Figures(
            scenario=scenario,
            candidate=candidate,
            jobs=self.jobs,
            jobs_per_s=self.jobs / (end - self.started),
            first_third_per_s=self._within(self.started, self.started + third) / third,
            last_third_per_s=self._within(end - third, end) / third,
            wal_bytes_per_job=(_wal_position(self.dsn) - self.wal_start) / self.jobs,
            claim_p50_ms=cuts[49] * 1000,
            claim_p99_ms=cuts[98] * 1000,
            rss_mb=_rss_mb(),
        )

    def _within(self, start: float, end: float) -> int:
        return sum(count for at, count in self.done_at if start < at <= end)


async def burn_down(store: Candidate, dsn: str, load: Load) -> Figures:
    """Jobs that were submitted before are claimed and completed, as fast as it goes."""
    payload = os.urandom(load.payload)
    for start in range(0, load.jobs, _SUBMIT_BATCH):
        ids = [f"job-{n}" for n in range(start, min(start + _SUBMIT_BATCH, load.jobs))]
        await store.submit(ids, payload)
    meter = _Meter(dsn)
    meter.start()
    claimed: Claimed = ()
    while meter.jobs < load.jobs:
        # As in the product, the next claim runs while the last one's jobs are completed.
        claimed, _ = await asyncio.gather(
            _claim(store, meter, load.batch), _complete(store, meter, claimed)
        )
    return meter.figures("burn-down", store.name)


async def steady(
    store: Candidate, dsn: str, load: Load, seconds: float, *, pinned: bool = False
) -> Figures:
    """Jobs are submitted while others are claimed and completed; the depth stays the same.

    With `pinned`, a transaction stays open all the time, so no dead row can be removed.
    """
    payload = os.urandom(load.payload)
    meter = _Meter(dsn)
    submitted = 0

    async def keep_depth() -> None:
        nonlocal submitted
        while submitted - meter.jobs < load.depth:
            ids = [f"job-{n}" for n in range(submitted, submitted + load.batch)]
            await store.submit(ids, payload)
            submitted += load.batch

    await keep_depth()
    with psycopg.connect(dsn) as pin:
        if pinned:
            pin.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            pin.execute("SELECT pg_current_xact_id()")
        meter.start()
        claimed: Claimed = ()
        while time.perf_counter() - meter.started < seconds:
            claimed, _, _ = await asyncio.gather(
                _claim(store, meter, load.batch), _complete(store, meter, claimed), keep_depth()
            )
        await _complete(store, meter, claimed)
    return meter.figures("steady, horizon pinned" if pinned else "steady", store.name)


async def _claim(store: Candidate, meter: _Meter, batch: int) -> Claimed:
    before = time.perf_counter()
    claimed = await store.claim(batch)
    meter.claims_s.append(time.perf_counter() - before)
    return claimed


async def _complete(store: Candidate, meter: _Meter, claimed: Claimed) -> None:
    completed = await store.complete(claimed) if claimed else 0
    if completed != len(claimed):
        raise RuntimeError(f"{store.name}: {completed} of {len(claimed)} jobs were completed")
    meter.done_at.append((time.perf_counter(), completed))


def _wal_position(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')").fetchone()
    return int(row[0]) if row else 0


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024
