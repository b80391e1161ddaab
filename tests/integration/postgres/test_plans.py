"""Plans that are made while there are few jobs, or none, and kept when there are many."""

from collections.abc import Iterator, Set
from dataclasses import replace
from typing import LiteralString

import psycopg
import pytest
from tests.integration.postgres import million
from tests.integration.postgres.big import new_jobs
from tests.integration.postgres.cases import CASES
from tests.integration.postgres.searches import FAILURES, SEARCHES, bounds
from tests.integration.postgres.watching import at_most, watched

from queue_operator.testing.clauses import proves


@pytest.fixture(scope="module", params=[0, 200], ids=["no-jobs", "few-jobs"])
def jobs(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture(scope="module", params=["", "VACUUM"], ids=["as-it-is", "vacuumed"])
def upkeep(request: pytest.FixtureRequest) -> LiteralString:
    """Vacuumed, the server knows how long tables are, and nothing of what is in them. It does so
    by itself, whenever it likes.
    """
    statement: LiteralString = request.param
    return statement


@pytest.fixture(scope="module")
def filled_dsn(jobs: int, upkeep: str, postgres_admin_dsn: str) -> Iterator[str]:
    # What the cases leave behind grows with them: each state of the server has a database.
    with million.database_with(jobs, postgres_admin_dsn) as address:
        yield address


@pytest.fixture(params=[0, 200], ids=["no-jobs", "few-jobs"])
def untouched_dsn(request: pytest.FixtureRequest, postgres_admin_dsn: str) -> Iterator[str]:
    with million.database_with(request.param, postgres_admin_dsn) as address:
        yield address


@proves("queue-api.GetJobStats.expect.4")
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", CASES)
async def test_a_call_plans_index_look_ups_however_few_the_jobs(
    filled_dsn: str, upkeep: LiteralString, name: str, plans: str
) -> None:
    case = CASES[name]
    if upkeep:
        with psycopg.connect(filled_dsn, autocommit=True) as connection:
            connection.execute(upkeep)
    async with watched(filled_dsn, plans=plans) as (backend, seen):
        # With nothing to take, most calls would ask the server nothing.
        for namespace in (million.BIG, million.SOLO):
            await backend.enqueue_jobs([replace(job, namespace=namespace) for job in new_jobs(50)])
        await backend._arrivals.catch_up()
        await case.first(backend)
        with at_most(seen, rows=case.rows, pages=case.pages, also_whole=case.also_whole):
            await case.call(backend)


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_a_search_plans_index_look_ups_however_few_the_jobs(
    untouched_dsn: str, plans: str
) -> None:
    async with watched(untouched_dsn, plans=plans) as (backend, seen):
        for name in SEARCHES:
            with at_most(seen, **bounds(name)):
                await backend.search_jobs(SEARCHES[name])
        for name in FAILURES:
            with at_most(seen, **bounds(name)):
                await backend.search_failures(FAILURES[name])


@pytest.fixture
def empty_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with million.database_with(0, postgres_admin_dsn) as address:
        yield address


@pytest.mark.parametrize("before", [CASES.keys() - {"submit"}, CASES.keys()], ids=["empty", "few"])
async def test_plans_cached_for_a_short_queue_are_good_for_a_long_one(
    empty_dsn: str, before: Set[str]
) -> None:
    async with watched(empty_dsn, plans="auto") as (backend, seen):
        for name in sorted(before):
            # Prepared after five times, and then sooner or later planned once for all.
            for _ in range(40):
                await CASES[name].call(backend)
        million.add_jobs(empty_dsn, 100_000)
        for case in CASES.values():
            await case.first(backend)
            with at_most(seen, rows=case.rows, pages=case.pages, also_whole=case.also_whole):
                await case.call(backend)


async def test_searches_cached_for_a_short_queue_are_good_for_a_long_one(empty_dsn: str) -> None:
    async with watched(empty_dsn, plans="auto") as (backend, seen):
        for search in [*SEARCHES.values()] * 3:
            await backend.search_jobs(search)
        million.add_jobs(empty_dsn, 100_000)
        for name, search in SEARCHES.items():
            with at_most(seen, **bounds(name)):
                await backend.search_jobs(search)
