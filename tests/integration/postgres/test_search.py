"""Searches find what they should, in order, however they get at it."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend, looking
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.finder import Finder
from queue_operator.backends.protocol import JobPage, JobSearch, SearchOrder
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import Phase, phase

TYPES = ("mail", "report", "sms")
TAGS = (frozenset[str](), frozenset({"eu"}), frozenset({"eu", "gpu"}))
ERRORS = (None, ErrorInfo("x"), ErrorInfo("y", ErrorCategory.PERMANENT, "E1"))
FUTURE = datetime(2999, 1, 1, tzinfo=UTC)
PAST = datetime(2001, 1, 1, tzinfo=UTC)
Numbered = list[tuple[Job, int]]
_SCHEDULED = frozenset({Phase.SCHEDULED})


class Crowd:
    """Jobs that random calls have brought into all states."""

    def __init__(self, backend: PostgresBackend, namespace: str, seed: int) -> None:
        self.backend, self.namespace = backend, namespace
        self.random = random.Random(seed)  # noqa: S311
        self.ids: list[str] = []

    async def gather(self) -> None:
        for size in (90, 70, 60):
            await self.submit(size)
            for _ in range(8):
                await self.claim_and_settle()
        await self.submit(40)
        await self.backend.claim(
            [Demand(assignee_id="w", limit=10, namespace=self.namespace)], lease_ttl_s=60
        )
        await self.backend.cancel_jobs(
            [], self.random.sample(self.ids, 30), namespace=self.namespace
        )

    async def submit(self, size: int) -> None:
        jobs = [self.job() for _ in range(size)]
        await self.backend.enqueue_jobs(jobs)
        self.ids += [job.id for job in jobs]

    def job(self) -> Job:
        draw = self.random
        return Job(
            id=f"{draw.getrandbits(64):x}",
            namespace=self.namespace,
            type=draw.choice(TYPES),
            tags=draw.choice(TAGS),
            priority=draw.choice([*Priority]),
            created_at=draw.choice([None] * 6 + [PAST, FUTURE, PAST + timedelta(seconds=1)]),
            delay_s=draw.choice([None] * 5 + [3600.0]),
            max_attempts=draw.choice([None, 1, 3]),
            depends_on=tuple(draw.sample(self.ids, 1)) if self.ids and draw.random() < 0.15 else (),
        )

    async def claim_and_settle(self) -> None:
        demand = Demand(assignee_id="w", limit=15, namespace=self.namespace)
        claimed = await self.backend.claim([demand], lease_ttl_s=60)
        events = [Event.COMPLETE, Event.COMPLETE, Event.FAIL, Event.STOP, Event.LOSE, Event.RELEASE]
        outcomes = [
            Outcome(
                one.job_id,
                self.random.choice(events),
                namespace=self.namespace,
                token=one.token,
                error=self.random.choice(ERRORS),
                retry_after_s=self.random.choice([0.0, 3600.0]),
            )
            for one in claimed
            if self.random.random() < 0.9
        ]
        await self.backend.settle(outcomes)

    def search(self) -> JobSearch:
        """Filters that leave anything between all and nothing."""
        draw = self.random
        times = [None] * 4 + [PAST, datetime.now(UTC), FUTURE, self.moment]

        def some(values: Any, most: int) -> frozenset[Any]:
            chosen = draw.sample(list(values), draw.randint(1, most))
            return frozenset(chosen) if draw.random() < 0.4 else frozenset()

        return JobSearch(
            namespace=self.namespace,
            types=some(TYPES, 2),
            states=some(JobState, 4),
            priorities=some(Priority, 3),
            tags=some(("eu", "gpu"), 1),
            created_after=draw.choice(times),
            created_before=draw.choice(times),
            updated_after=draw.choice([None, None, PAST, self.moment]),
            phases=some(Phase, 5),
            order=draw.choice([*SearchOrder]),
            limit=draw.choice([3, 20, 20, 1000]),
        )

    moment = datetime.now(UTC)

    async def everybody(self, ask: Ask) -> Numbered:
        numbers: dict[str, int] = dict(await ask("SELECT id, job_no FROM job"))
        jobs = [await self.backend.get_job(i, namespace=self.namespace) for i in self.ids]
        return [(job, numbers[job.id]) for job in jobs]


def expected(jobs: Numbered, search: JobSearch, now: datetime) -> list[str]:
    by_change = search.order is SearchOrder.UPDATED_DESC

    def key(one: tuple[Job, int]) -> tuple[datetime, int]:
        job, number = one
        return (job.updated_at if by_change else job.created_at) or now, number

    found = [one for one in jobs if matches(one[0], search, now)]
    ascending = search.order is SearchOrder.CREATED_ASC
    return [job.id for job, _ in sorted(found, key=key, reverse=not ascending)]


def matches(job: Job, search: JobSearch, now: datetime) -> bool:
    assert job.created_at is not None
    assert job.updated_at is not None
    return (
        (not search.types or job.type in search.types)
        and (not search.states or job.state in search.states)
        and (not search.priorities or job.priority in search.priorities)
        and search.tags <= job.tags
        and (search.created_after is None or job.created_at > search.created_after)
        and (search.created_before is None or job.created_at < search.created_before)
        and (search.updated_after is None or job.updated_at > search.updated_after)
        and (not search.phases or phase(job, now) in search.phases)
    )


async def all_pages(backend: PostgresBackend, search: JobSearch) -> list[JobPage]:
    pages = [await backend.search_jobs(search)]
    while pages[-1].next_cursor:
        search = replace(search, cursor=pages[-1].next_cursor)
        pages.append(await backend.search_jobs(search))
    return pages


# Ways of searching that only very many jobs would need: the limits from which on they are taken.
WAYS = {
    "as it is": {},
    "newest completions": {"_NEAR": 1, "_LEAST_LOOK": 1},
    "newest completions given up": {"_NEAR": 1, "_FAR": 1, "_CHUNK": 3},
    "completions in short steps": {"_NEAR": 1, "_CHUNK": 3},
    "many jobs": {"_FEW_JOBS": 0, "_LEAST_LOOK": 1},
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_search_finds_exactly_what_matches_in_order(
    backend: PostgresBackend,
    namespace: str,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(looking, name, value)
    crowd = Crowd(backend, namespace, seed=len(way))
    await crowd.gather()
    jobs = await crowd.everybody(ask)
    sizes = set()
    for _ in range(60):
        search = crowd.search()
        pages = await all_pages(backend, search)
        found = [job.id for page in pages for job in page.jobs]
        assert found == expected(jobs, search, datetime.now(UTC)), search
        assert all(len(page.jobs) == search.limit for page in pages[:-1])
        assert {(page.total_count, page.total_is_exact) for page in pages} == {(len(found), True)}
        sizes.add(len(found))
    assert len(sizes) > 15
    assert {job.state for job, _ in jobs} == set(JobState) - {JobState.UNKNOWN_STOPPED}


async def test_a_page_holds_the_records_as_they_are(
    backend: PostgresBackend, namespace: str
) -> None:
    crowd = Crowd(backend, namespace, seed=1)
    await crowd.gather()
    page = await backend.search_jobs(JobSearch(namespace=namespace, limit=1000))
    for job in page.jobs:
        assert job == await backend.get_job(job.id, namespace=namespace)


async def test_what_waits_untouched_is_in_the_order_of_its_creation(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    """What the search for waiting jobs takes for granted of the order of claims."""
    crowd = Crowd(backend, namespace, seed=2)
    await crowd.gather()
    rows = await ask(
        "SELECT lane.priority, ready.created_at - order_time, ready.created_at = job.created_at"
        " FROM ready JOIN job USING (job_no) JOIN lane ON lane.id = ready.lane_id"
        " WHERE due AND state = %s AND ready.created_at = changed_at",
        JobState.INITIAL_PENDING,
    )
    assert len(rows) > 20
    assert all(same for _, _, same in rows)
    assert len({priority for priority, _, _ in rows}) == len({(p, gap) for p, gap, _ in rows})


async def test_a_job_completed_changes_for_the_last_time_then(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    """What the search for the last completions takes for granted."""
    crowd = Crowd(backend, namespace, seed=3)
    await crowd.gather()
    rows = await ask(
        "SELECT bool_and(changed_at = finalized_at), count(*) FROM final WHERE state = %s",
        JobState.COMPLETED,
    )
    assert rows[0][0]
    assert rows[0][1] > 20


@pytest.fixture
async def many(backend: PostgresBackend, namespace: str) -> str:
    for first in range(0, 12_000, 4000):
        ids = [f"many-{n}" for n in range(first, first + 4000)]
        await backend.enqueue_jobs([Job(id=i, type="t", namespace=namespace) for i in ids])
    return namespace


async def test_a_count_is_a_lower_bound_above_the_bound(
    backend: PostgresBackend, many: str
) -> None:
    plain = await backend.search_jobs(JobSearch(namespace=many))
    assert (plain.total_count, plain.total_is_exact) == (12_000, True)
    filtered = await backend.search_jobs(JobSearch(namespace=many, phases=_SCHEDULED))
    assert (filtered.total_count, filtered.total_is_exact) == (10_000, False)
    none = await backend.search_jobs(JobSearch(namespace=many, phases=frozenset({Phase.DELAYED})))
    assert (none.total_count, none.total_is_exact) == (0, True)


async def test_a_search_that_takes_too_long_says_what_to_add(pool: Pool, many: str) -> None:
    finder = Finder(pool, patience_s=0.001)
    with pytest.raises(InvalidArgument, match="add states") as raised:
        await finder.search(JobSearch(namespace=many, phases=_SCHEDULED))
    assert raised.value.field == "states"
    page = await Finder(pool).search(JobSearch(namespace=many, phases=_SCHEDULED, limit=2))
    assert len(page.jobs) == 2
