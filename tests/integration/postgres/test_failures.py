"""Searches for failures, and how those spread."""

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, LiteralString

import pytest
from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.finder import Finder
from queue_operator.backends.protocol import FailurePage, FailureSearch
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import Phase, phase

TYPES = ("mail", "report", "sms")
FAILED = (JobState.DEAD_LETTER, JobState.FAILED_RETRY)
PHASES = (Phase.FAILED, Phase.DEAD_LETTER, Phase.RETRYING)


async def fail_many(backend: PostgresBackend, namespace: str, seed: int) -> list[str]:
    """Ids of jobs most of which failed, for several reasons, and some did not."""
    draw = random.Random(seed)  # noqa: S311
    ids = [f"job-{n}" for n in range(120)]
    await backend.enqueue_jobs(
        [
            Job(
                id=i, type=draw.choice(TYPES), namespace=namespace, max_attempts=draw.choice([1, 5])
            )
            for i in ids
        ]
    )
    for _ in range(6):
        demand = Demand(assignee_id="w", limit=30, namespace=namespace)
        claimed = await backend.claim([demand], lease_ttl_s=60)
        events = [Event.FAIL] * 5 + [Event.RELEASE, Event.COMPLETE, Event.STOP]
        await backend.settle(
            [
                Outcome(
                    one.job_id,
                    draw.choice(events),
                    namespace=namespace,
                    token=one.token,
                    retry_after_s=draw.choice([0.0, 3600.0]),
                    error=ErrorInfo(
                        "x", draw.choice([*ErrorCategory]), draw.choice(["", "A", "B"])
                    ),
                )
                for one in claimed
                if draw.random() < 0.9
            ]
        )
    return ids


def search_of(draw: random.Random, namespace: str, moments: list[datetime]) -> FailureSearch:
    def some(values: Any) -> frozenset[Any]:
        return frozenset(draw.sample(list(values), draw.choice([0, 0, 1, 2])))

    return FailureSearch(
        namespace=namespace,
        states=frozenset(draw.sample(FAILED, draw.choice([0, 0, 1, 2]))),
        categories=some(ErrorCategory),
        types=some(TYPES),
        error_code=draw.choice(["", "", "A"]),
        phases=frozenset(draw.sample(PHASES, draw.choice([0, 0, 0, 1, 2]))),
        failed_after=draw.choice([None, None, *moments]),
        failed_before=draw.choice([None, None, *moments]),
        limit=draw.choice([2, 15, 1000]),
    )


def matches(job: Job, search: FailureSearch) -> bool:
    error, at = job.error, job.updated_at
    if error is None or at is None or job.state not in FAILED:
        return False
    return (
        (not search.states or job.state in search.states)
        and (not search.categories or error.category in search.categories)
        and (not search.types or job.type in search.types)
        and search.error_code in ("", error.code)
        and (not search.phases or phase(job, at) in search.phases)
        and (search.failed_after is None or at > search.failed_after)
        and (search.failed_before is None or at < search.failed_before)
    )


async def all_pages(backend: PostgresBackend, search: FailureSearch) -> list[FailurePage]:
    pages = [await backend.search_failures(search)]
    while pages[-1].next_cursor:
        search = replace(search, cursor=pages[-1].next_cursor)
        pages.append(await backend.search_failures(search))
    return pages


@pytest.mark.parametrize("seed", range(3))
async def test_failures_are_found_and_counted_exactly(
    backend: PostgresBackend, namespace: str, ask: Ask, seed: int
) -> None:
    ids = await fail_many(backend, namespace, seed)
    numbers: dict[str, int] = dict(
        await ask(
            "SELECT job.id, job_no FROM job JOIN namespace ON namespace.id = namespace_id"
            " WHERE name = %s",
            namespace,
        )
    )
    jobs = [await backend.get_job(i, namespace=namespace) for i in ids]
    times = sorted(job.updated_at for job in jobs if job.updated_at)
    draw, sizes = random.Random(seed), set()  # noqa: S311
    for _ in range(40):
        search = search_of(draw, namespace, times[::30])
        found = [job for job in jobs if matches(job, search)]
        found.sort(key=lambda job: (job.updated_at, numbers[job.id]), reverse=True)
        pages = await all_pages(backend, search)
        assert [job for page in pages for job in page.jobs] == found, search
        for page in pages:
            assert page.total_count == len(found)
            assert page.by_type == Counter(job.type for job in found)
            assert page.by_code == Counter(job.error.code for job in found if job.error)
            assert page.by_category == Counter(job.error.category for job in found if job.error)
        sizes.add(len(found))
    assert len(sizes) > 10
    assert {job.state for job in jobs} >= set(FAILED)


async def test_a_failure_that_was_retried_and_given_back_is_one_again(
    backend: PostgresBackend, namespace: str
) -> None:
    """Its newest error is still the one that matters."""
    await backend.enqueue_job(Job(id="j", type="t", namespace=namespace, max_attempts=9))
    for event in (Event.FAIL, Event.RELEASE):
        demand = Demand(assignee_id="w", limit=1, namespace=namespace)
        [one] = await backend.claim([demand], lease_ttl_s=60)
        assert (await backend.search_failures(FailureSearch(namespace=namespace))).total_count == 0
        error = ErrorInfo("x", code="E") if event is Event.FAIL else None
        await backend.settle(
            [Outcome("j", event, namespace=namespace, token=one.token, error=error)]
        )
        page = await backend.search_failures(FailureSearch(namespace=namespace))
        assert page.by_code == {"E": 1}


async def test_a_search_that_takes_too_long_says_what_to_add(
    pool: Pool, backend: PostgresBackend, namespace: str
) -> None:
    for _ in range(10):
        await backend.enqueue_jobs(
            [Job(id=f"{n}-{_}", type="t", namespace=namespace, max_attempts=1) for n in range(500)]
        )
        demand = Demand(assignee_id="w", limit=500, namespace=namespace)
        claimed = await backend.claim([demand], lease_ttl_s=60)
        error = ErrorInfo("x" * 5000)
        await backend.settle(
            [
                Outcome(one.job_id, Event.FAIL, namespace=namespace, token=one.token, error=error)
                for one in claimed
            ]
        )
    with pytest.raises(InvalidArgument, match="failed_after") as raised:
        await Finder(pool, patience_s=0.001).search_failures(FailureSearch(namespace=namespace))
    assert raised.value.field == "failed_after"
    page = await Finder(pool).search_failures(FailureSearch(namespace=namespace))
    assert page.total_count == 5000


async def test_no_failures_in_a_namespace_that_is_none(backend: PostgresBackend) -> None:
    page = await backend.search_failures(
        FailureSearch(namespace="nobody", failed_after=datetime.now(UTC))
    )
    assert (page.jobs, page.total_count, page.next_cursor) == ((), 0, "")
    assert (page.by_category, page.by_code, page.by_type) == ({}, {}, {})


# Rows of an older release say when they changed, and that was when they failed

WRITTEN_AT = datetime(2026, 1, 2, tzinfo=UTC)
OLDER: dict[str, LiteralString] = {
    "ready": "UPDATE ready SET failed_at = NULL, changed_at = %s WHERE job_no = %s",
    "lease": "UPDATE lease SET failed_at = NULL, changed_at = %s WHERE job_no = %s",
    "final": "UPDATE final SET failed_at = NULL, changed_at = %s WHERE job_no = %s",
}


async def go(backend: PostgresBackend, namespace: str, step: str) -> None:
    """A claim, for streams of these types, or an event."""
    event, *beside = step.split()
    match event:
        case "CLAIM":
            demands = [
                Demand(assignee_id=one, limit=1, namespace=namespace, types=frozenset({one}))
                for one in ("t", *beside)
            ]
            assert len(await backend.claim(demands, lease_ttl_s=60)) == 1
        case "CANCEL":
            await backend.cancel_jobs([], ["j"], namespace=namespace)
        case _:
            outcome = Outcome("j", Event(event), namespace=namespace)
            [answer] = await backend.settle([outcome])
            assert answer.error is None


@pytest.mark.parametrize(
    ("before", "place", "then"),
    [
        ("", "ready", "CLAIM"),
        ("", "ready", "CLAIM other"),
        ("", "ready", "RETRY_NOW"),
        ("", "ready", "CANCEL"),
        ("CLAIM", "lease", "COMPLETE"),
        ("CLAIM", "lease", "STOP"),
        ("CLAIM", "lease", "RELEASE"),
        ("CLAIM", "lease", "CANCEL"),
        ("", "final", "RETRY_NOW"),
    ],
)
async def test_what_happens_to_a_row_of_an_older_release_keeps_when_it_failed(
    backend: PostgresBackend, namespace: str, ask: Ask, before: str, place: str, then: str
) -> None:
    error = ErrorInfo("no", code="E")
    most = 1 if place == "final" else 9
    await backend.enqueue_job(Job(id="j", type="t", namespace=namespace, max_attempts=most))
    await go(backend, namespace, "CLAIM")
    failure = Outcome("j", Event.FAIL, namespace=namespace, error=error, retry_after_s=0.0)
    await backend.settle([failure])
    if before:
        await go(backend, namespace, before)
    [(job_no,)] = await ask(
        "SELECT job_no FROM job JOIN lane ON lane.id = lane_id JOIN namespace n"
        " ON n.id = lane.namespace_id WHERE n.name = %s",
        namespace,
    )
    await ask(OLDER[place], WRITTEN_AT, job_no)
    await go(backend, namespace, then)
    job = await backend.get_job("j", namespace=namespace)
    assert (job.error, job.failed_at) == (error, WRITTEN_AT)
