"""What the specification expects of effort: counted in pages and statements, which are the same on
every machine. Milliseconds are what `make bench` measures.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import psycopg
import pytest
from tests.conftest import migrated_database
from tests.integration.postgres import million
from tests.integration.postgres.watching import Watched, watched
from tests.integration.queue.counting import counted
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

FEW: Final = 2_000
MANY: Final = 40_000
GROWTH: Final = 1.5
"""An index of twenty times as many jobs is a level deeper; a table is twenty times as long."""
CONSTANT: Final = 60
TTL_S: Final = 600.0
BATCH: Final = 50
# Random reads that a disk without a cache answers in so long, at a tenth of a millisecond each.
IN_100_MS: Final = 1_000
IN_500_MS: Final = 5_000

_SESSIONS: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""

Call = Callable[[PostgresBackend], Awaitable[object]]


@pytest.fixture(scope="module")
def stores(postgres_admin_dsn: str) -> Iterator[dict[int, str]]:
    """Databases with few and with many jobs of every state and age, in as many lanes."""
    with ExitStack() as stack:
        yield {
            jobs: stack.enter_context(million.database_with(jobs, postgres_admin_dsn))
            for jobs in (FEW, MANY)
        }


async def pages(dsn: str, call: Call) -> Watched:
    """What a call looks at, once the backend knows its lanes."""
    async with watched(dsn, plans="force_generic_plan") as (backend, seen):
        await call(backend)
        seen.clear()
        await call(backend)
        return seen


async def does_not_grow(stores: dict[int, str], call: Call, *, limit: int = IN_100_MS) -> Watched:
    few, many = [await pages(stores[jobs], call) for jobs in (FEW, MANY)]
    assert few.plans
    assert many.pages <= few.pages * GROWTH + CONSTANT, f"{few.pages} pages, then {many}"
    assert many.pages <= limit, str(many)
    return many


def job_id(number: int) -> str:
    return f"job-{number:08d}"


async def _get(backend: PostgresBackend, name: str) -> None:
    await backend.get_job(name, namespace=million.BIG)


@proves(
    "backend-api.GetJob.must.4",
    "backend-api.ImplementationGuidelines.must.4",
    "backend-api.ImplementationGuidelines.must.13",
)
@pytest.mark.parametrize("part", [0.1, 0.8025, 0.9], ids=["ended", "running", "waiting"])
async def test_a_job_is_found_by_its_id_however_many_there_are(
    stores: dict[int, str], part: float
) -> None:
    few, many = [
        await pages(stores[jobs], partial(_get, name=job_id(int(jobs * part))))
        for jobs in (FEW, MANY)
    ]
    assert "job_namespace_id_id_key" in many.indexes
    # Each level of an index is one page; the job is in one of three tables.
    assert many.pages <= few.pages + 10, str(many)
    assert many.pages <= 40


async def _take_one(backend: PostgresBackend) -> None:
    demand = Demand(assignee_id="w", limit=1, namespace=million.SOLO)
    assert len(await backend.claim([demand], lease_ttl_s=TTL_S)) == 1


async def _take_tagged(backend: PostgresBackend) -> None:
    await backend.dequeue_jobs("w", ["eu", "gpu"], 1, namespace=million.BIG)


@proves(
    "backend-api.DequeueJobs.must.8",
    "backend-api.DequeueJobs.must.11",
    "backend-api.ImplementationGuidelines.must.8",
    "backend-api.ImplementationGuidelines.must.14",
    "backend-api.TestingRequirements.must.4",
)
@pytest.mark.parametrize("call", [_take_one, _take_tagged], ids=["all", "tagged"])
async def test_a_claim_costs_the_same_however_many_wait(stores: dict[int, str], call: Call) -> None:
    seen = await does_not_grow(stores, call)
    assert any(index.startswith("ready_") for index in seen.indexes)


@proves(
    "backend-api.GetJobStats.must.2",
    "backend-api.GetJobStats.must.4",
    "backend-api.ImplementationGuidelines.must.5",
    "backend-api.ImplementationGuidelines.must.15",
)
@pytest.mark.parametrize("tags", [[], ["eu"], [million.RARE]], ids=["all", "common", "rare"])
async def test_statistics_are_read_from_counts_and_not_from_jobs(
    stores: dict[int, str], tags: list[str]
) -> None:
    # There is a count for each lane and state, which is what grows.
    seen = await pages(stores[MANY], lambda b: b.get_job_stats(tags, namespace=million.BIG))
    assert seen.pages <= IN_500_MS, str(seen)
    tables = {node["Relation Name"] for plan in seen.plans for node in plan.scans}
    assert tables & {"job", "ready", "lease", "final"} == set()


@proves(
    "backend-api.CancelJobs.must.5",
    "backend-api.DeleteJobs.must.5",
    "backend-api.ImplementationGuidelines.must.6",
)
@pytest.mark.parametrize("by", ["tags", "ids"])
async def test_a_selection_costs_what_it_selects(stores: dict[int, str], by: str) -> None:
    async def cancel_and_delete(backend: PostgresBackend) -> None:
        tag = f"last-{next(_numbers)}"
        space = million.BIG
        jobs = [
            Job(id=f"{tag}-{n}", type="type-1", namespace=space, tags=frozenset({tag}))
            for n in range(20)
        ]
        names = await backend.enqueue_jobs(jobs)
        tags, ids = ([tag], []) if by == "tags" else ([], names)
        cancelled = await backend.cancel_jobs(tags, ids, namespace=space)
        assert len(cancelled.cancelled_job_ids) == 20
        assert await backend.delete_jobs(tags, ids, namespace=space) == 20

    # Three calls on twenty jobs, with all that is kept of each.
    await does_not_grow(stores, cancel_and_delete, limit=5 * IN_100_MS)


_numbers = iter(range(1_000_000))


@proves("backend-api.CleanupExpiredJobs.must.3")
async def test_a_cleanup_looks_at_what_it_deletes(stores: dict[int, str]) -> None:
    async def clean_up(backend: PostgresBackend) -> None:
        # Nothing is as old as that.
        assert await backend.cleanup_expired_jobs(10 * 365 * 86_400.0) == 0

    await does_not_grow(stores, clean_up)


@proves(
    "backend-api.MarkWorkerUnresponsive.must.5",
    "backend-api.ResetRunningJobs.must.5",
    "backend-api.ImplementationGuidelines.must.7",
)
@pytest.mark.parametrize("call", ["mark_worker_unresponsive", "reset_running_jobs"])
async def test_a_loss_looks_at_running_jobs_alone(stores: dict[int, str], call: str) -> None:
    async def lose(backend: PostgresBackend) -> None:
        space = f"lost-{next(_numbers)}"
        await backend.enqueue_jobs([Job(id=f"{n}", type="t", namespace=space) for n in range(20)])
        demand = Demand(assignee_id=space, limit=20, namespace=space)
        await backend.claim([demand], lease_ttl_s=TTL_S)
        if call == "mark_worker_unresponsive":
            assert await backend.mark_worker_unresponsive(space) == {space: 20}
        else:
            assert await backend.reset_running_jobs(namespace=space) == {space: 20}

    few, many = [await pages(stores[jobs], lose) for jobs in (FEW, MANY)]
    # Of the jobs that run there are 190 more; of those that wait or have ended 38,000.
    more = (MANY - FEW) // 200
    assert many.pages - few.pages <= 10 * more, f"{few.pages} pages, then {many}"
    assert many.rows - few.rows <= 10 * more, f"{few.rows} rows, then {many}"


@pytest.fixture
def empty(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "expectations") as dsn:
        yield dsn


@pytest.fixture
async def fresh(empty: str) -> AsyncIterator[tuple[str, PostgresBackend]]:
    """A store, and a backend on it that knows its lanes."""
    backend = await PostgresBackend.open(empty)
    await backend.enqueue_job(Job(id="first", type="t"))
    yield empty, backend
    await backend.close()


async def statements(dsn: str, call: Awaitable[object]) -> int:
    async with counted(dsn) as spent:
        await call
        return sum((await spent()).values())


async def _each(call: Callable[[Job], Awaitable[object]], jobs: Sequence[Job]) -> None:
    for job in jobs:
        await call(job)


@proves(
    "backend-api.EnqueueJobs.must.3",
    "backend-api.EnqueueJobs.must.5",
    "backend-api.CancelJobs.must.6",
    "backend-api.DeleteJobs.must.6",
    "backend-api.ImplementationGuidelines.must.16",
)
async def test_a_batch_takes_a_fraction_of_the_statements(
    fresh: tuple[str, PostgresBackend],
) -> None:
    dsn, b = fresh
    one_by_one, together = [
        [Job(id=f"{name}-{n}", type="t") for n in range(BATCH)] for name in ("one", "batch")
    ]
    alone: list[tuple[str, Callable[[Job], Awaitable[object]], Call]] = [
        ("submit", b.enqueue_job, lambda b: b.enqueue_jobs(together)),
        (
            "cancel",
            lambda job: b.cancel_jobs([], [job.id]),
            lambda b: b.cancel_jobs([], [job.id for job in together]),
        ),
        (
            "delete",
            lambda job: b.delete_jobs([], [job.id]),
            lambda b: b.delete_jobs([], [job.id for job in together]),
        ),
    ]
    for name, single, batch in alone:
        each = await statements(dsn, _each(single, one_by_one))
        spent = each, await statements(dsn, batch(b))
        assert spent[1] * 5 <= spent[0], (name, spent)


@proves("backend-api.CleanupExpiredJobs.must.4")
async def test_what_changes_many_jobs_takes_as_many_statements_as_for_few(
    fresh: tuple[str, PostgresBackend],
) -> None:
    dsn, backend = fresh
    await backend.dequeue_jobs("w", [], 1)

    async def spent(count: int) -> dict[str, int]:
        space = f"space-{count}"
        jobs = [Job(id=f"{n}", type="t", namespace=space) for n in range(count)]
        await backend.enqueue_jobs(jobs)
        demand = Demand(assignee_id=space, limit=count, namespace=space)
        await backend.claim([demand], lease_ttl_s=TTL_S)
        lost = await statements(dsn, backend.mark_worker_unresponsive(space))
        await backend.claim([demand], lease_ttl_s=TTL_S)
        reset = await statements(dsn, backend.reset_running_jobs(namespace=space))
        await backend.claim([demand], lease_ttl_s=TTL_S)
        done = [Outcome(job.id, Event.COMPLETE, namespace=space) for job in jobs]
        settled = await statements(dsn, backend.settle(done))
        cleaned = await statements(dsn, backend.cleanup_expired_jobs(1e-6, namespace=space))
        assert (await backend.get_job_stats([], namespace=space)).total_jobs == 0
        return {"lost": lost, "reset": reset, "settled": settled, "cleaned": cleaned}

    few, many = await spent(2), await spent(200)
    assert {name: many[name] - few[name] for name in few if many[name] > few[name] + 3} == {}


@proves(
    "backend-api.ImplementationGuidelines.must.17",
    "backend-api.TestingRequirements.must.3",
    "backend-api.TestingRequirements.must.4",
)
async def test_twelve_workers_get_as_much_per_claim_as_one(
    fresh: tuple[str, PostgresBackend],
) -> None:
    dsn, first = fresh
    workers, rounds, limit = 12, 4, 20
    jobs = [Job(id=f"{n}", type="t") for n in range(workers * rounds * limit)]
    await first.enqueue_jobs(jobs)
    await first.dequeue_jobs("w", [], 1)
    backends = [await PostgresBackend.open(dsn, pool_size=2) for _ in range(workers)]

    async def take(number: int) -> list[list[Any]]:
        demand = Demand(assignee_id=f"w{number}", limit=limit)
        claims = [await backends[number].claim([demand], lease_ttl_s=TTL_S) for _ in range(rounds)]
        return [list(claim) for claim in claims]

    taken = [claim for many in await asyncio.gather(*map(take, range(workers))) for claim in many]
    for backend in backends:
        await backend.close()
    assert {len(claim) for claim in taken} == {limit}
    given = Counter(one.job_id for claim in taken for one in claim)
    assert (len(given), set(given.values())) == (len(jobs), {1})


@proves("backend-api.Close.must.1")
async def test_a_closed_backend_holds_no_connection(empty: str) -> None:
    async with await psycopg.AsyncConnection.connect(empty, autocommit=True) as looking:

        async def sessions() -> int:
            [(count,)] = await (await looking.execute(_SESSIONS)).fetchall()
            return int(count)

        backend = await PostgresBackend.open(empty)
        news = backend.listen()
        await anext(news)
        await backend.enqueue_job(Job(id="a", type="t"))
        assert await sessions() > 0
        await backend.close()
        async with asyncio.timeout(DEADLINE_S):
            # The server takes a moment to notice.
            while await sessions():
                pass
