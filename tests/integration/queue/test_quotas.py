"""Quotas of replicas that share a PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.errors import QuotaExceeded
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import Quota, QuotaSettings
from queue_operator.testing.clauses import proves

NewJobs = Callable[..., list[Job]]
NewSpec = Callable[..., StreamSpec]
Replicas = Callable[..., Any]


@pytest.fixture
async def replicas(dsn: str) -> AsyncIterator[Replicas]:
    async with AsyncExitStack() as stack:

        async def open_two(**quota: Any) -> list[QueueService]:
            queues = []
            for _ in range(2):
                quotas = QuotaSettings(default=Quota(**quota))
                queues.append(QueueService(await PostgresBackend.open(dsn), quotas=quotas))
                stack.push_async_callback(queues[-1].close)
                await queues[-1].start()
            return queues

        yield open_two


@proves("external-api.QuotaError.expect.2")
async def test_a_rate_is_shared(replicas: Replicas, new_jobs: NewJobs) -> None:
    one, other = await replicas(submissions_per_s=0.001, submissions_burst=20)
    jobs = [new_jobs()[0] for _ in range(40)]
    answers = await asyncio.gather(
        *((one, other)[n % 2].enqueue_job(job) for n, job in enumerate(jobs)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, str) for answer in answers) == 20
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 20


async def test_what_another_replica_stored_counts(replicas: Replicas, new_jobs: NewJobs) -> None:
    one, other = await replicas(pending_jobs=5)
    await one.enqueue_jobs([new_jobs()[0] for _ in range(4)])
    answers = await other.submit([new_jobs()[0] for _ in range(3)], atomic=False)
    assert [answer.error is None for answer in answers] == [True, False, False]


async def test_what_runs_at_another_replica_counts(
    replicas: Replicas, new_jobs: NewJobs, new_spec: NewSpec
) -> None:
    """Once it has ended there, the next one comes here."""
    one, other = await replicas(running_jobs=2)
    first = await one.open_stream(new_spec(5))
    await one.enqueue_jobs([new_jobs()[0] for _ in range(4)])
    held: list[Outcome] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(held) < 2:
            push = await first.next()
            assert push is not None
            first.delivered(push)
            held += [
                Outcome(a.job_id, Event.COMPLETE, a.namespace, a.token) for a in push.assignments
            ]
        assert len(held) == 2
        second = await other.open_stream(new_spec(5))
        await first.settle(held[:1])
        await first.close()
        push = await second.next()
    assert push is not None
    assert len(push.assignments) == 1
