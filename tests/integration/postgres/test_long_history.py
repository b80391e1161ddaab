"""What is asked of many finished jobs costs what is asked for, however many others there are.

Nothing is timed here: what a call reads is counted by the server, in pages.
"""

import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, LiteralString

import psycopg
import pytest
from tests.integration.postgres.history import add_completed
from tests.integration.postgres.watching import Watched, watched

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.domain.errors import InvalidTransition, Unavailable
from queue_operator.domain.job import Job

SHORT, LONG = 2_000, 200_000
SPACE = "default"
TAG = "tag"
STANDING = 20
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
    add_completed(dsn, jobs, namespace=SPACE, tag=TAG)


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


async def growth(
    new_database: NewDatabase, call: Callable[[PostgresBackend], Any]
) -> tuple[Watched, Watched]:
    """What a call looks at beside few finished jobs, and beside many."""
    looked = []
    for jobs in (SHORT, LONG):
        dsn = new_database()
        await history(dsn, jobs)
        async with watched(dsn, plans="auto") as (backend, seen):
            await add_standing(backend)
            seen.clear()
            await call(backend)
            looked.append(seen)
    return looked[0], looked[1]


async def test_a_cancel_by_tags_reads_of_what_has_ended_only_the_ids_it_tells(
    new_database: NewDatabase,
) -> None:
    async def cancel(backend: PostgresBackend) -> None:
        answer = await backend.cancel_jobs([TAG], [])
        assert len(answer.cancelled_job_ids) == STANDING + 1

    few, many = await growth(new_database, cancel)
    told = LONG - SHORT
    # The ids and an index, both in their order: dozens to a page.
    assert many.pages - few.pages <= told / 10, str(many)
    assert many.rows - few.rows <= told + 100, str(many)


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


async def test_a_delete_by_tags_is_refused_without_a_look_at_what_has_ended(
    new_database: NewDatabase,
) -> None:
    async def delete(backend: PostgresBackend) -> None:
        with pytest.raises(InvalidTransition):
            await backend.delete_jobs([TAG], [])

    few, many = await growth(new_database, delete)
    assert many.pages <= few.pages + 100, str(many)


async def test_a_cleanup_looks_at_no_other_namespace(new_database: NewDatabase) -> None:
    async def clean_up(backend: PostgresBackend) -> None:
        assert await backend.cleanup_expired_jobs(60.0, namespace="small") == 50

    looked = []
    for jobs in (SHORT, LONG):
        dsn = new_database()
        await history(dsn, jobs)
        add_completed(dsn, 50, namespace="small", tag=TAG)
        async with watched(dsn, plans="auto") as (backend, seen):
            await clean_up(backend)
            looked.append(seen.pages)
            assert (await backend.get_job_stats([TAG])).completed_jobs == jobs
    assert looked[1] <= looked[0] + 200


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
