"""Pauses between replicas, by the pulse of the one that has not made them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.watching import watched
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import News, Pause, Topic
from queue_operator.domain.job import Demand, Job


@pytest.fixture(params=["notified", "polling alone"])
async def other(dsn: str, request: pytest.FixtureRequest) -> AsyncIterator[PostgresBackend]:
    """A replica behind a pooler hears no notifications."""
    backend = await PostgresBackend.open(dsn, pooler=request.param == "polling alone")
    yield backend
    await backend.close()


@asynccontextmanager
async def listening(backend: PostgresBackend) -> AsyncIterator[AsyncIterator[News]]:
    async with aclosing(backend.listen()) as topics:  # type: ignore[type-var]
        await anext(topics)
        yield topics


def _demand(namespace: str) -> Demand:
    return Demand(assignee_id="w", limit=5, namespace=namespace)


async def _until(backend: PostgresBackend, namespace: str, there: bool) -> None:
    while (await backend.eligible_for([_demand(namespace)])) != [there]:
        pass


async def test_a_listening_replica_learns_of_a_pause_and_of_its_end(
    backend: PostgresBackend, other: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_job(Job(id="a", type="t", namespace=namespace))
    async with listening(other) as topics:
        await _until(other, namespace, True)
        await backend.pause(Pause(namespace=namespace, type="t"))
        await _until(other, namespace, False)
        assert await other.claim([_demand(namespace)], lease_ttl_s=60) == []
        await backend.resume(namespace, "t")
        # Its streams are woken once it knows.
        while Topic.READY not in await anext(topics):
            pass
        await _until(other, namespace, True)
        [claimed] = await other.claim([_demand(namespace)], lease_ttl_s=60)
    assert claimed.job_id == "a"


async def test_who_pauses_itself_knows_at_once(backend: PostgresBackend, namespace: str) -> None:
    await backend.enqueue_job(Job(id="a", type="t", namespace=namespace))
    async with listening(backend):
        for _ in range(50):
            await backend.pause(Pause(namespace=namespace))
            assert await backend.claim([_demand(namespace)], lease_ttl_s=60) == []
            await backend.resume(namespace)
            assert await backend.eligible_for([_demand(namespace)]) == [True]


async def test_a_pause_costs_a_claim_no_statement(dsn: str, namespace: str) -> None:
    async def statements(backend: PostgresBackend, seen: Any) -> list[str]:
        before = len(seen.plans)
        await backend.claim([_demand(namespace)], lease_ttl_s=60)
        return [plan.text.splitlines()[0] for plan in seen.plans[before:]]

    async with watched(dsn, plans="auto") as (backend, seen):
        await backend.enqueue_job(Job(id="a", type="t", namespace=namespace))
        async with listening(backend):
            await backend.pause(Pause(namespace="elsewhere"))
            open_to_all = [text for text in await statements(backend, seen) if "Takes" in text]
            await backend.pause(Pause(namespace=namespace))
            assert [t for t in await statements(backend, seen) if "Takes" in t] == []
    assert len(open_to_all) == 1


async def test_whoever_reads_first_that_a_pause_is_over_tells_the_streams(
    backend: PostgresBackend, dsn: str, namespace: str
) -> None:
    """Whoever ended it died before it could tell, and a claim looks before the pulse does."""

    async def never(delay_s: float) -> None:
        await asyncio.Event().wait()

    await backend.pause(Pause(namespace=namespace))
    other = await PostgresBackend.open(dsn, pooler=True, sleep=never)
    async with listening(other) as topics, asyncio.timeout(DEADLINE_S):
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await connection.execute("DELETE FROM queue_operator.pause")
        await other._arrivals.catch_up(thorough=True)
        assert (await anext(topics))[Topic.READY] is None
    await other.close()
