"""Children that are spawned while their parent ends, or by two at once."""

import asyncio

import psycopg
import pytest
from tests.integration.postgres.locking import until_waiting

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import SpawnRequest
from queue_operator.domain.errors import StaleLease
from queue_operator.domain.job import Assignment, Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event

_HOLD = """
SELECT FROM queue_operator.lease JOIN queue_operator.job USING (job_no)
WHERE job.id = %s FOR UPDATE OF lease
"""


@pytest.fixture
def parent(running: Assignment) -> Assignment:
    return running


def child(parent: Assignment, key: str = "1") -> SpawnRequest:
    return SpawnRequest(
        parent_id=parent.job_id,
        token=parent.token,
        namespace=parent.namespace,
        key=key,
        job=Job(id="", type="child"),
    )


@pytest.mark.parametrize("event", [Event.FAIL, Event.COMPLETE, Event.LOSE])
async def test_a_parent_that_ends_meanwhile_spawns_nothing(
    backend: PostgresBackend, dsn: str, namespace: str, parent: Assignment, event: Event
) -> None:
    """One that is only lost keeps its token, and with it its right."""
    error = ErrorInfo("boom") if event is Event.FAIL else None
    outcome = Outcome(
        parent.job_id, event, namespace=namespace, token=parent.token, result=None, error=error
    )
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute(_HOLD, [parent.job_id])
        ending = asyncio.create_task(backend.settle([outcome]))
        await until_waiting(dsn, 1)
        spawning = asyncio.create_task(backend.spawn([child(parent)]))
        await until_waiting(dsn, 2)
    assert [settled.error for settled in await ending] == [None]
    [answer] = await spawning
    stats = await backend.get_job_stats([], namespace=namespace)
    if event is Event.LOSE:
        assert (answer.error, stats.total_jobs) == (None, 2)
    else:
        assert isinstance(answer.error, StaleLease)
        assert stats.total_jobs == 1


async def test_a_parent_does_not_end_before_its_children_are_stored(
    backend: PostgresBackend, dsn: str, namespace: str, parent: Assignment
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        # Stands in the way of new jobs, after the parent was looked at.
        await holder.execute("LOCK TABLE queue_operator.job IN SHARE MODE")
        spawning = asyncio.create_task(backend.spawn([child(parent)]))
        await until_waiting(dsn, 1)
        outcome = Outcome(parent.job_id, Event.COMPLETE, namespace=namespace, token=parent.token)
        ending = asyncio.create_task(backend.settle([outcome]))
        await until_waiting(dsn, 2)
    [answer] = await spawning
    assert answer.error is None
    [settled] = await ending
    assert settled.error is None
    assert (await backend.get_job(answer.job_id, namespace=namespace)).spawned_by == parent.job_id


async def test_a_child_that_many_ask_for_at_once_is_one(
    backend: PostgresBackend, namespace: str, parent: Assignment
) -> None:
    asked = [backend.spawn([child(parent, str(n % 3))]) for n in range(24)]
    answers = [answer for [answer] in await asyncio.gather(*asked)]
    assert [answer.error for answer in answers] == [None] * 24
    assert len({answer.job_id for answer in answers}) == 3
    assert sum(not answer.duplicate for answer in answers) == 3
    assert (await backend.get_job_stats([], namespace=namespace)).total_jobs == 4
