"""The plans of the hot path: index look-ups on tables of every size."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.connection import borrowed, open_pool
from queue_operator.backends.sql import load
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

PACKAGE = "queue_operator.backends.postgres"
SIZES = [0, 20, 50_000]
TOKEN = uuid.uuid4()
ONE: dict[str, Any] = {"namespaces": [1], "ids": ["plan-7"], "tokens": [TOKEN]}

STATEMENTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "claim": (
        {
            "lanes": [1, 2],
            "marks": [datetime(1, 1, 1, tzinfo=UTC)] * 2,
            "mark_numbers": [0, 0],
            "default_attempts": [None, 3],
            "default_timeouts": [None, 1.0],
            "per_lane": 5,
            "slots": 5,
            "slot_of": [1] * 5,
            "assignees": ["w"],
            "workers": [""],
            "hosts": [""],
            "ttl_s": 5.0,
            "seed": "00",
            "system_attempts": 4,
            "system_backoff": "{}",
        },
        {"ready_claim", "ready_pkey", "job_pkey"},
    ),
    "complete": (
        {**ONE, "results": [b""], "content_types": ["a/b"]},
        {"job_namespace_id_id_key", "lease_pkey"},
    ),
    "lock": (
        {"job_nos": [7, 8], "tokens": [TOKEN, None]},
        {"lease_pkey", "ready_pkey", "final_pkey", "job_pkey", "attempt_pkey"},
    ),
    "stage": ({"max_rows": 10}, {"ready_stage", "ready_pkey"}),
    "lease_extend": ({**ONE, "ttl_s": 5.0}, {"job_namespace_id_id_key", "lease_pkey"}),
    "lease_fate": (ONE, {"job_namespace_id_id_key", "ready_pkey", "lease_pkey", "final_pkey"}),
    "read_job": (
        {"job_nos": None, "namespace_id": 1, "ids": ["plan-7"]},
        {"job_namespace_id_id_key", "ready_pkey", "lease_pkey", "final_pkey"},
    ),
    "find_numbers": (ONE, {"job_namespace_id_id_key"}),
    "find_by_lanes": ({"lanes": [1]}, {"job_by_lane"}),
    "delete": ({"job_nos": [1, 2]}, {"final_pkey", "job_pkey", "attempt_pkey"}),
    "cancel_pending": ({"assignee_ids": ["w"]}, {"job_pkey"}),
    "find_expired_final": (
        {"ttl_s": 5.0, "namespace_id": None, "max_rows": 10},
        {"final_completed", "job_pkey"},
    ),
}


@pytest.fixture(scope="module", params=SIZES)
def filled_dsn(request: pytest.FixtureRequest, postgres_admin_dsn: str) -> Iterator[str]:
    """A database with as many jobs waiting, and a tenth of them running and ended."""
    name = f"plans_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        address = make_conninfo(postgres_admin_dsn, dbname=name)
        asyncio.run(_fill(address, request.param))
        yield address
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def _fill(dsn: str, jobs: int) -> None:
    await migrate(dsn)
    backend = await PostgresBackend.open(dsn)
    for start in range(0, jobs, 2000):
        batch = range(start, min(start + 2000, jobs))
        await backend.enqueue_jobs([Job(id=f"plan-{n}", type=f"t{n % 2}") for n in batch])
    for _ in range(jobs // 5000):
        demand = Demand(assignee_id="w", limit=1000)
        claimed = await backend.claim([demand], lease_ttl_s=600)
        done = claimed[: len(claimed) // 2]
        await backend.settle([Outcome(a.job_id, Event.COMPLETE, token=a.token) for a in done])
    await backend.close()
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("ANALYZE" if jobs else "SELECT 1")


@pytest.fixture
async def connection(filled_dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    pool = await open_pool(filled_dsn, size=1, connect_timeout_s=5.0, statement_timeout_s=30.0)
    async with borrowed(pool) as connection:
        yield connection
    await pool.close()


async def plan_of(
    connection: psycopg.AsyncConnection[Any], statement: LiteralString, parameters: dict[str, Any]
) -> str:
    explained = sql.SQL("EXPLAIN ") + sql.SQL(statement)
    cursor = await connection.execute(explained, parameters)
    return "\n".join(line for (line,) in await cursor.fetchall())


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_hot_statement_uses_its_indexes_whatever_the_size(
    connection: psycopg.AsyncConnection[Any], name: str, generic: bool
) -> None:
    parameters, indexes = STATEMENTS[name]
    mode = "force_generic_plan" if generic else "force_custom_plan"
    await connection.execute("SELECT set_config('plan_cache_mode', %s, false)", (mode,))
    plan = await plan_of(connection, load(PACKAGE, name), parameters)
    assert "Seq Scan" not in plan, plan
    assert not re.search(r"Hash Join|Merge Join", plan), plan
    used = set(re.findall(r"Scan (?:Backward )?using (\S+)", plan))
    assert indexes <= used, plan


async def test_a_claim_reads_no_more_than_it_takes(
    connection: psycopg.AsyncConnection[Any],
) -> None:
    parameters, _ = STATEMENTS["claim"]
    plan = await plan_of(connection, load(PACKAGE, "claim"), parameters)
    # The order of the index is the order of the claim: a sort of the lane would read it whole.
    head = plan[plan.index("CTE seen") : plan.index("CTE heads")]
    assert re.search(r"Limit.*\n.*WindowAgg", head), plan
    assert "Sort" not in head, plan
