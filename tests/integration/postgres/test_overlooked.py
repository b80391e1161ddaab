"""Waiting jobs that nobody told of are found all the same, and nothing else is."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, LiteralString

import psycopg
import pytest
from tests.integration.postgres.taking import claim

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Job

# A page holds some fifty.
JOBS = 200
TO_AND_FRO = 30


@pytest.fixture
def dsn(own_dsn: str) -> str:
    return own_dsn


@pytest.fixture
async def backend(dsn: str) -> AsyncIterator[PostgresBackend]:
    """It knows of all there is, which is nothing."""
    backend = await PostgresBackend.open(dsn)
    assert await claim(backend) == []
    yield backend
    await backend.close()


async def change(dsn: str, statement: LiteralString, **parameters: Any) -> None:
    async with await psycopg.AsyncConnection.connect(
        dsn, options="-c search_path=queue_operator"
    ) as connection:
        await connection.execute(statement, parameters)


def new_jobs(count: int, **fields: Any) -> list[Job]:
    return [Job(id=f"{n}", type="t", **fields) for n in range(count)]


async def test_a_lane_that_nobody_told_of_is_found_and_logged(
    dsn: str, backend: PostgresBackend, other: PostgresBackend, caplog: pytest.LogCaptureFixture
) -> None:
    await other.enqueue_jobs(new_jobs(3))
    await change(dsn, "DELETE FROM arrival")
    assert await claim(backend) == []
    with caplog.at_level(logging.WARNING):
        await backend.expire_leases(lease_ttl_s=600)
    assert "1 places of which nobody had told" in caplog.text
    assert await claim(backend) == ["0", "1", "2"]
    assert await backend._housekeeping.overlooked.look() == 0


async def test_a_job_before_all_that_is_known_of_its_lane_is_found(
    dsn: str, backend: PostgresBackend
) -> None:
    await backend.enqueue_jobs(new_jobs(10))
    assert await claim(backend, 2) == ["0", "1"]
    earlier = "UPDATE ready SET order_time = order_time - interval '1 hour' FROM job"
    await change(dsn, f"{earlier} WHERE job.job_no = ready.job_no AND job.id = '7'")
    assert await claim(backend, 1) == ["2"]
    assert await backend._housekeeping.overlooked.look() == 1
    assert await claim(backend, 1) == ["7"]


async def test_a_job_that_should_have_become_due_is_found(
    dsn: str, backend: PostgresBackend
) -> None:
    await backend.enqueue_jobs(new_jobs(2, delay_s=3600))
    assert await backend._staging.stage() == []
    await change(
        dsn,
        "UPDATE ready SET eligible_at = now() - interval '2 minutes' FROM job"
        " WHERE job.job_no = ready.job_no AND job.id = '1'",
    )
    assert await backend._staging.stage() == []
    assert await backend._housekeeping.overlooked.look() == 1
    assert len(await backend._staging.stage()) == 1
    await backend._arrivals.catch_up(thorough=True)
    assert await claim(backend) == ["1"]
    assert await backend._housekeeping.overlooked.look() == 0


async def test_a_job_that_waits_for_another_for_long_is_not_taken_for_overlooked(
    dsn: str, backend: PostgresBackend
) -> None:
    await backend.enqueue_job(Job(id="parent", type="t"))
    await backend.enqueue_job(Job(id="child", type="t", depends_on=("parent",)))
    assert await claim(backend) == ["parent"]
    await change(dsn, "UPDATE ready SET eligible_at = now() - interval '2 minutes'")
    assert await backend._staging.stage() == []
    assert await backend._housekeeping.overlooked.look() == 0


async def test_a_round_finds_all_wherever_they_are_stored(
    dsn: str, backend: PostgresBackend, other: PostgresBackend
) -> None:
    tags = [frozenset({f"{n}"}) for n in range(4) for _ in range(JOBS // 4)]
    # A page at a time, and then from the beginning again.
    for turn in range(2):
        ids = [f"{turn}-{n}" for n in range(JOBS)]
        jobs = [Job(id=one, type="t", tags=its) for one, its in zip(ids, tags, strict=True)]
        await other.enqueue_jobs(jobs)
        await change(dsn, "DELETE FROM arrival")
        found = [await backend._housekeeping.overlooked.look(pages=1) for _ in range(JOBS)]
        assert sum(found) >= 4
        assert set(await claim(backend, JOBS)) == set(ids)


async def test_what_is_submitted_and_claimed_meanwhile_is_not_taken_for_overlooked(
    backend: PostgresBackend, other: PostgresBackend
) -> None:
    done, found = list[str](), 0
    submitted = asyncio.Event()

    async def submit() -> None:
        for turn in range(TO_AND_FRO):
            await other.enqueue_jobs([Job(id=f"{turn}-{n}", type="t") for n in range(20)])
        submitted.set()

    async def take(store: PostgresBackend) -> None:
        while len(done) < 20 * TO_AND_FRO:
            done.extend(await claim(store, 7))

    async def look() -> None:
        nonlocal found
        while not submitted.is_set() or len(done) < 20 * TO_AND_FRO:
            found += await backend._housekeeping.overlooked.look()

    async with asyncio.TaskGroup() as group:
        for work in (submit(), take(backend), take(other), look()):
            group.create_task(work)
    assert found == 0
    assert len(done) == len(set(done))
