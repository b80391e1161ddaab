import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.integration.postgres.watching import at_most, watched

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.counts import Counts
from queue_operator.backends.postgres.depth import DepthStore
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
Steps = Callable[..., Awaitable[list[dict[str, Any]]]]
ONE_LANE = {"lanes": [-1], "marks": [datetime(1, 1, 1, tzinfo=UTC)], "mark_numbers": [0]}
ROWS = """
    SELECT count(*) FROM (SELECT lane_id, state FROM ready UNION ALL
        SELECT lane_id, state FROM lease UNION ALL SELECT lane_id, state FROM final) AS moving
    JOIN lane ON lane.id = lane_id JOIN namespace ON namespace.id = namespace_id
    WHERE namespace.name = %s AND state = %s
"""


@pytest.fixture
def counts(pool: Pool) -> Counts:
    """Nothing is folded but by the tests."""
    counts = Counts(pool)
    counts._fold_at_s = float("inf")
    return counts


@pytest.fixture
def depth(pool: Pool, counts: Counts) -> DepthStore:
    return DepthStore(pool, counts)


def jobs(namespace: str, count: int, *tags: str, **fields: Any) -> list[Job]:
    return [
        Job(
            id=uuid.uuid4().hex,
            namespace=namespace,
            tags=frozenset(tags),
            **{"type": "mail", **fields},
        )
        for _ in range(count)
    ]


async def work_through(backend: PostgresBackend, namespace: str) -> None:
    """Brings thirteen jobs into five states."""
    await backend.enqueue_jobs(jobs(namespace, 6, "eu"))
    await backend.enqueue_jobs(jobs(namespace, 5, "eu", "gpu"))
    await backend.enqueue_jobs(jobs(namespace, 2, type="sms"))
    taken = await backend.dequeue_jobs("worker", ["eu", "gpu"], 5, namespace=namespace)
    await backend.complete_job(taken[0].id, b"", namespace=namespace)
    await backend.fail_job(taken[1].id, "no route", namespace=namespace)
    await backend.fail_job(taken[2].id, "no route", namespace=namespace)
    await backend.cancel_jobs([], [taken[3].id], namespace=namespace)


async def test_depth_agrees_with_the_rows(
    depth: DepthStore, backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    await work_through(backend, namespace)
    counted = (await depth.queue_depth()).jobs
    for state in JobState:
        [[rows]] = await ask(ROWS, namespace, state)
        assert sum(counted.get((namespace, kind, state), 0) for kind in ("mail", "sms")) == rows
    assert counted[namespace, "sms", JobState.INITIAL_PENDING] == 2
    assert counted[namespace, "mail", JobState.CANCELLING] == 1


async def test_folding_changes_no_count(
    depth: DepthStore, counts: Counts, backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    await work_through(backend, namespace)
    before = await depth.queue_depth(), await depth.stats([], namespace=namespace)
    [[changes]] = await ask("SELECT count(*) FROM count_delta")
    assert changes > 3
    assert await counts.fold(limit=3) == 3
    assert (await depth.queue_depth()).jobs == before[0].jobs
    assert [await counts.fold(limit=1) for _ in range(changes - 3)] == [1] * (changes - 3)
    assert await counts.fold() == 0
    assert (await depth.queue_depth()).jobs == before[0].jobs
    assert await depth.stats([], namespace=namespace) == before[1]


async def test_folding_on_many_replicas_while_jobs_arrive(
    depth: DepthStore, counts: Counts, backend: PostgresBackend, namespace: str
) -> None:
    totals = []

    async def submit() -> None:
        for _ in range(20):
            await backend.enqueue_jobs(jobs(namespace, 5, uuid.uuid4().hex[0]))

    async def fold() -> None:
        for _ in range(20):
            await counts.fold(limit=4)
            totals.append((await depth.stats([], namespace=namespace)).total_jobs)

    await asyncio.gather(submit(), submit(), fold(), fold(), fold())
    while await counts.fold():
        pass
    assert (await depth.stats([], namespace=namespace)).total_jobs == 200
    assert all(total % 5 == 0 for total in totals)


async def test_stats_count_jobs_that_carry_all_tags(
    depth: DepthStore, counts: Counts, backend: PostgresBackend, namespace: str
) -> None:
    await work_through(backend, namespace)

    async def total(*tags: str) -> int:
        return (await depth.stats(tags, namespace=namespace)).total_jobs

    for _ in ("before the fold", "after it"):
        assert (await total(), await total("eu"), await total("eu", "gpu")) == (13, 11, 5)
        assert (await total("gpu"), await total("gpu", "us")) == (5, 0)
        gpu = await depth.stats(["gpu"], namespace=namespace)
        assert gpu.tags == {"gpu"}
        assert (gpu.running_jobs, gpu.completed_jobs, gpu.failed_jobs) == (1, 1, 2)
        assert gpu.by_state[JobState.CANCELLING] == 1
        assert gpu.total_retries == 2
        assert await counts.fold() >= 0


async def test_stats_of_a_namespace_nobody_used_are_zero(depth: DepthStore) -> None:
    stats = await depth.stats([], namespace="nobody")
    assert stats.total_jobs == stats.total_retries == 0
    assert set(stats.by_state.values()) == {0}


async def test_oldest_age_counts_from_when_the_job_could_run(
    depth: DepthStore, backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    old, young = jobs(namespace, 2)
    await backend.enqueue_jobs([old, young])
    await backend.enqueue_jobs(jobs(namespace, 1, type="later", delay_s=3600.0))
    await ask(
        "UPDATE ready SET eligible_at = now() - interval '1 hour' FROM job"
        " WHERE job.job_no = ready.job_no AND job.id = %s",
        old.id,
    )
    ages = (await depth.queue_depth()).oldest_age_s
    assert 3600 <= ages[namespace, "mail"] < 3700
    assert (namespace, "later") not in ages


async def test_lanes_are_counted_while_jobs_wait_in_them(
    depth: DepthStore, counts: Counts, backend: PostgresBackend, namespace: str
) -> None:
    async def waiting() -> int:
        while await counts.fold():
            pass
        return (await depth.queue_depth()).waiting_lanes or 0

    before = await waiting()
    for tags in (["a"], ["a"], ["b"], ["a", "b"]):
        await backend.enqueue_jobs(jobs(namespace, 1, *tags))
    assert await waiting() == before + 3
    await backend.dequeue_jobs("worker", ["b"], 4, namespace=namespace)
    assert await waiting() == before + 1


async def test_no_age_without_waiting_jobs(
    depth: DepthStore, backend: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_jobs(jobs(namespace, 1))
    await backend.dequeue_jobs("worker", [], 1, namespace=namespace)
    assert (namespace, "mail") not in (await depth.queue_depth()).oldest_age_s


@pytest.mark.parametrize("rows", [0, 20_000])
async def test_oldest_age_looks_at_heads_only(ask: Ask, steps: Steps, rows: int) -> None:
    await ask(
        """
        INSERT INTO ready (job_no, lane_id, state, order_time, due, eligible_at, attempt,
            lease_version, transition, retry_count, failure_count, assignee_id, worker_name,
            host, changed_at, mirrored)
        SELECT -n, -1, %s, now(), true, now(), 0, 0, 1, 0, 0, '', '', '', now(), false
        FROM generate_series(1, %s) AS n
        """,
        JobState.INITIAL_PENDING,
        rows,
    )
    await ask("ANALYZE ready")
    [scan] = await steps("depth_oldest", "ready_claim", **ONE_LANE)
    assert "lane_id" in scan["Index Cond"]
    assert "order_time" in scan["Index Cond"]
    await ask("DELETE FROM ready WHERE job_no < 0")


@pytest.fixture
async def lanes_of_others(ask: Ask, backend: PostgresBackend, namespace: str) -> None:
    """Two thousand without jobs: of a few, a plan reads them all."""
    await backend.enqueue_jobs(jobs(namespace, 1))
    await ask(
        "INSERT INTO lane (namespace_id, type_id, priority, tags)"
        " SELECT namespace.id, (SELECT min(id) FROM job_type), 'NORMAL', ARRAY[n::text]"
        " FROM namespace, generate_series(1, 2000) AS n WHERE namespace.name = %s",
        namespace,
    )


@pytest.mark.usefixtures("lanes_of_others")
@pytest.mark.parametrize(("name", "given"), [("depth_jobs", {}), ("depth_oldest", ONE_LANE)])
async def test_plan_looks_up_the_lanes_of_the_counts(
    ask: Ask, steps: Steps, name: str, given: dict[str, Any]
) -> None:
    for table in ("lane", "namespace", "job_type", "lane_count", "count_delta"):
        await ask(f"VACUUM ANALYZE {table}")
    [scan] = await steps(name, "lane_pkey", **given)
    assert "id" in scan["Index Cond"]


@pytest.mark.usefixtures("lanes_of_others")
async def test_plan_of_stats_looks_up_the_counts_of_the_lanes(
    namespace: str, ask: Ask, steps: Steps
) -> None:
    for table in ("lane", "namespace", "lane_count", "count_delta"):
        await ask(f"VACUUM ANALYZE {table}")
    parameters = {"namespace": namespace, "tags": ["eu"]}
    [lanes] = await steps(
        "count_stats", "lane_namespace_id_type_id_priority_tags_key", **parameters
    )
    [counts] = await steps("count_stats", "lane_count_pkey", **parameters)
    assert "namespace_id" in lanes["Index Cond"]
    assert "lane_id" in counts["Index Cond"]


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_stats_of_one_namespace_do_not_read_the_counts_of_others(
    depth: DepthStore,
    counts: Counts,
    backend: PostgresBackend,
    dsn: str,
    namespace: str,
    ask: Ask,
    plans: str,
) -> None:
    """Twenty thousand lanes of others, and changes of theirs not folded yet."""
    await backend.enqueue_jobs(jobs(namespace, 3, "eu"))
    await ask(
        "WITH other AS (INSERT INTO namespace (name) VALUES (%s) RETURNING id), made AS ("
        " INSERT INTO lane (namespace_id, type_id, priority, tags)"
        " SELECT other.id, (SELECT min(id) FROM job_type), 'NORMAL', ARRAY[n::text]"
        " FROM other, generate_series(1, 20000) AS n RETURNING id), counted AS ("
        " INSERT INTO lane_count SELECT id, 0, ARRAY[%s], '{7}', 1, 0, 7 FROM made)"
        " INSERT INTO count_delta (lane_id, state, jobs, retries)"
        " SELECT id, %s, 1, 0 FROM made",
        f"{namespace}-other",
        JobState.COMPLETED,
        JobState.COMPLETED,
    )
    others = await depth.stats(["1"], namespace=f"{namespace}-other")
    assert (others.completed_jobs, others.total_retries) == (8, 1)
    while await counts.fold():
        pass
    await ask("ANALYZE lane_count")
    async with watched(dsn, plans=plans) as (watched_backend, seen):
        for tags in ([], ["eu"]):
            with at_most(seen, rows=100, pages=500):
                stats = await watched_backend.get_job_stats(tags, namespace=namespace)
            assert stats.total_jobs == 3
