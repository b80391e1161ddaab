"""Checkpoints that meet the end of their job."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.locking import until_waiting

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import CheckpointReport
from queue_operator.domain.job import Assignment, Demand
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
_HOLD = """
SELECT FROM queue_operator.lease JOIN queue_operator.job USING (job_no)
WHERE job.id = %s FOR NO KEY UPDATE OF lease
"""


def report(job: Assignment) -> CheckpointReport:
    return CheckpointReport(
        job_id=job.job_id, token=job.token, namespace=job.namespace, number=1, data=b"x"
    )


@pytest.mark.parametrize("event", [Event.COMPLETE, Event.LOSE])
async def test_a_checkpoint_that_is_stored_while_its_job_ends_is_not_left_behind(
    backend: PostgresBackend, dsn: str, namespace: str, ask: Ask, running: Assignment, event: Event
) -> None:
    """The statement that ends the job was begun before the checkpoint was there."""
    outcome = Outcome(running.job_id, event, namespace=namespace, token=running.token)
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute(_HOLD, [running.job_id])
        storing = asyncio.create_task(backend.store_checkpoints([report(running)]))
        await until_waiting(dsn, 1)
        ending = asyncio.create_task(backend.settle([outcome]))
        await until_waiting(dsn, 2)
    [stored] = await storing
    [settled] = await ending
    assert (stored.error, settled.error) == (None, None)
    kept = await ask(
        "SELECT count(*) FROM checkpoint JOIN job USING (job_no) WHERE id = %s", running.job_id
    )
    assert kept == [(int(settled.state is not JobState.COMPLETED),)]
    if settled.state is not JobState.COMPLETED:
        demand = Demand(assignee_id="worker-2", limit=1, namespace=namespace)
        [again] = await backend.claim([demand], lease_ttl_s=60)
        assert again.checkpoint == b"x"


async def test_a_checkpoint_whose_job_is_lost_meanwhile_is_stored(
    backend: PostgresBackend, dsn: str, namespace: str, running: Assignment
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute(_HOLD, [running.job_id])
        losing = asyncio.create_task(
            backend.settle(
                [Outcome(running.job_id, Event.LOSE, namespace=namespace, token=running.token)]
            )
        )
        await until_waiting(dsn, 1)
        storing = asyncio.create_task(backend.store_checkpoints([report(running)]))
        await until_waiting(dsn, 2)
    assert [settled.state for settled in await losing] == [JobState.UNKNOWN_RETRY]
    assert [stored.error for stored in await storing] == [None]
    demand = Demand(assignee_id="worker-2", limit=1, namespace=namespace)
    [again] = await backend.claim([demand], lease_ttl_s=60)
    assert again.checkpoint == b"x"
