"""Jobs of custom resources that were deleted, and are asked for again."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.mirror import KEPT_S, MirrorStore
from queue_operator.backends.sql import load
from queue_operator.domain.errors import JobNotFound, Unavailable
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.states import JobState

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
DELETE = load("queue_operator.backends.postgres", "delete")


def a_job(namespace: str) -> Job:
    uid = str(uuid.uuid4())
    resource = ResourceRef("cluster-1", uid, f"mail-{uid[:4]}")
    return Job(id=uid, type="mail", namespace=namespace, resource=resource)


async def ended(backend: PostgresBackend, job: Job) -> None:
    await backend.take_in([job])
    await backend.dequeue_jobs("worker", [], 1, namespace=job.namespace)
    await backend.complete_job(job.id, b"done", namespace=job.namespace)


async def by_id(backend: PostgresBackend, job: Job) -> int:
    return await backend.delete_jobs([], [job.id], namespace=job.namespace)


async def by_tags(backend: PostgresBackend, job: Job) -> int:
    return await backend.delete_jobs(["a"], [], namespace=job.namespace)


async def by_age(backend: PostgresBackend, job: Job) -> int:
    return await backend.cleanup_expired_jobs(1e-6, namespace=job.namespace)


@pytest.mark.parametrize("delete", [by_id, by_tags, by_age])
async def test_however_it_was_deleted_it_is_not_stored_again_and_its_end_is_told(
    backend: PostgresBackend,
    namespace: str,
    delete: Callable[[PostgresBackend, Job], Awaitable[int]],
) -> None:
    job, new = replace(a_job(namespace), tags=frozenset({"a"})), a_job(namespace)
    await ended(backend, job)
    stored = await backend.get_job(job.id, namespace=namespace)
    assert await delete(backend, job) == 1
    for _ in range(2):
        taken = await backend.take_in([job, new])
        told = taken.ended[job.id]
        assert (told.state, told.transition) == (JobState.COMPLETED, stored.transition)
        assert (told.finalized_at, told.created_at) == (stored.finalized_at, stored.created_at)
        assert (told.attempt, told.resource) == (1, job.resource)
        assert not taken.refused
        with pytest.raises(JobNotFound):
            await backend.get_job(job.id, namespace=namespace)
    assert (await backend.get_job(new.id, namespace=namespace)).state is JobState.INITIAL_PENDING


async def test_jobs_of_other_doors_leave_none(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    job = replace(a_job(namespace), resource=None)
    await backend.enqueue_job(job)
    await backend.cancel_jobs([], [job.id], namespace=namespace)
    assert await by_id(backend, job) == 1
    assert await ask("SELECT 1 FROM tombstone WHERE uid = %s", job.id) == []
    assert await backend.enqueue_job(job) == job.id


async def test_one_that_is_deleted_while_it_is_taken_in_again_is_not_stored(
    backend: PostgresBackend,
    namespace: str,
    ask: Ask,
    somebody: psycopg.AsyncConnection[tuple[Any, ...]],
) -> None:
    job = a_job(namespace)
    await ended(backend, job)
    [(number,)] = await ask("SELECT job_no FROM job WHERE id = %s", job.id)
    await somebody.execute(DELETE, {"job_nos": [number]})
    taking = asyncio.create_task(backend.take_in([job]))
    await waits(ask)
    await somebody.commit()
    with pytest.raises(Unavailable, match="deleted while"):
        await taking
    assert job.id in (await backend.take_in([job])).ended
    with pytest.raises(JobNotFound):
        await backend.get_job(job.id, namespace=namespace)


async def waits(ask: Ask) -> None:
    """Until somebody waits for a lock of a transaction."""
    async with asyncio.timeout(DEADLINE_S):
        while not await ask(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event = 'transactionid'"
        ):
            pass


async def test_they_are_kept_for_as_long_as_backups_are(
    backend: PostgresBackend, namespace: str, ask: Ask, pool: Pool
) -> None:
    old, recent = a_job(namespace), a_job(namespace)
    for job, age_s in ((old, KEPT_S + 1), (recent, KEPT_S - 60)):
        await ended(backend, job)
        await by_id(backend, job)
        await ask(
            "UPDATE tombstone SET deleted_at = now() - make_interval(secs => %s) WHERE uid = %s",
            age_s,
            job.id,
        )
    await MirrorStore(pool).prune()
    taken = await backend.take_in([old, recent])
    assert list(taken.new) == [old.id]
    assert list(taken.ended) == [recent.id]
