"""What the guide for administrators of the database says may be done to it."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.contract.store import PostgresStore
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.life import live_a_whole_life

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.protocol import FailureSearch, JobSearch
from queue_operator.devcluster.pgprograms import programs
from queue_operator.domain.errors import StaleLease
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.states import JobState
from queue_operator.testing.driving import a_job, job_in

TTL_S = 60.0


async def told(backend: PostgresBackend, ids: list[str]) -> list[Any]:
    """All that the store says of the jobs."""
    return [
        [await backend.get_job(job_id) for job_id in ids],
        [await backend.get_history(job_id) for job_id in ids],
        await backend.get_job_stats([]),
        await backend.search_jobs(JobSearch()),
        await backend.search_failures(FailureSearch()),
        (await backend.queue_depth()).jobs,
    ]


async def test_old_events_may_be_deleted_and_no_job_is_told_otherwise(
    store: PostgresStore,
) -> None:
    backend = await store.open()
    ids = [(await job_in(backend, state))[0].id for state in JobState]
    before = await told(backend, ids)
    events = await backend.read_events()
    await store.admin.execute("DELETE FROM job_event")
    assert await told(backend, ids) == before
    assert await store.faults() == []
    await backend.enqueue_job(a_job())
    [event] = await backend.read_events(after=events[-1].seq)
    assert event.event == "SUBMIT"


def copied(dsn: str, to: str) -> None:
    """By the tools that every administrator has, while the queue is in use."""
    dump = subprocess.run(
        [programs() / "pg_dump", "--format=custom", f"--dbname={dsn}"],
        capture_output=True,
        check=True,
    )
    subprocess.run(
        [programs() / "pg_restore", "--exit-on-error", f"--dbname={to}"],
        input=dump.stdout,
        check=True,
    )


async def test_a_restored_copy_is_a_queue_that_runs_again_what_ended_since(
    store: PostgresStore, new_database: Callable[[], str]
) -> None:
    backend = await store.open()
    await backend.enqueue_jobs([Job(id=name, type="t") for name in ("ended", "ran", "waited")])
    demand = Demand(assignee_id="w", limit=2)
    first, second = await backend.claim([demand], lease_ttl_s=TTL_S)
    await backend.complete_job(first.job_id, b"r", token=first.token)
    restored_dsn = new_database()
    await asyncio.to_thread(copied, store.dsn, restored_dsn)
    # What came after the copy is gone with the restore, a completion as well as a submission.
    await backend.complete_job(second.job_id, b"r", token=second.token)
    await backend.enqueue_job(Job(id="too late", type="t", idempotency_key="k"))
    admin = await psycopg.AsyncConnection.connect(
        restored_dsn, autocommit=True, options="-c search_path=queue_operator"
    )
    restored = PostgresStore(restored_dsn, admin)
    assert await migrate(restored_dsn) == []
    again = await restored.open()
    assert (await again.get_job(first.job_id)).state is JobState.COMPLETED
    # The gap without sweeps is noticed: the worker gets one TTL to come back with its outcome.
    await restored.age(3600, outage=True)
    assert await again.expire_leases(lease_ttl_s=TTL_S) == []
    await restored.age(2 * TTL_S)
    assert [one.job_id for one in await again.expire_leases(lease_ttl_s=TTL_S)] == [second.job_id]
    jobs = await again.claim([Demand(assignee_id="w", limit=9)], lease_ttl_s=TTL_S)
    assert {job.job_id for job in jobs} == {second.job_id, "waited"}
    with pytest.raises(StaleLease):
        await again.complete_job(second.job_id, b"r", token=second.token)
    # A submitter that is not sure sends again under the same key.
    await again.enqueue_job(Job(id="too late", type="t", idempotency_key="k"))
    await live_a_whole_life(again)
    assert await restored.faults() == []
    await restored.close()


async def test_a_vacuum_full_and_a_reindex_change_nothing(store: PostgresStore) -> None:
    backend = await store.open()
    await live_a_whole_life(backend)
    before = Counter(job.state for job in (await backend.search_jobs(JobSearch())).jobs)
    for table in ("job", "ready", "lease", "final", "job_event", "count_delta"):
        await store.admin.execute(sql.SQL("VACUUM FULL {0}").format(sql.Identifier(table)))
        await store.admin.execute(
            sql.SQL("REINDEX TABLE CONCURRENTLY {0}").format(sql.Identifier(table))
        )
    after = Counter(job.state for job in (await backend.search_jobs(JobSearch())).jobs)
    assert after == before
    assert await store.faults() == []


@pytest.mark.parametrize("count", [1, 60], ids=["inserted", "copied"])
async def test_numbers_that_were_set_back_are_passed_by(
    backend: PostgresBackend, namespace: str, ask: Ask, count: int
) -> None:
    """As after a restore under a running process: the sequence hands out numbers anew."""
    for old in range(2):
        await backend.submit(
            [Job(id=f"old{old}-{n}", type="t", namespace=namespace) for n in range(1100)],
            atomic=True,
        )
    await ask("SELECT setval('job_no_block', 1, false)")
    backend._submission._numbers._free.clear()
    new = [Job(id=f"new-{n}", type="t", namespace=namespace) for n in range(count)]
    assert await backend.enqueue_jobs(new) == [job.id for job in new]
    assert (await backend.get_job_stats([], namespace=namespace)).total_jobs == 2200 + count
