"""`python -m bench.programs.many_jobs`: how long questions take when many jobs are stored, as a
program, see `bench.lines`.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from statistics import quantiles
from typing import Final

import uvloop

from bench.lines import expect, read_spec, say
from bench.programs.sample import SAMPLE, build, counted
from bench.programs.stores import job_id
from bench.programs.tag_sets import of_job
from queue_operator.backends.postgres import PostgresBackend, migrate

_STATS_CALLS: Final = 20
_GET_CALLS: Final = 2_000


async def timed(call: Callable[[], Awaitable[object]], times: int) -> tuple[float, float, float]:
    """Median, 99th percentile and maximum in milliseconds, one call after the other."""
    taken = []
    for _ in range(times):
        before = time.perf_counter()
        await call()
        taken.append((time.perf_counter() - before) * 1000)
    cuts = quantiles(taken, n=100, method="inclusive")
    return cuts[49], cuts[98], max(taken)


async def ask(backend: PostgresBackend, copies: int) -> dict[str, float]:
    """Statistics of all jobs, of those with a tag, and single jobs at random."""
    rng = random.Random(1)  # noqa: S311  (no secret, and the same jobs in each run)

    def any_id() -> str:
        copy = rng.randrange(copies)
        identifier = job_id(rng.randrange(SAMPLE))
        return f"{identifier}-{copy}" if copy else identifier

    one_tag = sorted(of_job(0))[:1]
    all_p50, _, all_max = await timed(lambda: backend.get_job_stats(()), _STATS_CALLS)
    tag_p50, _, tag_max = await timed(lambda: backend.get_job_stats(one_tag), _STATS_CALLS)
    get_p50, get_p99, _ = await timed(lambda: backend.get_job(any_id()), _GET_CALLS)
    return {
        "stats_p50_ms": all_p50,
        "stats_max_ms": all_max,
        "stats_one_tag_p50_ms": tag_p50,
        "stats_one_tag_max_ms": tag_max,
        "get_job_p50_ms": get_p50,
        "get_job_p99_ms": get_p99,
    }


async def main() -> None:
    spec = read_spec()
    await migrate(spec["dsn"])
    backend = await PostgresBackend.open(spec["dsn"])

    def progress(jobs: int) -> None:
        say("tick", at=0.0, submitted=jobs, completed=0)

    await build(spec["dsn"], backend, spec["jobs"], spec["payload"], progress)
    say("ready")
    await expect("go")
    started = time.perf_counter()
    metrics = await ask(backend, spec["jobs"] // SAMPLE)
    elapsed = time.perf_counter() - started
    say("done", elapsed=elapsed, submitted=spec["jobs"], completed=0, **metrics)
    await expect("finish")
    stats = await backend.get_job_stats(())
    states = await counted(spec["dsn"])
    if {state: count for state, count in stats.by_state.items() if count} != states:
        raise RuntimeError(f"the counts say {dict(stats.by_state)}, the tables {states}")
    stored = sum(states.values())
    say(
        "ledger",
        submitted=spec["jobs"],
        stored=stored,
        completed=stats.completed_jobs,
        duplicates=0,
        lost=spec["jobs"] - stored,
    )
    await backend.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
