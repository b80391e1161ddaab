"""Counts, quotas and statistics while a forgotten transaction keeps every dead row.

As in `test_old_snapshot.py` nothing is timed: what a call reads is counted by the server, in pages.
"""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest
from tests.integration.postgres.watching import Watched, watched

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.protocol import StatsWindow
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

ROUNDS = 200
STEPS = 300
BATCH = 100
CHILDREN = 20
TAKES = 10
TERMS = {"rate_per_s": 1e6, "burst": 1e6}
MORE = 1.5
"""A count may be moved to another page, and an index grow by a level."""

Call = Callable[[PostgresBackend], Awaitable[object]]
CALLS: dict[str, Call] = {
    "usage": lambda backend: backend.usage_of(["default"]),
    "stats": lambda backend: backend.get_job_stats([]),
    "stats of a tag": lambda backend: backend.get_job_stats(["eu"]),
    "depth": lambda backend: backend.queue_depth(),
    "window": lambda backend: backend.window_stats(StatsWindow(time_range_s=3600.0)),
    "take": lambda backend: backend.take_tokens("bucket", 1.0, **TERMS),
    "fold": lambda backend: backend._counts.fold(),
    "nothing to fold": lambda backend: backend._counts.fold(),
}


@pytest.fixture
async def pinned(new_database: Callable[[], str]) -> AsyncIterator[str]:
    """The address of a database where an old snapshot is held, by a transaction with a number."""
    dsn = new_database()
    await migrate(dsn)
    async with await psycopg.AsyncConnection.connect(dsn) as forgotten:
        await forgotten.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await forgotten.execute("SELECT pg_current_xact_id() FROM queue_operator.ready")
        yield dsn
        await forgotten.rollback()


async def work(backend: PostgresBackend, rounds: int) -> None:
    """Jobs come, some later or after another one, and go: each round is counted and paid for."""
    for _ in range(rounds):
        tags = frozenset({"eu"})
        new = [
            Job(id=uuid.uuid4().hex, type="t", tags=tags, delay_s=0.001 * (n % 2))
            for n in range(BATCH)
        ]
        children = [
            Job(id=uuid.uuid4().hex, type="t", tags=tags, depends_on=(new[0].id,))
            for _ in range(CHILDREN)
        ]
        await backend.enqueue_jobs([*new, *children])
        await backend._staging.stage()
        demand = Demand(assignee_id="w", limit=2 * BATCH)
        claimed = await backend.claim([demand], lease_ttl_s=600)
        await backend.settle(
            [Outcome(one.job_id, Event.COMPLETE, token=one.token) for one in claimed]
        )
        await backend.delete_jobs([], [one.job_id for one in claimed])
        await backend._counts.fold()
        for _ in range(TAKES):
            await backend.take_tokens("bucket", 1.0, **TERMS)


async def pages(backend: PostgresBackend, seen: Watched) -> dict[str, int]:
    """Of each call: what its plans, made before, read with a few changes not folded yet."""
    found = {}
    for name, call in CALLS.items():
        await call(backend)
        if name != "nothing to fold":
            await backend.enqueue_jobs([Job(id=uuid.uuid4().hex, type="t", tags=frozenset({"eu"}))])
        backend._counts._fold_at_s = float("inf")
        seen.clear()
        await call(backend)
        found[name] = seen.pages
    return found


async def test_counts_cost_no_more_for_all_the_rows_that_cannot_be_removed(pinned: str) -> None:
    async with watched(pinned, plans="force_generic_plan") as (backend, seen):
        await work(backend, 2)
        await backend.roll_up(limit=10_000)
        before = await pages(backend, seen)
        await work(backend, ROUNDS)
        await backend.roll_up(limit=10_000)
        after = await pages(backend, seen)
    grown = {name: (before[name], after[name]) for name in CALLS}
    assert {name: both for name, both in grown.items() if both[1] > both[0] * MORE + 10} == {}, (
        grown
    )


async def test_the_last_of_many_roll_ups_reads_no_more_than_the_first(pinned: str) -> None:
    """To find out how far they are, and to note it; their minutes have their own rows."""
    told: list[int] = []
    async with watched(pinned, plans="force_generic_plan") as (backend, seen):
        for _ in range(STEPS):
            await backend.enqueue_jobs([Job(id=uuid.uuid4().hex, type="t")])
            seen.clear()
            assert await backend.roll_up() == 1
            noted = [plan for plan in seen.plans if "roll_up_progress" in plan.text]
            told.append(sum(plan.pages for plan in noted))
    assert told[-1] <= told[2] + 5, told
