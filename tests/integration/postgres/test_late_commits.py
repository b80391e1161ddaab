"""A job whose transaction ends late, after younger ones were claimed, is found all the same: by who
submitted it, and by the others.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import psycopg
import pytest
from tests.integration.postgres.conftest import Ask
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.testing.clauses import proves

TTL_S: Final = 600.0
YOUNGER: Final = 40
_TAKE: Final = """
INSERT INTO queue_operator.idempotency (namespace_id, key, job_no, digest)
SELECT id, 'late', 0, '' FROM queue_operator.namespace WHERE name = %s
"""
_WAITING: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def claim(backend: PostgresBackend, namespace: str, limit: int) -> list[Assignment]:
    demand = Demand(assignee_id="w", limit=limit, namespace=namespace)
    return await backend.claim([demand], lease_ttl_s=TTL_S)


@asynccontextmanager
async def held_up(dsn: str, namespace: str) -> AsyncIterator[None]:
    """Meanwhile nobody can take the key `late`: who wants it waits in its transaction."""
    async with await psycopg.AsyncConnection.connect(dsn) as blocker:
        await blocker.execute(_TAKE, (namespace,))
        yield
        await blocker.rollback()


@proves("queue-semantics.AtLeastOnceDelivery.rule.1")
@pytest.mark.parametrize("by", ["who submitted it", "another"])
async def test_a_job_that_is_committed_late_is_found(
    backend: PostgresBackend, other: PostgresBackend, ask: Ask, dsn: str, namespace: str, by: str
) -> None:
    await backend.enqueue_job(Job(id="first", type="t", namespace=namespace))
    [_] = await claim(backend, namespace, 1)
    late = Job(id="late", type="t", namespace=namespace, idempotency_key="late")
    async with held_up(dsn, namespace):
        submitting = asyncio.create_task(backend.enqueue_job(late))
        while await ask(_WAITING) == [(0,)]:
            assert not submitting.done()
        for one in (other, backend):
            jobs = [Job(id=f"{id(one)}-{n}", type="t", namespace=namespace) for n in range(YOUNGER)]
            await one.enqueue_jobs(jobs)
            assert len(await claim(one, namespace, YOUNGER)) == YOUNGER
            assert await claim(one, namespace, 1) == []
    assert await submitting == "late"
    looking = backend if by == "who submitted it" else other
    async with asyncio.timeout(DEADLINE_S):
        while not (found := await claim(looking, namespace, 1)):
            pass
    assert [one.job_id for one in found] == ["late"]
