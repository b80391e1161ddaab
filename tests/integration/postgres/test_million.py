"""What each call looks at when there are a million jobs."""

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files

import pytest
from tests.integration.postgres import million
from tests.integration.postgres.calls import CASES
from tests.integration.postgres.searches import FAILURES, SEARCHES, bounds, pages_of
from tests.integration.postgres.watching import at_most, watched

from queue_operator.testing.clauses import proves

UNWATCHED = {
    *("session_open", "session_touch", "session_close", "session_list"),
    *("session_keep", "session_news", "session_order"),
    "signal_listen",
    *("migration_list", "migration_place", "migration_record", "migration_table"),
    *("privileges_missing", "privileges_owner"),
    # Looks at the end of an index, which is no look-up.
    "number_pass_by",
    # COPY has no plan, and the others are parts of some.
    *("copy_job", "copy_ready", "search_condition", "roll_up_fresh", "roll_up_cells"),
}
"""Statements that have no plan, or a plan on short tables only."""


@pytest.fixture(scope="module")
def million_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with million.database_with(million.JOBS, postgres_admin_dsn) as address:
        yield address


@proves(
    "queue-api.StreamJobs.expect.8",
    "queue-api.CancelJobs.expect.5",
    "queue-api.GetJobStats.expect.2",
    "queue-api.CleanupExpiredJobs.expect.3",
    "queue-api.DeleteJobs.expect.5",
)
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", CASES)
async def test_a_call_looks_up_what_it_needs_by_index(
    million_dsn: str, name: str, plans: str
) -> None:
    case = CASES[name]
    async with watched(million_dsn, plans=plans) as (backend, seen):
        with at_most(seen, rows=case.rows, pages=case.pages, also_whole=case.also_whole):
            await case.call(backend)
    assert case.indexes - seen.indexes == set(), str(seen)


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", SEARCHES)
async def test_a_search_reads_little_more_than_its_page(
    million_dsn: str, name: str, plans: str
) -> None:
    async with watched(million_dsn, plans=plans) as (backend, seen):
        with at_most(seen, **bounds(name)):
            [page] = await pages_of(backend, SEARCHES[name], 1)
    assert len(page.jobs) == min(100, page.total_count)
    assert page.total_count > 0 or name == "nothing"


@pytest.mark.parametrize("name", SEARCHES)
async def test_a_late_page_costs_no_more_than_the_first(million_dsn: str, name: str) -> None:
    async with watched(million_dsn, plans="auto") as (backend, seen):
        *_, last = await pages_of(backend, SEARCHES[name], 15)
        search = SEARCHES[name]
        if last.next_cursor:
            with at_most(seen, **bounds(name)):
                await backend.search_jobs(replace(search, cursor=last.next_cursor))


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", FAILURES)
async def test_a_search_for_failures_reads_failures_only(
    million_dsn: str, name: str, plans: str
) -> None:
    async with watched(million_dsn, plans=plans) as (backend, seen):
        # There are some 80,000 jobs that ended badly, and 60,000 that wait aside; of each the
        # page and the totals read what lies in the time asked for.
        with at_most(seen, rows=250_000, pages=250_000, also_joins={"Hash Join"}):
            page = await backend.search_failures(FAILURES[name])
    assert len(page.jobs) == min(100, page.total_count)
    assert not seen.indexes & {"final_completed", "job_by_lane", "ready_claim"}, str(seen)


async def test_every_statement_on_a_long_table_is_watched(million_dsn: str) -> None:
    folder = files("queue_operator.backends.postgres") / "queries"
    titles = {title_of(file.read_text()): file.name for file in folder.iterdir()}
    async with watched(million_dsn, plans="auto") as (backend, seen):
        for case in CASES.values():
            await case.call(backend)
        for search in SEARCHES.values():
            await backend.search_jobs(search)
        await backend.search_failures(FAILURES["all"])
    run = {title_of(plan.text) for plan in seen.plans}
    missed = {file.removesuffix(".sql") for title, file in titles.items() if title not in run}
    assert sorted(missed - UNWATCHED) == []
    assert sorted(UNWATCHED - missed) == []


def title_of(statement: str) -> str:
    """The first line; a parameter has another name once the driver has seen it."""
    return re.sub(r"%\(\w+\)s|\$\d+", "?", statement.splitlines()[0])
