"""The alternative to our tables carries what ours carry, or comparing them would say nothing."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import psycopg
import pytest

from bench.programs.product import Product
from bench.programs.wide_row import WideRow
from bench.server import Server
from queue_operator.domain.errors import SchemaMismatch

JOBS = 120
WIDE = "job"
MOVING = {"waiting": "ready", "running": "lease", "ended": "final"}
TIMES = "assigned_at - started_at, changed_at - assigned_at"
CARRIED = {
    "waiting": "due, blocked, attempt, max_attempts, timeout_s, error, assignee_id, has_children",
    "running": "max_attempts, timeout_s, backoff, assignee_id, worker_name, host, error, "
    f"left(token::text, 19), deadline, expires_at - assigned_at, cancel_forced, {TIMES}",
    "ended": "max_attempts, backoff, result, result_content_type, reason, error, assignee_id, "
    "worker_name, assigned_at = started_at, finalized_at - changed_at, cancel_reason",
}
ALWAYS = (
    "job_no, state, lane_id, attempt, lease_version, transition, retry_count, failure_count, "
    "mirrored, order_time = created_at, eligible_at = created_at"
)
SUBMITTED = "job_no, namespace_id, id, lane_id, payload, content_type, correlation_id"
# The jobs of a claim stand in no certain order in its event.
EVENTS = """
SELECT event, from_state, to_state, ARRAY(SELECT unnest(job_nos) ORDER BY 1), attempts,
       cardinality(wait_us), cardinality(run_us), workers, failed, ids, correlations, lane_of, lanes
FROM job_event ORDER BY seq
"""
CHECKS = """
SELECT kind, ARRAY(SELECT unnest(leases) ORDER BY 1), assignees FROM lease_check ORDER BY number
"""
COUNTS = "SELECT lane_id, state, jobs, retries FROM count_delta ORDER BY xid, lane_id, state"

Rows = list[tuple[Any, ...]]


@pytest.fixture
async def empty(postgres_admin_dsn: str) -> AsyncIterator[tuple[str, str]]:
    """Two empty databases."""
    server = Server.at(postgres_admin_dsn, own=False)
    with ExitStack() as made:
        yield (
            made.enter_context(server.fresh_database()),
            made.enter_context(server.fresh_database()),
        )


async def ask(dsn: str, statement: str) -> Rows:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("SET search_path = queue_operator")
        return await (await connection.execute(statement.encode())).fetchall()


async def life(store: Product, dsn: str, *, wide: bool) -> dict[str, Rows]:
    """What the tables say while all jobs go through a life without failures."""
    seen: dict[str, Rows] = {}

    async def look(stage: str) -> None:
        columns = f"{ALWAYS}, {CARRIED[stage]}"
        table = WIDE if wide else MOVING[stage]
        seen[stage] = await ask(dsn, f"SELECT {columns} FROM {table} ORDER BY job_no")

    await store.submit(range(JOBS))
    await look("waiting")
    # In two parts, which must be the older and the younger half.
    claimed = [await store.claim(JOBS // 2), await store.claim(JOBS)]
    seen["order"] = [(job_id,) for part in claimed for job_id, _ in part]
    await look("running")
    assert [await store.complete(part) for part in claimed] == [JOBS // 2] * 2
    await look("ended")
    seen["submitted"] = await ask(dsn, f"SELECT {SUBMITTED} FROM job ORDER BY job_no")
    seen["events"] = await ask(dsn, EVENTS)
    seen["checks"] = await ask(dsn, CHECKS)
    seen["counts"] = await ask(dsn, COUNTS)
    assert (await store.stored()).completed == JOBS
    return seen


async def test_both_designs_say_the_same_of_every_job(empty: tuple[str, str]) -> None:
    ours, theirs = empty
    async with AsyncExitStack() as opened:
        product = await Product.open(ours, b"payload")
        opened.push_async_callback(product.close)
        said = await life(product, ours, wide=False)
    async with AsyncExitStack() as opened:
        wide = await WideRow.open(theirs, b"payload")
        opened.push_async_callback(wide.close)
        assert await life(wide, theirs, wide=True) == said
    assert len(said["waiting"]) == len(said["running"]) == len(said["ended"]) == JOBS


async def test_a_wide_row_completes_under_its_token_only(empty: tuple[str, str]) -> None:
    dsn, _ = empty
    async with AsyncExitStack() as opened:
        wide = await WideRow.open(dsn, b"payload")
        opened.push_async_callback(wide.close)
        await wide.submit(range(JOBS))
        claimed = await wide.claim(JOBS)
        await ask(dsn, "UPDATE job SET token = gen_random_uuid() WHERE id = 'job-3' RETURNING 1")
        # What was not completed takes statements that know no wide row.
        with pytest.raises(SchemaMismatch, match="lease"):
            await wide.complete(claimed)
    running = await ask(dsn, "SELECT id FROM job WHERE finalized_at IS NULL")
    assert running == [("job-3",)]


async def test_the_product_is_itself_again_afterwards(empty: tuple[str, str]) -> None:
    for dsn, kind in zip(empty, (WideRow, Product), strict=True):
        async with AsyncExitStack() as opened:
            store = await kind.open(dsn, b"payload")
            opened.push_async_callback(store.close)
            await store.submit(range(JOBS))
            assert len(await store.claim(JOBS)) == JOBS
