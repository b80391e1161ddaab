"""Roll-ups: each row of the log is counted once, whatever happens while it is."""

import asyncio
import json
import uuid
from collections.abc import Callable, Set
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.restored import restore
from tests.integration.postgres.watching import at_most, watched

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.migrate import migrations
from queue_operator.backends.postgres.roll_ups import BOUNDS, RollUps
from queue_operator.backends.protocol import Breakdown as By
from queue_operator.backends.protocol import Counts, StatsWindow, WindowStats
from queue_operator.backends.tallies import SPANS
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

ROOT = Path(__file__).resolve().parents[3]
VECTORS = json.loads((ROOT / "tests" / "vectors" / "histogram.json").read_text())
LONG_S = 5 * 86_400.0

NewDatabase = Callable[[], str]


def jobs(namespace: str, count: int, **fields: Any) -> list[Job]:
    return [
        Job(id=uuid.uuid4().hex, namespace=namespace, **{"type": "mail", **fields})
        for _ in range(count)
    ]


async def stats(backend: PostgresBackend, namespace: str, **fields: Any) -> WindowStats:
    asked = StatsWindow(namespace=namespace, breakdown_by=frozenset(By), **fields)
    return await backend.window_stats(asked)


async def roll_up(backend: PostgresBackend, limit: int = 1000) -> int:
    total = 0
    while rolled := await backend.roll_up(limit=limit):
        total += rolled
    return total


async def work(
    backend: PostgresBackend, namespace: str, count: int, tags: Set[str] = frozenset()
) -> None:
    """Jobs that are submitted and completed."""
    await backend.enqueue_jobs(jobs(namespace, count, tags=frozenset(tags)))
    demand = Demand(assignee_id="w", limit=count, namespace=namespace, tags=frozenset(tags))
    claimed = await backend.claim([demand], lease_ttl_s=60)
    await backend.settle([Outcome(a.job_id, Event.COMPLETE, a.namespace, a.token) for a in claimed])


@pytest.mark.parametrize("limit", [1, 1000], ids=["row-by-row", "at-once"])
async def test_a_transaction_that_commits_late_is_not_missed(
    backend: PostgresBackend, namespace: str, dsn: str, limit: int
) -> None:
    """Its rows have numbers below those that were rolled up before."""
    await work(backend, namespace, 2)
    async with await psycopg.AsyncConnection.connect(dsn) as slow:
        await slow.execute("SET search_path = queue_operator")
        await slow.execute(
            "INSERT INTO job_event (event, to_state, job_nos, lane_of, lanes, lane_ids)"
            " SELECT event, to_state, job_nos, lane_of, lanes, lane_ids FROM job_event"
            " WHERE event = 'SUBMIT' ORDER BY seq DESC LIMIT 1"
        )
        await work(backend, namespace, 3)
        assert await roll_up(backend, limit) > 0
        assert (await stats(backend, namespace)).submitted == 5
        await work(backend, namespace, 4)
        await roll_up(backend, limit)
        assert await backend.roll_up(limit=limit) == 0
        await slow.commit()
    assert (await stats(backend, namespace)).submitted == 11
    assert await roll_up(backend) == 1
    assert await roll_up(backend) == 0
    found = await stats(backend, namespace)
    assert (found.submitted, found.completed) == (11, 9)


async def test_one_that_commits_between_two_steps_is_not_missed(
    backend: PostgresBackend, namespace: str, dsn: str
) -> None:
    await roll_up(backend)
    await work(backend, namespace, 2)
    async with await psycopg.AsyncConnection.connect(dsn) as slow:
        await slow.execute(
            "INSERT INTO queue_operator.job_event"
            " (event, to_state, job_nos, lane_of, lanes, lane_ids)"
            " SELECT event, to_state, job_nos, lane_of, lanes, lane_ids"
            " FROM queue_operator.job_event WHERE event = 'SUBMIT' ORDER BY seq DESC LIMIT 1"
        )
        await work(backend, namespace, 3)
        assert await backend.roll_up(limit=4) == 4
        await slow.commit()
    assert await roll_up(backend) == 3
    assert (await stats(backend, namespace)).submitted == 7


async def test_one_that_never_commits_holds_nothing_up(
    backend: PostgresBackend, namespace: str, dsn: str
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as idle:
        await idle.execute("SELECT pg_current_xact_id()")
        await work(backend, namespace, 3)
        assert await roll_up(backend) == 3
        await work(backend, namespace, 3)
        assert await roll_up(backend) == 3
        await idle.rollback()
    assert await roll_up(backend) == 0
    assert (await stats(backend, namespace)).completed == 6


async def test_replicas_that_roll_up_at_once_count_once(
    backend: PostgresBackend, namespace: str, dsn: str
) -> None:
    other = await PostgresBackend.open(dsn)
    seen: list[int] = []

    async def submit(tag: str) -> None:
        # One that took the jobs of the other would leave it none, and write less.
        for _ in range(20):
            await work(backend, namespace, 5, {tag})

    async def roll(one: PostgresBackend) -> int:
        return sum([await one.roll_up(limit=3) for _ in range(40)])

    async def look() -> None:
        for _ in range(20):
            found = await stats(other, namespace)
            assert found.submitted >= found.completed
            seen.append(found.submitted)

    await roll_up(backend)
    _, _, first, second, _ = await asyncio.gather(
        submit("a"), submit("b"), roll(backend), roll(other), look()
    )
    left = await roll_up(other)
    assert first + second + left == 2 * 20 * 3
    found = await stats(backend, namespace)
    assert (found.submitted, found.completed) == (200, 200)
    assert found.by_type == {"mail": Counts(completed=200)}
    assert seen == sorted(seen)
    assert all(count % 5 == 0 for count in seen)
    await other.close()


async def test_a_replica_that_dies_in_the_middle_of_a_step_counted_nothing(
    backend: PostgresBackend, namespace: str, pool: Pool, ask: Ask, dsn: str
) -> None:
    """Its connection is cut when all is added and nothing committed yet."""
    await work(backend, namespace, 5)
    async with await psycopg.AsyncConnection.connect(dsn) as blocker:
        # What is noted at the end of the step waits for this lock.
        await blocker.execute(
            "SET search_path = queue_operator;"
            "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN new; END$$;"
            "CREATE TRIGGER pause BEFORE INSERT ON roll_up_progress"
            " FOR EACH ROW EXECUTE FUNCTION pause()"
        )
        await blocker.commit()
        try:
            await blocker.execute("SELECT pg_advisory_xact_lock(4711)")
            dying = asyncio.create_task(RollUps(pool).roll_up(1000))
            waiting: list[Any] = []
            while not waiting:
                waiting = await ask(
                    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711"
                    " AND NOT granted"
                )
            assert await backend.roll_up() == 0, "another replica has its turn"
            await ask("SELECT pg_terminate_backend(%s, 10000)", waiting[0][0])
            await asyncio.wait([dying])
            assert dying.exception() is not None
        finally:
            await blocker.rollback()
            await blocker.execute("SET search_path = queue_operator; DROP FUNCTION pause CASCADE")
    assert (await stats(backend, namespace)).completed == 5
    assert await roll_up(backend) == 3
    assert (await stats(backend, namespace)).completed == 5


async def test_who_waits_for_a_turn_gets_it_though_another_noted_something_meanwhile(
    backend: PostgresBackend, namespace: str, dsn: str
) -> None:
    await work(backend, namespace, 1)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("SET search_path = queue_operator")
        await other.execute(
            "WITH gone AS (DELETE FROM roll_up_progress RETURNING *) INSERT INTO roll_up_progress"
            " (version, snapshot, above_seq, closed_until)"
            " SELECT version + 1, snapshot, above_seq, closed_until FROM gone"
        )
        assert await backend._roll_ups.roll_up(1000) == 0
        waiting = asyncio.create_task(backend._roll_ups.roll_up(1000, waits=True))
        await until_waiting(dsn, 1)
        await other.commit()
        assert await waiting == 3
    assert (await stats(backend, namespace)).completed == 1


async def test_a_database_of_the_schema_before_is_no_copy(new_database: NewDatabase) -> None:
    """Its row of progress is kept, and was written by the transaction that it names."""
    dsn = new_database()
    await migrate(dsn, shipped=[one for one in migrations() if one.name < "0009"])
    read = "SELECT xmin = xid::xid, xid FROM queue_operator.roll_up_progress"
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "UPDATE queue_operator.roll_up_progress SET xid = pg_current_xact_id()"
        )
        before = await (await connection.execute(read)).fetchall()
        await migrate(dsn)
        assert await (await connection.execute(read)).fetchall() == before == [(True, before[0][1])]


@pytest.fixture
def copy(new_database: NewDatabase) -> str:
    dsn = new_database()
    asyncio.run(migrate(dsn))
    return dsn


@pytest.mark.parametrize("shift", [0, 200, 1_000_000_000], ids=["same", "a-bit", "far"])
async def test_a_restored_copy_counts_on(
    backend: PostgresBackend, namespace: str, dsn: str, copy: str, shift: int
) -> None:
    """A part of its log was rolled up in the original, and a part was not."""
    await work(backend, namespace, 3)
    await roll_up(backend)
    await work(backend, namespace, 2)
    await asyncio.to_thread(restore, dsn, copy, shift)
    restored = await PostgresBackend.open(copy)
    try:
        await work(restored, namespace, 4)
        assert (await stats(restored, namespace)).completed == 9
        assert await roll_up(restored) == 3
        async with await psycopg.AsyncConnection.connect(copy, autocommit=True) as connection:
            # The transactions of the copy come to the numbers that the log of the original has.
            for _ in range(300):
                await connection.execute("SELECT pg_current_xact_id()")
        await work(restored, namespace, 1)
        assert await roll_up(restored) == 3
        assert await roll_up(restored) == 0
        assert (await stats(restored, namespace)).completed == 10
    finally:
        await restored.close()


async def test_rows_of_an_older_release_count(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    """They do not say which lanes their jobs were in."""
    await roll_up(backend)
    await work(backend, namespace, 4)
    await backend.enqueue_jobs(
        jobs(namespace, 2, tags=frozenset("ba")) + jobs(namespace, 1, type="sms")
    )
    before = await stats(backend, namespace)
    await ask("UPDATE job_event SET lane_ids = NULL")
    assert (await stats(backend, namespace)).by_type == before.by_type
    await roll_up(backend)
    after = await stats(backend, namespace)
    assert (after.submitted, after.completed, after.by_type) == (7, 4, before.by_type)


def test_buckets_begin_where_the_vectors_say() -> None:
    for vector in VECTORS["buckets"]:
        bucket, value = vector["bucket"], max(vector["value_us"], 0)
        assert BOUNDS[bucket] <= value
        assert bucket + 1 == len(BOUNDS) or value < BOUNDS[bucket + 1]


@pytest.mark.parametrize("vector", VECTORS["percentiles"], ids=str)
async def test_percentiles_are_those_of_the_vectors(
    backend: PostgresBackend, namespace: str, ask: Ask, vector: dict[str, Any]
) -> None:
    await backend.enqueue_jobs(jobs(namespace, 1))
    values = [max(value, 0) for value in vector["values_us"]]
    await ask(
        "INSERT INTO job_event (event, from_state, to_state, job_nos, wait_us, lane_ids)"
        " SELECT 'CLAIM', 'INITIAL_PENDING', 'RUNNING', %s::bigint[], %s::bigint[],"
        " array_fill((SELECT lane.id FROM lane JOIN namespace ON namespace.id = namespace_id"
        " WHERE name = %s), ARRAY[%s])",
        list(range(len(values))),
        values,
        namespace,
        len(values),
    )
    for _ in ("as it happened", "rolled up"):
        latency = (await stats(backend, namespace)).queue_latency
        longest = max(values, default=None)
        # A bucket ends beyond the longest time in it; what is told does not.
        told = {
            rank: value if longest is None else min(value, longest)
            for rank, value in vector["per_mille"].items()
        }
        assert latency.p50_us == told["500"]
        assert latency.p90_us == told["900"]
        assert latency.p99_us == told["990"]
        assert latency.max_us == longest
        await roll_up(backend)


async def test_old_roll_ups_are_forgotten(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    await work(backend, namespace, 1)
    await roll_up(backend)
    for span in SPANS:
        age = span.kept + timedelta(seconds=2 * span.seconds)
        for table in ("roll_up", "roll_up_latency"):
            # The same rows once more, long ago.
            await ask(
                f"INSERT INTO {table} SELECT (r).* FROM (SELECT jsonb_populate_record({table},"
                f" jsonb_build_object('begins_at', begins_at - %s)) AS r FROM {table}"
                " WHERE span_s = %s) AS older",
                age,
                span.seconds,
            )
    backend._roll_ups._prune_at_s = 0.0
    await backend.roll_up()
    for table in ("roll_up", "roll_up_latency"):
        [[oldest]] = await ask(f"SELECT max(now() - begins_at) FROM {table}")
        assert oldest < timedelta(days=2)


async def cells(ask: Ask, namespace: str, span_s: int) -> list[tuple[Any, ...]]:
    return await ask(
        "SELECT begins_at, submitted, completed, (SELECT sum(n) FROM roll_up_latency AS took,"
        " unnest(counts) AS n WHERE took.namespace_id = r.namespace_id AND NOT waits"
        " AND took.span_s = r.span_s AND took.begins_at = r.begins_at)"
        " FROM roll_up AS r JOIN namespace ON namespace.id = namespace_id"
        " WHERE name = %s AND span_s = %s ORDER BY begins_at",
        namespace,
        span_s,
    )


async def test_what_is_over_is_summed_up_once_and_what_comes_late_is_added(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    """Two days ago there were jobs in two hours, and today there are."""
    minute, hour, day = (span.seconds for span in SPANS)
    await roll_up(backend)
    # As if nobody had looked since.
    await ask("UPDATE roll_up_progress SET closed_until = 'epoch', xid = pg_current_xact_id()")
    for ago in ("50 hours", "48 hours", "0 hours"):
        await work(backend, namespace, 2)
        await ask(
            "UPDATE job_event SET at = at - %s::interval WHERE at > now() - interval '1 h'", ago
        )
        await backend._roll_ups._step(1000, waits=True)
    assert len(await cells(ask, namespace, minute)) == 3
    assert await cells(ask, namespace, hour) == await cells(ask, namespace, day) == []
    before = await stats(backend, namespace, time_range_s=3 * 86_400.0)
    assert (before.submitted, before.completed) == (6, 6)
    assert await roll_up(backend) == 0
    assert [row[1:] for row in await cells(ask, namespace, hour)] == [(2, 2, 2)] * 2
    assert sum(row[1] for row in await cells(ask, namespace, day)) == 4
    after = await stats(backend, namespace, time_range_s=3 * 86_400.0)
    assert (after.submitted, after.completed) == (6, 6)
    assert after.execution_time == before.execution_time
    # Late: of a span that is over.
    await work(backend, namespace, 3)
    await ask("UPDATE job_event SET at = at - interval '50 h' WHERE at > now() - interval '1 h'")
    await roll_up(backend)
    assert [row[1:] for row in await cells(ask, namespace, hour)] == [(5, 5, 5), (2, 2, 2)]
    assert sum(row[1] for row in await cells(ask, namespace, day)) == 7
    late = await stats(backend, namespace, time_range_s=3 * 86_400.0)
    assert (late.submitted, late.completed) == (9, 9)


async def test_what_comes_late_is_added_to_the_last_hour_that_is_over(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    _, hour, _ = (span.seconds for span in SPANS)
    await roll_up(backend)
    await work(backend, namespace, 2)
    await ask(
        "UPDATE job_event SET at = date_trunc('hour', now()) - interval '1 minute'"
        " WHERE at > now() - interval '1 h'"
    )
    await roll_up(backend)
    assert [row[1:] for row in await cells(ask, namespace, hour)] == [(2, 2, 2)]


async def test_a_day_has_also_those_of_its_hours_that_were_summed_up_before_it_was_over(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    *_, day = (span.seconds for span in SPANS)
    await roll_up(backend)
    await ask("UPDATE roll_up_progress SET closed_until = 'epoch', xid = pg_current_xact_id()")
    await work(backend, namespace, 2)
    [[today]] = await ask("SELECT date_trunc('day', now(), 'UTC')")
    await ask(
        "UPDATE job_event SET at = %s - interval '10 h' WHERE at > now() - interval '1 h'", today
    )
    await backend._roll_ups._step(1000, waits=True)
    for at in (today - timedelta(minutes=30), today + timedelta(minutes=30)):
        await backend._roll_ups._close(at)
    assert [row[1:] for row in await cells(ask, namespace, day)] == [(2, 2, 2)]


async def test_an_older_release_wrote_longer_spans_of_today_already(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    """They are gone on with until the day is over."""
    _, hour, day = (span.seconds for span in SPANS)
    await work(backend, namespace, 2)
    await ask(
        "INSERT INTO roll_up SELECT namespace.id, span_s, date_bin(make_interval(secs => span_s),"
        " now(), 'epoch'), job_type.id, 'NORMAL', 7, 7, 0, 0, 0, 0"
        " FROM namespace, job_type, unnest(%s::int[]) AS span_s WHERE namespace.name = %s"
        " AND job_type.name = 'mail'",
        [hour, day],
        namespace,
    )
    await ask("UPDATE roll_up_progress SET closed_until = NULL, xid = pg_current_xact_id()")
    await roll_up(backend)
    assert [row[1] for row in await cells(ask, namespace, hour)] == [9]
    assert [row[1] for row in await cells(ask, namespace, day)] == [9]
    [[tomorrow]] = await ask(
        "SELECT closed_until = date_trunc('day', now(), 'UTC') + interval '1 day'"
        " FROM roll_up_progress"
    )
    assert tomorrow


async def test_what_is_much_is_rolled_up_before_it_is_told(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    await roll_up(backend)
    await backend.enqueue_jobs(jobs(namespace, 1))
    await ask(
        "INSERT INTO job_event (event, to_state, job_nos, lane_of, lanes, lane_ids)"
        " SELECT event, to_state, job_nos, lane_of, lanes, lane_ids FROM (SELECT * FROM job_event"
        " ORDER BY seq DESC LIMIT 1) AS last, generate_series(1, 5000)"
    )
    assert (await stats(backend, namespace)).submitted == 5001
    assert await roll_up(backend) == 0


async def test_a_step_takes_no_more_than_was_asked_for(
    backend: PostgresBackend, namespace: str
) -> None:
    await roll_up(backend)
    for _ in range(7):
        await backend.enqueue_jobs(jobs(namespace, 1))
    assert [await backend.roll_up(limit=3) for _ in range(4)] == [3, 3, 1, 0]


async def test_nothing_is_written_when_nothing_happened(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    await work(backend, namespace, 1)
    await roll_up(backend)
    before = await ask("SELECT ctid, xmax FROM roll_up_progress")
    assert await backend.roll_up() == 0
    assert await ask("SELECT ctid, xmax FROM roll_up_progress") == before


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_the_log_is_looked_up_by_transaction(
    backend: PostgresBackend, namespace: str, dsn: str, ask: Ask, plans: str
) -> None:
    """However long the part is that is rolled up already."""
    await ask(
        "INSERT INTO job_event (event, to_state, job_nos)"
        " SELECT 'OTHER', 'RUNNING', '{1}' FROM generate_series(1, 20000)"
    )
    await roll_up(backend, 100_000)
    await ask("ANALYZE job_event")
    async with watched(dsn, plans=plans) as (one, seen):
        await work(one, namespace, 10)
        with at_most(seen, rows=3000, pages=3000):
            assert (await stats(one, namespace)).completed == 10
            assert await one.roll_up() == 3
            assert (await stats(one, namespace, time_range_s=LONG_S)).completed == 10
    assert "job_event_by_xid" in seen.indexes


async def test_a_roll_up_does_not_run_after_what_comes_meanwhile(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.roll_up()
    await backend.enqueue_job(Job(id=uuid.uuid4().hex, type="t"))
    step, steps = backend._roll_ups._step, 0

    async def then_comes_more(*given: Any, **named: Any) -> tuple[int, bool]:
        nonlocal steps
        done = await step(*given, **named)
        steps += 1
        await backend.enqueue_job(Job(id=uuid.uuid4().hex, type="t"))
        return done

    monkeypatch.setattr(backend._roll_ups, "_step", then_comes_more)
    assert (await backend.roll_up(), steps) == (1, 1)
