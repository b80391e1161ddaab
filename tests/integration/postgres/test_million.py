"""What each call looks at when there are a million jobs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

import pytest
from tests.integration.postgres import million
from tests.integration.postgres.cases import CASES
from tests.integration.postgres.searches import FAILURES, SEARCHES, bounds, pages_of
from tests.integration.postgres.watching import at_most, watched

from queue_operator.backends.protocol import JobSearch
from queue_operator.domain.job import Job
from queue_operator.queue.bulk import STEP, Selection, Step, change_jobs
from queue_operator.testing.clauses import proves

UNWATCHED = {
    *("session_open", "session_touch", "session_close", "session_list"),
    *("session_keep", "session_news", "session_order"),
    *("session_lose", "session_lost"),
    *("signal_listen", "signal_stay"),
    *("migration_list", "migration_place", "migration_record", "migration_table"),
    "migration_index",
    *("privileges_missing", "privileges_owner"),
    # Looks at the end of an index, which is no look-up.
    "number_pass_by",
    # COPY has no plan, and the others are parts of some.
    *("copy_job", "copy_ready", "search_condition", "roll_up_fresh", "roll_up_cells"),
    "stream_fresh",
    "session_beats",
    "lease_standing",
    *("count_tail", "count_summed_up", "roll_up_closed", "depth_kinds", "statistics_spans"),
    *("arrival_fresh", "history", "sure", "arrival_tell", "stage_due"),
    *("claim_jobs", "claim_leases", "claim_left"),
    *("lane_empty", "lane_told", "name_used"),
    "lane_skip",
    "figure_named",
    *("webhook_write", "webhook_choose", "webhook_soon"),
    # The server's own lists.
    *("survey_sessions", "survey_size", "survey_tables"),
    # One row.
    *("count_is_ours", "queue_uid"),
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
        # Where jobs wait is found out once, which is a case of its own.
        await backend._arrivals.catch_up()
        await case.first(backend)
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
    total = page.total_count or 0
    assert len(page.jobs) == min(100, total)
    assert total > 0 or name == "nothing"


@pytest.mark.parametrize("name", SEARCHES)
async def test_a_page_without_a_total_counts_nothing(million_dsn: str, name: str) -> None:
    search = SEARCHES[name]
    async with watched(million_dsn, plans="auto") as (backend, seen):
        counted = await backend.search_jobs(search)
        with at_most(seen, **bounds(name, counted=False)):
            plain = await backend.search_jobs(replace(search, count=False))
    assert (plain.jobs, plain.next_cursor) == (counted.jobs, counted.next_cursor)
    assert plain.total_count is None
    assert not [plan for plan in seen.plans if plan.text.startswith("-- How many")]


@pytest.mark.parametrize("name", SEARCHES)
async def test_a_late_page_costs_no_more_than_the_first(million_dsn: str, name: str) -> None:
    async with watched(million_dsn, plans="auto") as (backend, seen):
        *_, last = await pages_of(backend, SEARCHES[name], 15)
        search = SEARCHES[name]
        if last.next_cursor:
            with at_most(seen, **bounds(name)):
                await backend.search_jobs(replace(search, cursor=last.next_cursor))


@dataclass(frozen=True)
class Nothing:
    """A change of many jobs that leaves them as they are."""

    async def apply(self, job_ids: Sequence[str], namespace: str) -> Step:
        return Step(changed=len(job_ids))

    def foresee(self, jobs: Iterable[Job]) -> Step:
        return Step(changed=sum(1 for _ in jobs))

    def passes(self, search: JobSearch) -> Sequence[JobSearch]:
        return [search]


async def test_a_change_of_many_jobs_counts_nothing(million_dsn: str) -> None:
    async def gone() -> bool:
        return False

    delayed = replace(SEARCHES["delayed"], types=frozenset({"type-3"}))
    chosen = Selection(namespace=million.BIG, search=delayed)
    async with watched(million_dsn, plans="auto") as (backend, seen):
        answer = await change_jobs(backend, Nothing(), chosen, dry_run=False, gone=gone)
    assert answer.changed == answer.requested > STEP
    assert not [plan for plan in seen.plans if plan.text.startswith("-- How many")]


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", FAILURES)
async def test_a_search_for_failures_reads_failures_only(
    million_dsn: str, name: str, plans: str
) -> None:
    async with watched(million_dsn, plans=plans) as (backend, seen):
        # There are some 54,500 failures; of each the totals read what the indexes say, and of
        # some 1,000 the page reads the row.
        with at_most(seen, rows=130_000, pages=30_000, also_joins={"Hash Join"}):
            page = await backend.search_failures(FAILURES[name])
    assert len(page.jobs) == min(100, page.total_count or 0)
    jobs = {"final_failed", "ready_failed", "final_pkey", "ready_pkey", "lease_pkey", "job_pkey"}
    long = ("final", "ready", "lease", "job_by")
    assert {one for one in seen.indexes if one.startswith(long)} <= jobs, str(seen)


async def test_failures_without_totals_read_their_page_only(million_dsn: str) -> None:
    async with watched(million_dsn, plans="auto") as (backend, seen):
        counted = await backend.search_failures(FAILURES["all"])
        with at_most(seen, rows=25_000, pages=25_000, also_joins={"Hash Join"}):
            plain = await backend.search_failures(replace(FAILURES["all"], count=False))
    assert (plain.jobs, plain.next_cursor) == (counted.jobs, counted.next_cursor)


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
    """The first line; a parameter has another name once the driver has seen it, and so has a
    statement that it reads through a cursor.
    """
    line = re.sub(r"^DECLARE .* CURSOR .*?FOR ", "", statement.splitlines()[0])
    return re.sub(r"%\(\w+\)s|\$\d+", "?", line)
