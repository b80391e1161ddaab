"""Checkpoints that meet the end of their job."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.integration.postgres import locking

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import CheckpointReport
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
DEADLINE_S = 30.0
_HOLD = """
SELECT FROM queue_operator.lease JOIN queue_operator.job USING (job_no)
WHERE job.id = %s FOR NO KEY UPDATE OF lease
"""


async def until_waiting(dsn: str, count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await locking.until_waiting(dsn, count)


async def claimed(backend: PostgresBackend, namespace: str) -> Assignment:
    await backend.enqueue_job(Job(id=uuid4().hex, type="mail", namespace=namespace))
    demand = Demand(assignee_id="worker", limit=1, namespace=namespace)
    [assignment] = await backend.claim([demand], lease_ttl_s=60)
    return assignment


def report(job: Assignment) -> CheckpointReport:
    return CheckpointReport(
        job_id=job.job_id, token=job.token, namespace=job.namespace, number=1, data=b"x"
    )


@pytest.mark.parametrize("event", [Event.COMPLETE, Event.LOSE])
async def test_a_checkpoint_that_is_stored_while_its_job_ends_is_not_left_behind(
    backend: PostgresBackend, dsn: str, namespace: str, ask: Ask, event: Event
) -> None:
    """The statement that ends the job was begun before the checkpoint was there."""
    job = await claimed(backend, namespace)
    outcome = Outcome(job.job_id, event, namespace=namespace, token=job.token)
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute(_HOLD, [job.job_id])
        storing = asyncio.create_task(backend.store_checkpoints([report(job)]))
        await until_waiting(dsn, 1)
        ending = asyncio.create_task(backend.settle([outcome]))
        await until_waiting(dsn, 2)
    [stored] = await storing
    [settled] = await ending
    assert (stored.error, settled.error) == (None, None)
    kept = await ask(
        "SELECT count(*) FROM checkpoint JOIN job USING (job_no) WHERE id = %s", job[0]
    )
    assert kept == [(int(settled.state is not JobState.COMPLETED),)]
    if settled.state is not JobState.COMPLETED:
        demand = Demand(assignee_id="worker-2", limit=1, namespace=namespace)
        [again] = await backend.claim([demand], lease_ttl_s=60)
        assert again.checkpoint == b"x"


async def test_a_checkpoint_whose_job_is_lost_meanwhile_is_stored(
    backend: PostgresBackend, dsn: str, namespace: str
) -> None:
    job = await claimed(backend, namespace)
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute(_HOLD, [job.job_id])
        losing = asyncio.create_task(
            backend.settle([Outcome(job.job_id, Event.LOSE, namespace=namespace, token=job.token)])
        )
        await until_waiting(dsn, 1)
        storing = asyncio.create_task(backend.store_checkpoints([report(job)]))
        await until_waiting(dsn, 2)
    assert [settled.state for settled in await losing] == [JobState.UNKNOWN_RETRY]
    assert [stored.error for stored in await storing] == [None]
    demand = Demand(assignee_id="worker-2", limit=1, namespace=namespace)
    [again] = await backend.claim([demand], lease_ttl_s=60)
    assert again.checkpoint == b"x"
