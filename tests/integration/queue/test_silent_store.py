"""Calls on a queue whose store takes requests and does not answer: each ends when the time of a
statement is over.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.postgres.proxy import proxied
from tests.waiting import take_jobs

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import borrowed
from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.queue.protocol import Queue
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.clauses import proves

STATEMENT_S = 0.3
ENOUGH_S = STATEMENT_S + 0.5 + 2.0
"""Half a second to hear of it from the server, and time to compute on a busy machine; less than
what a statement has where nobody says otherwise.
"""
NEVER_S = 3600.0
AT_ONCE = 20
"""More lines than calls, and what goes on besides."""

Call = Callable[[Queue, str], Awaitable[object]]

WRITES: Mapping[str, Call] = {
    "enqueue_job": lambda queue, _: queue.enqueue_job(Job(id="new", type="t")),
    "enqueue_jobs": lambda queue, _: queue.enqueue_jobs([Job(id="newer", type="t")]),
    "complete_job": lambda queue, held: queue.complete_job(held, b""),
    "fail_job": lambda queue, held: queue.fail_job(held, "no"),
    "stop_job": lambda queue, held: queue.stop_job(held, "no"),
    "stop_job_with_retry": lambda queue, held: queue.stop_job_with_retry(held, "no"),
    "mark_job_unknown_stopped": lambda queue, held: queue.mark_job_unknown_stopped(held, "no"),
    "acknowledge_cancellation": lambda queue, held: queue.acknowledge_cancellation(held, True),
    "cancel_jobs": lambda queue, held: queue.cancel_jobs([], [held]),
    "mark_worker_unresponsive": lambda queue, _: queue.mark_worker_unresponsive("w"),
    "cleanup_expired_jobs": lambda queue, _: queue.cleanup_expired_jobs(1.0),
    "reset_running_jobs": lambda queue, _: queue.reset_running_jobs(),
    "delete_jobs": lambda queue, held: queue.delete_jobs([], [held]),
}
READS: Mapping[str, Call] = {
    "get_job": lambda queue, held: queue.get_job(held),
    "get_job_stats": lambda queue, _: queue.get_job_stats([]),
}


@asynccontextmanager
async def serving(backend: PostgresBackend | SqliteBackend) -> AsyncIterator[QueueService]:
    """Nothing happens by itself: what is asked is asked by the test."""
    queue = QueueService(backend, QueueSettings(lease_ttl_s=NEVER_S, idle_poll_s=NEVER_S))
    await queue.start()
    try:
        yield queue
    finally:
        await queue.close()


async def _held(queue: QueueService) -> str:
    async with queue.stream_jobs("w", [], 1) as stream:
        await queue.enqueue_job(Job(id="held", type="t"))
        [job] = await take_jobs(stream, 1)
    return job.id


async def _took_s(call: Awaitable[object]) -> float:
    begun_s = time.monotonic()
    with pytest.raises(Unavailable):
        await call
    return time.monotonic() - begun_s


async def _too_long(queue: QueueService, calls: Mapping[str, Call], held: str) -> dict[str, float]:
    """Those that did not end in time, all at once. The test waits for none of them for ever."""
    async with asyncio.timeout(30):
        took = await asyncio.gather(*(_took_s(call(queue, held)) for call in calls.values()))
    return {name: s for name, s in zip(calls, took, strict=True) if s > ENOUGH_S}


@proves("queue-api.ErrorHandling.rule.5")
async def test_calls_on_a_silent_line_end_with_the_time_of_a_statement(dsn: str) -> None:
    async with proxied(dsn) as (proxy, address):
        backend = await PostgresBackend.open(
            address, pool_size=AT_ONCE, connect_timeout_s=10.0, statement_timeout_s=STATEMENT_S
        )
        async with serving(backend) as queue:
            held = await _held(queue)
            # Each finds a line that was open before.
            async with AsyncExitStack() as lines:
                for _ in range(AT_ONCE):
                    await lines.enter_async_context(borrowed(backend._pool))
            proxy.fall_silent()
            late = await _too_long(queue, {**WRITES, **READS}, held)
            proxy.speak()
    assert late == {}


@proves("queue-api.ErrorHandling.rule.5")
async def test_changes_of_a_file_that_another_holds_end_with_the_time_of_a_statement(
    tmp_path: Path,
) -> None:
    path = tmp_path / "queue.db"
    backend = await SqliteBackend.open(path, busy_timeout_s=STATEMENT_S)
    async with serving(backend) as queue:
        held = await _held(queue)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        late = {
            name: late[name]
            for name, call in WRITES.items()
            if (late := await _too_long(queue, {name: call}, held))
        }
        # Who only reads waits for nobody.
        assert (await queue.get_job_stats([])).running_jobs == 1
        other.rollback()
        other.close()
    assert late == {}
