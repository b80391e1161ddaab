"""A newer schema under running processes of this release.

The later migrations are the tests' own, in `upgrade/`: there is no later release yet.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.contract.store import PostgresStore
from tests.integration.postgres.processes import running
from tests.programs import Process, finish, line

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.migrate import migrations, read_migrations
from queue_operator.domain.errors import SchemaMismatch
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState

LATER = read_migrations(Path(__file__).with_name("upgrade"))
WIDER, _ = LATER
# Submits, claims, completes, fails, renews, reads and opens sessions until it is told to end;
# what was refused for the moment is tried again with the same arguments. Says a word after
# every tenth round, and in the end what it did.
AT_WORK = """
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import WorkerSession
from queue_operator.domain.errors import DuplicateJob, QueueError
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event

REFUSED = []

async def insist(call, *args, **kwargs):
    for _ in range(100):
        try:
            return await call(*args, **kwargs)
        except QueueError as error:
            if not error.retryable:
                raise
            REFUSED.append(f"{call.__name__}: {type(error).__name__}: {error}")
    raise AssertionError(REFUSED)

async def submit(backend, jobs):
    try:
        await insist(backend.enqueue_jobs, jobs)
    except DuplicateJob:
        assert REFUSED, "the first of its name"

async def at_work(backend, n):
    jobs = [
        Job(id=f"{ME}-{n}-{k}", type="t", max_attempts=9, idempotency_key=f"{ME}-{n}-{k}")
        for k in range(20)
    ]
    await submit(backend, jobs[:10])
    for job in jobs[10:12]:
        await submit(backend, [job])
    demand = Demand(assignee_id=ME, limit=15)
    taken = await insist(backend.claim, [demand], lease_ttl_s=600)
    held = [Held(one.job_id, one.token) for one in taken]
    await insist(backend.extend_leases, held, lease_ttl_s=600)
    outcomes = [
        Outcome(one.job_id, Event.FAIL, token=one.token, error=ErrorInfo("once"))
        if one.attempt == 1 and place % 7 == 0
        else Outcome(one.job_id, Event.COMPLETE, token=one.token, result=b"r")
        for place, one in enumerate(taken)
    ]
    for answer in await insist(backend.settle, outcomes):
        assert answer.error is None, answer
    if taken:
        await insist(backend.get_job, taken[0].job_id)
        await insist(backend.get_history, taken[0].job_id)
    await insist(backend.get_job_stats, [])
    session = WorkerSession(session_id=ME, namespace="default", worker_name=ME, busy=n)
    await insist(backend.open_session, session)
    await insist(backend.touch_sessions, [session])
    await insist(backend.list_sessions)
    await insist(backend.expire_leases, lease_ttl_s=600)
    return [job.id for job in jobs[:12]]

async def main():
    backend = await PostgresBackend.open(DSN, pool_size=4)
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    submitted = []
    n = 0
    while not told.done():
        submitted += await at_work(backend, n)
        n += 1
        if n % 10 == 0:
            say("going on")
    await backend.close()
    say("done")
    say(json.dumps({"submitted": submitted, "refused": REFUSED}))

asyncio.run(main())
"""


@asynccontextmanager
async def at_work(dsn: str, count: int) -> AsyncIterator[list[Process]]:
    """So many processes, all of which have prepared their statements and have their plans."""
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(running(dsn, script=AT_WORK)) for _ in range(count)
        ]
        await going_on(processes, words=2)
        yield processes


async def going_on(processes: list[Process], words: int) -> None:
    for process in processes:
        for _ in range(words):
            assert await line(process) == "going on", await told(process)


async def told(process: Process) -> str:
    assert process.stderr is not None
    return (await process.stderr.read()).decode()


async def ended(process: Process) -> dict[str, Any]:
    said = await finish(process)
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result


async def drain(backend: PostgresBackend) -> None:
    while jobs := await backend.dequeue_jobs("last", [], 500):
        for job in jobs:
            await backend.complete_job(job.id, b"r")


async def check_nothing_is_lost(store: PostgresStore, submitted: list[str]) -> None:
    backend = await store.open()
    await drain(backend)
    jobs = await backend._get("default", submitted)
    assert Counter(job.state for job in jobs.values()) == {JobState.COMPLETED: len(submitted)}
    assert await store.faults() == []


async def test_processes_at_work_go_on_while_a_later_release_migrates(
    store: PostgresStore,
) -> None:
    async with at_work(store.dsn, 2) as processes:
        applied = await migrate(store.dsn, shipped=[*migrations(), WIDER])
        assert applied == [WIDER.name]
        # The rounds that were under way at that moment may be the first two.
        await going_on(processes, words=3)
        results = await asyncio.gather(*(ended(process) for process in processes))
    # Statements that were prepared for the older schema are prepared anew, and nobody is told.
    refused = [text for result in results for text in result["refused"]]
    assert [text for text in refused if "cached plan" in text] == []
    await check_nothing_is_lost(store, [job for r in results for job in r["submitted"]])


async def test_a_process_of_an_older_release_starts_and_works_on_a_newer_schema(
    store: PostgresStore,
) -> None:
    await migrate(store.dsn, shipped=[*migrations(), WIDER])
    async with at_work(store.dsn, 1) as processes:
        result = await ended(processes[0])
    assert result["refused"] == []
    await check_nothing_is_lost(store, result["submitted"])


async def test_jobs_from_before_a_migration_are_worked_off_after_it(store: PostgresStore) -> None:
    """In every place where a job can be: its row there was written without the new columns."""
    before = await store.open()
    await before.enqueue_jobs([Job(id=name, type="t") for name in ("waits", "runs", "ended")])
    claimed = {job.id: job for job in await before.dequeue_jobs("w", [], 2)}
    ended_, runs = sorted(claimed)
    await before.complete_job(ended_, b"early")
    await migrate(store.dsn, shipped=[*migrations(), WIDER])
    after = await store.open()
    assert await after.complete_job(runs, b"late") == {"w": 1}
    await drain(after)
    assert (await after.get_job(ended_)).result == b"early"
    assert (await after.get_job_stats([])).completed_jobs == 3
    assert await store.faults() == []


async def test_a_running_process_is_told_of_a_schema_that_it_cannot_live_with(
    store: PostgresStore,
) -> None:
    backend = await store.open()
    await backend.enqueue_job(Job(id="before", type="t"))
    await migrate(store.dsn, shipped=[*migrations(), *LATER])
    with pytest.raises(SchemaMismatch, match=r"column .* does not exist"):
        await backend.enqueue_job(Job(id="after", type="t"))
    with pytest.raises(SchemaMismatch, match="needs a release that knows 8002_a_new_shape"):
        await store.open()
