"""Log lines that meet the deletion of their job."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.integration.postgres.locking import until_waiting

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import LogLine, LogReport
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
_HOLD = """
SELECT FROM queue_operator.final JOIN queue_operator.job USING (job_no)
WHERE job.id = %s FOR UPDATE OF final
"""


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("first", ["lines", "delete"])
async def test_lines_that_come_while_their_job_is_deleted_are_not_left_behind(
    backend: PostgresBackend, dsn: str, namespace: str, ask: Ask, first: str, attempts: int
) -> None:
    """Of the last attempt, and of one before it."""
    job = Job(id=uuid4().hex, type="mail", namespace=namespace)
    await backend.enqueue_job(job)
    demand = Demand(assignee_id="worker", limit=1, namespace=namespace)
    tokens = []
    for attempt in range(attempts):
        [claimed] = await backend.claim([demand], lease_ttl_s=60)
        tokens.append(claimed.token)
        last = attempt == attempts - 1
        event, error = (Event.COMPLETE, None) if last else (Event.FAIL, ErrorInfo("boom"))
        outcome = Outcome(job.id, event, namespace=namespace, token=claimed.token, error=error)
        await backend.settle([outcome])
    line = LogLine(number=1, at=datetime.now(UTC), level="INFO", message="late")
    report = LogReport(job_id=job.id, token=tokens[0], namespace=namespace, lines=(line,))
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "lines": lambda: backend.append_logs([report]),
        "delete": lambda: backend.delete_jobs([], [job.id], namespace=namespace),
    }
    second = "delete" if first == "lines" else "lines"
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute(_HOLD, [job.id])
        running = [asyncio.ensure_future(calls[first]())]
        await until_waiting(dsn, 1)
        running.append(asyncio.ensure_future(calls[second]()))
        await until_waiting(dsn, 2)
    await asyncio.gather(*running)
    orphans = "SELECT count(*) FROM log_chunk WHERE job_no NOT IN (SELECT job_no FROM job)"
    assert await ask(orphans) == [(0,)]
