"""Counts are right at every moment, whatever is folded, open, or restored from a dump."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import psycopg
import pytest
from tests.contract.store import RECOUNT
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.restored import restore

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.connection import Pool, open_pool, transaction
from queue_operator.backends.postgres.counts import Counts, OfLane, forget, lanes_waiting
from queue_operator.backends.postgres.depth import DepthStore
from queue_operator.backends.postgres.migrate import migrations
from queue_operator.backends.protocol import StatsWindow
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
NEW = (
    "INSERT INTO queue_operator.count_delta (lane_id, state, jobs, retries)"
    " SELECT id, 'INITIAL_PENDING', %s, 0 FROM queue_operator.lane"
)
"""As a submission to all lanes counts, which are those of the test."""


@pytest.fixture
def dsn(own_dsn: str) -> str:
    """All that is counted is the test's."""
    return own_dsn


@pytest.fixture
def counts(pool: Pool) -> Counts:
    return Counts(pool)


def jobs(count: int, *tags: str, **fields: Any) -> list[Job]:
    return [
        Job(id=uuid.uuid4().hex, **{"type": "mail", "tags": frozenset(tags), **fields})
        for _ in range(count)
    ]


async def total(backend: PostgresBackend, *tags: str) -> int:
    """By the count of the namespace, and with a tag by those of lanes."""
    backend._counts._fold_at_s = float("inf")
    return (await backend.get_job_stats(tags)).total_jobs


async def all_ways(backend: PostgresBackend) -> set[int]:
    """The jobs that wait, told by each of those who read counts."""
    backend._counts._fold_at_s = float("inf")
    depth = await backend.queue_depth()
    usage = await backend.usage_of(["default"])
    return {
        await total(backend),
        await total(backend, "eu"),
        sum(depth.jobs.values()),
        usage["default"].pending,
    }


async def test_what_commits_after_a_fold_that_began_before_it_counts(
    backend: PostgresBackend, counts: Counts, dsn: str
) -> None:
    """Its number lies before that of changes that are folded already."""
    await backend.enqueue_jobs(jobs(3, "eu"))
    async with await psycopg.AsyncConnection.connect(dsn) as slow:
        await slow.execute(NEW, [10])
        await backend.enqueue_jobs(jobs(4, "eu"))
        assert await counts.fold() == 2
        assert await all_ways(backend) == {7}
        await slow.commit()
    assert await all_ways(backend) == {17}
    assert await counts.fold() == 1
    assert await counts.fold() == 0
    assert await all_ways(backend) == {17}


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_fold_that_stops_on_the_way_leaves_the_rest_to_the_next(
    backend: PostgresBackend, counts: Counts, dsn: str, limit: int
) -> None:
    """Also between two changes of one transaction, and where an older one is still open."""
    await backend.enqueue_jobs(jobs(1, "eu"))
    async with await psycopg.AsyncConnection.connect(dsn) as slow:
        await slow.execute(NEW, [10])
        for count in (2, 3):
            await backend.enqueue_jobs(jobs(count, "eu"))
        async with await psycopg.AsyncConnection.connect(dsn) as several:
            for _ in range(4):
                await several.execute(NEW, [1])
        for _ in range(7):
            await counts.fold(limit=limit)
            assert await all_ways(backend) == {10}
        await slow.commit()
    for _ in range(2):
        assert await all_ways(backend) == {20}
        await counts.fold(limit=limit)
    assert await counts.fold() == 0


async def test_one_that_never_commits_holds_nothing_up(
    backend: PostgresBackend, counts: Counts, dsn: str, ask: Ask
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as idle:
        await idle.execute("SELECT pg_current_xact_id()")
        for _ in range(3):
            await backend.enqueue_jobs(jobs(2, "eu"))
            assert await counts.fold() == 1
        assert await ask("SELECT count(*) FROM count_delta") == [(0,)]
        assert await all_ways(backend) == {6}


async def test_who_folds_at_the_same_time_passes_by(
    backend: PostgresBackend, counts: Counts, dsn: str
) -> None:
    await backend.enqueue_jobs(jobs(2, "eu"))
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("SELECT FROM queue_operator.count_progress FOR UPDATE")
        assert await counts.fold() == 0
        assert await all_ways(backend) == {2}
    assert await counts.fold() == 1


async def test_nothing_is_written_when_nothing_changed(
    backend: PostgresBackend, counts: Counts, ask: Ask
) -> None:
    await backend.enqueue_jobs(jobs(2, "eu"))
    await counts.fold()
    before = await ask("SELECT ctid, xmax, version FROM count_progress")
    assert await counts.fold() == 0
    assert await ask("SELECT ctid, xmax, version FROM count_progress") == before
    assert len(before) == 1


async def test_readers_never_see_a_part_while_jobs_move_and_replicas_fold(
    backend: PostgresBackend, dsn: str, ask: Ask
) -> None:
    """Transactions of all lengths add fives, and take some back; every look finds whole ones."""
    rng = Random(13)  # noqa: S311
    await backend.enqueue_jobs(jobs(5, "eu"))
    done = asyncio.Event()
    seen: list[set[int]] = []

    async def move() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            for _ in range(30):
                for _ in range(rng.randint(1, 3)):
                    await connection.execute(NEW, [2])
                    await connection.execute(NEW, [3])
                await (connection.commit() if rng.random() < 0.8 else connection.rollback())

    async def fold(counts: Counts) -> None:
        while not done.is_set():
            await counts.fold(limit=rng.randint(1, 6))

    async def look() -> None:
        while not done.is_set():
            seen.append({await total(backend), await total(backend, "eu")})

    async with AsyncExitStack() as opened:
        others = [await PostgresBackend.open(dsn) for _ in range(2)]
        for other in others:
            opened.push_async_callback(other.close)
        beside = [asyncio.create_task(fold(other._counts)) for other in others]
        beside.append(asyncio.create_task(look()))
        await asyncio.gather(*(move() for _ in range(4)))
        done.set()
        await asyncio.gather(*beside)
    assert len(seen) > 10
    assert all(count % 5 == 0 for counts in seen for count in counts)
    await backend._counts.fold_all()
    assert await ask("SELECT count(*) FROM count_delta") == [(0,)]
    [[in_lane]] = await ask("SELECT jobs[1] FROM lane_count")
    assert await all_ways(backend) == {in_lane}


async def test_counts_by_lane_kind_and_namespace_agree(
    backend: PostgresBackend, counts: Counts, ask: Ask
) -> None:
    rng = Random(7)  # noqa: S311
    for _ in range(12):
        new = [
            one
            for n in range(3)
            for one in jobs(
                3, "eu", *rng.sample("abc", n), type=rng.choice("xyz"), namespace=rng.choice("nm")
            )
        ]
        await backend.enqueue_jobs(new)
        for namespace in "nm":
            demand = Demand(assignee_id="w", limit=4, namespace=namespace)
            claimed = await backend.claim([demand], lease_ttl_s=60)
            events = (Event.COMPLETE, Event.FAIL, Event.RELEASE, Event.STOP)
            await backend.settle(
                [Outcome(a.job_id, rng.choice(events), a.namespace, a.token) for a in claimed]
            )
            await counts.fold(limit=rng.randint(1, 20))
            assert await ask(RECOUNT) == []
        await backend.cancel_jobs([], [one.id for one in new[:2]], namespace=new[0].namespace)
        await backend.delete_jobs([], [one.id for one in new[:2]], namespace=new[0].namespace)
    while await counts.fold():
        pass
    assert await ask(RECOUNT) == []


async def test_waiting_lanes_are_known_at_once_and_until_nothing_waits(
    backend: PostgresBackend, counts: Counts, pool: Pool, ask: Ask
) -> None:
    async def waiting() -> list[int]:
        async with transaction(pool) as connection:
            snapshot, lanes = await lanes_waiting(connection)
        assert snapshot.count(":") == 2
        return sorted(lanes)

    await backend.enqueue_jobs(jobs(2, "eu"))
    await backend.enqueue_jobs(jobs(1, "us"))
    both = [lane for (lane,) in await ask("SELECT id FROM lane ORDER BY tags")]
    assert await waiting() == sorted(both)
    await counts.fold()
    assert await waiting() == sorted(both)
    await backend.dequeue_jobs("w", ["eu"], 1)
    await counts.fold()
    assert await waiting() == sorted(both)
    await backend.dequeue_jobs("w", ["eu"], 1)
    await counts.fold()
    assert await waiting() == both[1:]
    assert await ask("SELECT lane_id FROM lane_waiting") == [(both[1],)]


async def test_a_lane_whose_count_was_below_nothing_is_known_when_jobs_wait_there(
    backend: PostgresBackend, counts: Counts, dsn: str, ask: Ask
) -> None:
    """A fold stopped between what took jobs from there and what had brought them."""
    await backend.enqueue_jobs(jobs(1, "eu"))
    for change, waits in ((0, True), (-3, False), (3, True)):
        await ask(NEW, change)
        await counts.fold()
        assert await ask("SELECT count(*) FROM lane_waiting") == [(waits,)]
    fresh = await PostgresBackend.open(dsn)
    assert len(await fresh.dequeue_jobs("w", ["eu"], 5)) == 1
    await fresh.close()


async def test_the_counts_of_a_lane_without_jobs_go(
    backend: PostgresBackend, counts: Counts, pool: Pool, ask: Ask
) -> None:
    used, kept = jobs(1, "eu", namespace="once"), jobs(1, "us")
    await backend.enqueue_jobs([*used, *kept])
    lanes = await ask("SELECT id, namespace_id, type_id, priority FROM lane ORDER BY tags")
    eu, us = (OfLane(*lane) for lane in lanes)

    async def forgotten() -> int:
        await counts.fold()
        async with transaction(pool) as connection:
            return await forget(connection, [eu, us])

    assert await forgotten() == 0
    await backend.cancel_jobs([], [used[0].id], namespace="once")
    assert await forgotten() == 0
    assert await backend.delete_jobs([], [used[0].id], namespace="once") == 1
    assert await forgotten() == 3
    assert await ask("SELECT lane_id FROM lane_count") == [(us.lane_id,)]
    assert await ask("SELECT namespace_id FROM kind_count") == [(us.namespace_id,)]
    assert await ask("SELECT namespace_id FROM namespace_count") == [(us.namespace_id,)]
    await backend.enqueue_jobs(jobs(2, "eu", namespace="once"))
    assert await forgotten() == 0
    assert (await backend.get_job_stats([], namespace="once")).total_jobs == 2
    assert await ask(RECOUNT) == []


async def test_the_count_of_a_kind_stays_while_it_lacks_some_that_are_blocked(
    backend: PostgresBackend, counts: Counts, pool: Pool, ask: Ask
) -> None:
    """A fold stopped between a settlement and the submission of what it set free, which has the
    higher number.
    """
    change = (
        "INSERT INTO count_delta (lane_id, state, jobs, retries, blocked)"
        " SELECT id, 'INITIAL_PENDING', 0, 0, %s FROM lane"
    )
    [old] = jobs(1, "eu")
    await backend.enqueue_jobs([old])
    await backend.cancel_jobs([], [old.id])
    await backend.delete_jobs([], [old.id])
    await ask(change, -1)
    await counts.fold()
    lanes = await ask("SELECT id, namespace_id, type_id, priority FROM lane")

    async def forgotten() -> int:
        async with transaction(pool) as connection:
            return await forget(connection, [OfLane(*lane) for lane in lanes])

    assert await forgotten() == 2
    await ask(change, 1)
    await counts.fold()
    assert await ask(RECOUNT) == []
    assert await forgotten() == 3


@pytest.mark.parametrize("shift", [0, 200, 1_000_000_000], ids=["same", "a-bit", "far"])
@pytest.mark.parametrize("adopted", [True, False])
async def test_a_restored_copy_counts_on(
    backend: PostgresBackend,
    counts: Counts,
    dsn: str,
    new_database: Callable[[], str],
    shift: int,
    adopted: bool,
) -> None:
    """Some changes were folded in the original, and some were not."""
    await backend.enqueue_jobs(jobs(3, "eu"))
    await counts.fold()
    await backend.enqueue_jobs(jobs(2, "eu"))
    copy = new_database()
    await migrate(copy)
    await asyncio.to_thread(restore, dsn, copy, shift)
    pool = await open_pool(copy, size=2, connect_timeout_s=5.0, statement_timeout_s=30.0)
    of_copy = Counts(pool)
    of_copy._fold_at_s = float("inf")
    depth = DepthStore(pool, of_copy)

    async def totals() -> set[int]:
        return {(await depth.stats(tags)).total_jobs for tags in ((), ("eu",))}

    assert await totals() == {5}
    if adopted:
        await of_copy.adopt()
        assert await totals() == {5}
        assert await of_copy.fold() == 0
    async with await psycopg.AsyncConnection.connect(copy) as connection:
        await connection.execute(NEW, [4])
    assert await totals() == {9}
    # All at once, whatever the limit: what is left could not be told apart.
    assert await of_copy.fold(limit=1) == (1 if adopted else 2)
    assert await totals() == {9}
    async with await psycopg.AsyncConnection.connect(copy) as connection:
        await connection.execute(NEW, [1])
    assert await totals() == {10}
    assert await of_copy.fold() == 1
    assert await totals() == {10}
    await pool.close()


async def test_what_was_counted_before_is_taken_over(new_database: Callable[[], str]) -> None:
    """Counts, and changes that were not folded, of the schema before, which counted jobs that
    wait for others by their rows.
    """
    dsn = new_database()
    await migrate(dsn, shipped=[one for one in migrations() if one.name < "0009"])
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute(
            "SET search_path = queue_operator;"
            "INSERT INTO namespace (name) VALUES ('default');"
            "INSERT INTO job_type (name) VALUES ('t');"
            "INSERT INTO lane (namespace_id, type_id, priority, tags)"
            " SELECT 1, 1, 'NORMAL', ARRAY[tag] FROM unnest('{eu,us}'::text[]) AS tag;"
            "INSERT INTO lane_count SELECT id, 'COMPLETED', 10, id FROM lane;"
            "INSERT INTO lane_count SELECT id, 'INITIAL_PENDING', 3, 0 FROM lane;"
            "INSERT INTO count_delta (lane_id, state, jobs, retries)"
            " SELECT id, 'COMPLETED', 1, 1 FROM lane;"
            # Of the three of each lane one waits for others in one, and two in the other.
            "INSERT INTO ready (job_no, lane_id, order_time, eligible_at, due, blocked)"
            " SELECT 10 * id + n, id, now(), now(), n > id, n <= id"
            " FROM lane CROSS JOIN generate_series(1, 3) AS n"
        )
    await migrate(dsn)
    backend = await PostgresBackend.open(dsn)
    # Who looks folds, or there would be no look before.
    backend._counts._fold_at_s = float("inf")
    for _ in ("before the first fold", "after it"):
        whole, tagged = await backend.get_job_stats([]), await backend.get_job_stats(["us"])
        assert (whole.completed_jobs, whole.total_retries) == (22, 5)
        assert (tagged.completed_jobs, tagged.total_retries) == (11, 3)
        window = await backend.window_stats(StatsWindow())
        assert (window.pending, window.scheduled, window.delayed) == (3, 3, 0)
        await backend._counts.fold_all()
    await backend.close()


@pytest.mark.parametrize("fold_first", [True, False], ids=["fold first", "forget first"])
async def test_who_folds_and_who_forgets_take_the_same_counts_in_one_order(
    backend: PostgresBackend,
    counts: Counts,
    pool: Pool,
    somebody: psycopg.AsyncConnection[tuple[Any, ...]],
    dsn: str,
    ask: Ask,
    no_deadlock: Callable[[], None],
    fold_first: bool,
) -> None:
    """Both stand at the count of a kind, or before it, until somebody lets it go."""
    [old] = jobs(1, "eu")
    await backend.enqueue_jobs([old])
    await backend.cancel_jobs([], [old.id])
    await backend.delete_jobs([], [old.id])
    await counts.fold()
    lanes = await ask("SELECT id, namespace_id, type_id, priority FROM lane")
    await backend.enqueue_jobs(jobs(1, "eu"))

    async def forgetting() -> int:
        async with transaction(pool) as connection:
            return await forget(connection, [OfLane(*lane) for lane in lanes])

    await somebody.execute("SELECT FROM kind_count FOR UPDATE")
    calls: list[Callable[[], Awaitable[int]]] = [counts.fold, forgetting]
    at_it: list[asyncio.Future[int]] = []
    for call in calls if fold_first else reversed(calls):
        at_it.append(asyncio.ensure_future(call()))
        await until_waiting(dsn, len(at_it))
    await somebody.commit()
    assert await asyncio.gather(*at_it) == ([1, 0] if fold_first else [3, 1])
    no_deadlock()
    assert await all_ways(backend) == {1}
    assert await ask(RECOUNT) == []


async def test_a_fold_that_the_server_undid_is_done_again(
    backend: PostgresBackend,
    counts: Counts,
    somebody: psycopg.AsyncConnection[tuple[Any, ...]],
    dsn: str,
    ask: Ask,
) -> None:
    await backend.enqueue_jobs(jobs(1, "eu"))
    await counts.fold()
    await backend.enqueue_jobs(jobs(1, "eu"))
    # So it is the fold that is undone.
    await somebody.execute("SET LOCAL deadlock_timeout = '1h'")
    await somebody.execute("SELECT FROM lane_count FOR UPDATE")
    folding = asyncio.ensure_future(counts.fold())
    await until_waiting(dsn, 1)
    await somebody.execute("SELECT FROM namespace_count FOR UPDATE")
    await somebody.commit()
    assert await folding == 1
    assert await all_ways(backend) == {2}
    assert await ask(RECOUNT) == []
