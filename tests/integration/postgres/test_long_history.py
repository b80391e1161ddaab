"""What is asked of many finished jobs costs what is asked for, however many others there are.

Nothing is timed here: what a call reads is counted by the server, in pages.
"""

import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
import pytest
from tests.integration.postgres.history import add_completed, pretend
from tests.integration.postgres.lengths import rounds
from tests.integration.postgres.watching import watched

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.domain.errors import InvalidTransition, Unavailable
from queue_operator.domain.job import Job
from queue_operator.testing.clauses import proves

SHORT, LONG = 2_000, rounds(short=200_000, long=10_000_000)
# What the planner is to believe where there are fewer.
MANY = 10_000_000
SPACE = "default"
TAG = "tag"
STANDING = 20
PART = 1_000_000
SMALL = 50
NewDatabase = Callable[[], str]


@asynccontextmanager
async def held(dsn: str, statement: LiteralString, **given: Any) -> AsyncIterator[None]:
    """Rows are locked by somebody else."""
    options = "-c search_path=queue_operator"
    async with await psycopg.AsyncConnection.connect(dsn, options=options) as other:
        await other.execute(statement, given)
        yield
        await other.rollback()


async def history(dsn: str, jobs: int) -> None:
    await migrate(dsn)
    for first in range(0, jobs, PART):
        add_completed(dsn, min(PART, jobs - first), namespace=SPACE, tag=TAG)
    if jobs >= LONG:
        pretend(dsn, MANY // jobs)


async def add_standing(backend: PostgresBackend) -> set[str]:
    """Some that wait, of which one is delayed and two run."""
    jobs = [Job(id=f"new-{n}", type="t", tags=frozenset({TAG})) for n in range(STANDING)]
    await backend.enqueue_jobs(jobs)
    delayed = Job(id="later", type="t", tags=frozenset({TAG}), delay_s=600.0)
    await backend.enqueue_job(delayed)
    assert len(await backend.dequeue_jobs("w", [TAG], 2)) == 2
    return {delayed.id, *(job.id for job in jobs)}


async def delete_all(backend: PostgresBackend, call: str) -> int:
    if call == "delete":
        return await backend.delete_jobs([TAG], [])
    return await backend.cleanup_expired_jobs(60.0)


@dataclass(frozen=True, slots=True)
class Looked:
    """How many pages and rows the calls look at, and what they did."""

    refused: int
    cleaned: int
    cancelled: int
    cancelled_rows: int
    told: str


async def look(dsn: str, jobs: int) -> Looked:
    """At a deletion that is refused, a cleanup of a small namespace, and a cancel by tags."""
    await migrate(dsn)
    add_completed(dsn, SMALL, namespace="small", tag=TAG)
    await history(dsn, jobs)
    async with watched(dsn, plans="auto") as (backend, seen):
        await add_standing(backend)
        seen.clear()
        with pytest.raises(InvalidTransition):
            await backend.delete_jobs([TAG], [])
        refused = seen.pages
        seen.clear()
        assert await backend.cleanup_expired_jobs(60.0, namespace="small") == SMALL
        cleaned = seen.pages
        assert (await backend.get_job_stats([TAG])).completed_jobs == jobs
        seen.clear()
        answer = await backend.cancel_jobs([TAG], [])
        assert len(answer.cancelled_job_ids) == STANDING + 1
        assert len(answer.unknown_job_ids) == jobs
        return Looked(refused, cleaned, seen.pages, seen.rows, str(seen))


@proves(
    "queue-api.CancelJobs.expect.5",
    "queue-api.CleanupExpiredJobs.expect.3",
    "queue-api.DeleteJobs.expect.5",
)
async def test_beside_many_finished_jobs_a_call_reads_what_it_answers_or_changes(
    new_database: NewDatabase,
) -> None:
    few, many = await look(new_database(), SHORT), await look(new_database(), LONG)
    assert many.refused <= few.refused + 100
    assert many.cleaned <= few.cleaned + 200
    # Of each job that had ended its id is told, which lies in an order: there are dozens to a page.
    told = LONG - SHORT
    assert many.cancelled - few.cancelled <= told / 10, many.told
    assert many.cancelled_rows - few.cancelled_rows <= told + 100, many.told


async def test_a_cancel_by_tags_waits_for_nobody_who_has_what_has_ended(
    new_database: NewDatabase,
) -> None:
    dsn = new_database()
    await history(dsn, SHORT)
    backend = await PostgresBackend.open(dsn, statement_timeout_s=1.0)
    standing = await add_standing(backend)
    async with held(dsn, "SELECT FROM final FOR UPDATE"):
        answer = await backend.cancel_jobs([TAG], [])
    assert set(answer.cancelled_job_ids) == standing
    assert len(set(answer.unknown_job_ids)) == SHORT
    await backend.close()


@pytest.mark.parametrize("call", ["delete", "cleanup"])
async def test_what_deletes_many_looks_at_each_of_them_equally_often(
    new_database: NewDatabase, call: str
) -> None:
    """The rows that it has deleted so far are not in its way."""
    looked = []
    for jobs in (5_000, 20_000):
        dsn = new_database()
        await migrate(dsn)
        add_completed(dsn, jobs, namespace=SPACE, tag=TAG, shuffled=True)
        async with watched(dsn, plans="auto") as (backend, seen):
            assert await delete_all(backend, call) == jobs
            looked.append(seen.pages / jobs)
    assert looked[1] <= 1.2 * looked[0]


@pytest.mark.parametrize("call", ["delete", "cleanup"])
async def test_what_deletes_many_keeps_none_of_them_in_memory(
    new_database: NewDatabase, call: str
) -> None:
    jobs = 30_000
    dsn = new_database()
    await history(dsn, jobs)
    backend = await PostgresBackend.open(dsn)
    await backend.get_job_stats([TAG])
    tracemalloc.start()
    try:
        assert await delete_all(backend, call) == jobs
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    await backend.close()
    # A number alone takes 32 bytes.
    assert peak < 30 * jobs


@proves("backend-api.CleanupExpiredJobs.post.2", "backend-api.DeleteJobs.post.6")
@pytest.mark.parametrize("call", ["delete", "cleanup"])
async def test_what_deletes_many_deletes_all_or_none(new_database: NewDatabase, call: str) -> None:
    dsn = new_database()
    await history(dsn, 3_000)
    backend = await PostgresBackend.open(dsn, statement_timeout_s=1.0)
    newest: LiteralString = "SELECT FROM final ORDER BY job_no DESC LIMIT 1 FOR UPDATE"
    async with held(dsn, newest):
        with pytest.raises(Unavailable):
            await delete_all(backend, call)
    assert (await backend.get_job_stats([TAG])).completed_jobs == 3_000
    await backend.close()
