"""Connections that break: nothing is lost, and everything goes on by itself."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from tests.waiting import DEADLINE_S, take_jobs

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Job
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.queue.protocol import JobBatches, Stream, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves

NewJobs = Callable[..., list[Job]]
OpenQueue = Callable[..., Awaitable[QueueService]]
KILL_OTHERS = (
    "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def work(stream: Stream, done: set[str], enough: asyncio.Event, all: int) -> None:
    """Completes what comes; an outcome that is not answered as stored fails the test."""
    while (push := await stream.next()) is not None:
        stream.delivered(push)
        jobs = push.assignments
        await stream.heartbeat([Held(job.job_id, job.token, job.namespace) for job in jobs])
        answers = await stream.settle(
            [
                Outcome(job.job_id, Event.COMPLETE, job.namespace, job.token, worker_plane=True)
                for job in jobs
            ]
        )
        for answer in answers:
            if answer.error is None:
                assert answer.state is JobState.COMPLETED
                done.add(answer.job_id)
        if len(done) >= all:
            enough.set()


async def test_every_connection_may_be_killed_at_any_time(
    open_queue: OpenQueue, dsn: str, namespace: str, new_jobs: NewJobs
) -> None:
    queue = await open_queue(QueueSettings(lease_ttl_s=1.0, claim_batch=20))
    jobs = new_jobs(600)
    await queue.enqueue_jobs(jobs)
    done: set[str] = set()
    enough = asyncio.Event()
    workers = []
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as killer:
        for _ in range(2):
            spec = StreamSpec(
                assignee_id=uuid.uuid4().hex, capacity=10, namespace=namespace, worker_name="w"
            )
            stream = await queue.open_stream(spec)
            workers.append(asyncio.create_task(work(stream, done, enough, len(jobs))))
        async with asyncio.timeout(DEADLINE_S):
            for share in range(1, 6):
                while len(done) < share * 100:
                    await killer.execute("SELECT 1")
                await killer.execute(KILL_OTHERS)
            await enough.wait()
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)
    assert done == {job.id for job in jobs}
    stats = await queue.get_job_stats([], namespace=namespace)
    assert (stats.completed_jobs, stats.total_jobs) == (600, 600)


@proves("queue-api.Replicas.rule.7")
async def test_signals_and_claims_come_back_after_the_connections_were_killed(
    open_queue: OpenQueue, dsn: str, namespace: str, new_jobs: NewJobs
) -> None:
    here, there = await open_queue(), await open_queue()
    spec = StreamSpec(assignee_id=uuid.uuid4().hex, capacity=1, namespace=namespace)
    stream = await here.open_stream(spec)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as killer:
        await killer.execute(KILL_OTHERS)
    job = new_jobs()[0]
    async with asyncio.timeout(DEADLINE_S):
        await there.enqueue_job(job)
        push = await stream.next()
        assert push is not None
        stream.delivered(push)
        await there.cancel_jobs([], [job.id], namespace=namespace)
        while not (push is not None and push.cancels):
            push = await stream.next()
    assert push.cancels[0].job_id == job.id


@asynccontextmanager
async def away(dsn: str, admin_dsn: str) -> AsyncIterator[None]:
    """Meanwhile the database lets nobody in."""
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    database = str(conninfo_to_dict(dsn)["dbname"])
    name = sql.Identifier(database)
    async with await psycopg.AsyncConnection.connect(admin_dsn, autocommit=True) as admin:
        await admin.execute(allow.format(name, sql.SQL("false")))
        try:
            await admin.execute(
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                " WHERE datname = %s",
                (database,),
            )
            yield
        finally:
            await admin.execute(allow.format(name, sql.SQL("true")))


TTL_S = 2.0
CALL_S = 1.0
"""What a call may take that asks for a connection in vain."""
SLACK_S = 1.5
"""What a slow machine may add. Whoever waited for the store would wait for minutes."""


async def closable(dsn: str) -> QueueService:
    backend = await PostgresBackend.open(dsn, connect_timeout_s=CALL_S)
    queue = QueueService(backend, QueueSettings(lease_ttl_s=TTL_S))
    await queue.start()
    return queue


async def undelivered(queue: QueueService, jobs: list[Job], namespace: str) -> JobBatches:
    """A stream that was given the jobs, none of which its consumer took."""
    stream = queue.stream_jobs("deaf", [], len(jobs), namespace=namespace)
    await stream.__aenter__()
    await queue.enqueue_jobs(jobs)
    async with asyncio.timeout(DEADLINE_S):
        while queue.usage()[0].busy < len(jobs):
            await queue.ping()
    return stream


async def they_come_back(dsn: str, jobs: list[Job], namespace: str) -> None:
    """With the sweep that finds their leases over: each has lost its first attempt."""
    other = await closable(dsn)
    async with (
        asyncio.timeout(DEADLINE_S),
        other.stream_jobs("other", [], 9, namespace=namespace) as stream,
    ):
        again = await take_jobs(stream, len(jobs))
    await other.close()
    assert sorted((job.id, job.attempt) for job in again) == sorted((job.id, 2) for job in jobs)


@proves("queue-api.Close.expect.3", "queue-api.StreamJobsTermination.then.4")
async def test_a_queue_is_closed_within_a_lease_while_the_store_is_away(
    dsn: str,
    postgres_admin_dsn: str,
    namespace: str,
    new_jobs: NewJobs,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = await closable(dsn)
    jobs = new_jobs(3)
    stream = await undelivered(queue, jobs, namespace)
    async with away(dsn, postgres_admin_dsn):
        begun_s = time.monotonic()
        await queue.close()
        took_s = time.monotonic() - begun_s
    assert took_s < TTL_S + CALL_S + SLACK_S
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    [told] = [line for line in caplog.messages if "go back when their leases end" in line]
    assert told.startswith("3 undelivered jobs of deaf ")
    assert all(job.id in told for job in jobs)
    await they_come_back(dsn, jobs, namespace)


@proves("queue-api.StreamJobsTermination.then.4")
async def test_the_end_of_a_stream_waits_for_a_lease_at_most_while_the_store_is_away(
    dsn: str, postgres_admin_dsn: str, namespace: str, new_jobs: NewJobs
) -> None:
    queue = await closable(dsn)
    jobs = new_jobs(2)
    stream = await undelivered(queue, jobs, namespace)
    async with away(dsn, postgres_admin_dsn):
        begun_s = time.monotonic()
        await stream.aclose()
        took_s = time.monotonic() - begun_s
        # Its process ends before the store is back, so that nothing but the leases is left.
        await queue.close()
    assert took_s < TTL_S + SLACK_S
    await they_come_back(dsn, jobs, namespace)
