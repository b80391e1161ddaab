from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.progress import ProgressStore
from queue_operator.backends.protocol import ProgressReport
from queue_operator.domain.job import Assignment, Demand, Job, Progress

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
Steps = Callable[..., Awaitable[list[dict[str, Any]]]]
Claim = Callable[[int], Awaitable[list[Assignment]]]


@pytest.fixture
def store(pool: Pool) -> ProgressStore:
    return ProgressStore(pool)


@pytest.fixture
def claim(backend: PostgresBackend, namespace: str) -> Claim:
    async def submit_and_claim(count: int) -> list[Assignment]:
        jobs = [Job(id=uuid4().hex, type="mail", namespace=namespace) for _ in range(count)]
        await backend.enqueue_jobs(jobs)
        demand = Demand(assignee_id="worker", limit=count, namespace=namespace)
        return list(await backend.claim([demand], lease_ttl_s=60))

    return submit_and_claim


def report(
    assignment: Assignment, percent: int, *, second: int = 0, token: str | None = None
) -> ProgressReport:
    return ProgressReport(
        job_id=assignment.job_id,
        token=assignment.token if token is None else token,
        namespace=assignment.namespace,
        progress=Progress(percent, f"{percent} done", NOON + timedelta(seconds=second)),
    )


async def shown(backend: PostgresBackend, assignment: Assignment) -> int | None:
    job = await backend.get_job(assignment.job_id, namespace=assignment.namespace)
    return job.progress.percent if job.progress else None


async def test_progress_of_many_jobs_is_shown(
    store: ProgressStore, backend: PostgresBackend, claim: Claim
) -> None:
    one, two, three = await claim(3)
    await store.record_progress([report(one, 10), report(two, 20)])
    job = await backend.get_job(one.job_id, namespace=one.namespace)
    assert job.progress == Progress(10, "10 done", NOON)
    assert [await shown(backend, two), await shown(backend, three)] == [20, None]


async def test_the_newest_wins_in_whatever_order_they_come(
    store: ProgressStore, backend: PostgresBackend, claim: Claim
) -> None:
    [one] = await claim(1)
    await store.record_progress([report(one, 50, second=5), report(one, 30, second=3)])
    assert await shown(backend, one) == 50
    await store.record_progress([report(one, 40, second=4)])
    assert await shown(backend, one) == 50
    await store.record_progress([report(one, 60, second=6)])
    assert await shown(backend, one) == 60


@pytest.mark.parametrize("token", [str(uuid4()), "", "not a token"])
async def test_a_token_that_is_not_current_changes_nothing_and_disturbs_nobody(
    store: ProgressStore, backend: PostgresBackend, claim: Claim, token: str
) -> None:
    one, two = await claim(2)
    await store.record_progress([report(one, 99, second=9, token=token), report(two, 20)])
    await store.record_progress([report(one, 98, second=9, token=token), report(one, 10)])
    assert [await shown(backend, one), await shown(backend, two)] == [10, 20]


async def test_unknown_jobs_and_namespaces_are_ignored(
    store: ProgressStore, backend: PostgresBackend, claim: Claim
) -> None:
    [one] = await claim(1)
    elsewhere = ProgressReport(
        job_id=one.job_id, token=one.token, namespace="nobody", progress=report(one, 5).progress
    )
    await store.record_progress([elsewhere])
    await store.record_progress([])
    assert await shown(backend, one) is None


async def test_progress_ends_with_the_attempt(
    store: ProgressStore, backend: PostgresBackend, claim: Claim
) -> None:
    [one] = await claim(1)
    await store.record_progress([report(one, 70)])
    await backend.complete_job(one.job_id, b"", namespace=one.namespace, token=one.token)
    await store.record_progress([report(one, 80, second=8)])
    assert await shown(backend, one) is None


async def test_a_message_that_no_text_column_can_hold_is_shown_without_it(
    store: ProgressStore, backend: PostgresBackend, claim: Claim
) -> None:
    [one] = await claim(1)
    spoiled = ProgressReport(
        job_id=one.job_id,
        token=one.token,
        namespace=one.namespace,
        progress=Progress(1, "ab\x00c", NOON),
    )
    await store.record_progress([spoiled])
    job = await backend.get_job(one.job_id, namespace=one.namespace)
    assert job.progress == Progress(1, "abc", NOON)


async def test_plan_made_with_one_lease_does_not_read_all_leases(
    claim: Claim, ask: Ask, steps: Steps
) -> None:
    await ask("DELETE FROM lease")
    [one] = await claim(1)
    await ask("VACUUM ANALYZE lease")
    scans = await steps(
        "progress_record",
        "lease_pkey",
        namespaces=[one.namespace] * 500,
        job_ids=[one.job_id] * 500,
        tokens=[one.token] * 500,
        percents=[1] * 500,
        messages=[""] * 500,
        updated_ats=[NOON] * 500,
    )
    assert len(scans) == 1
    assert all("job_no" in scan["Index Cond"] for scan in scans)


async def test_the_progress_of_a_lease_that_is_gone_is_removed_by_a_sweep(
    store: ProgressStore, backend: PostgresBackend, claim: Claim, ask: Ask
) -> None:
    done, runs = await claim(2)
    await store.record_progress([report(done, 70), report(runs, 40)])
    await backend.complete_job(done.job_id, b"", namespace=done.namespace, token=done.token)
    for _ in range(2):
        await ask("UPDATE lease_check SET look_at = now() - interval '1 s' WHERE kind = 'PROGRESS'")
        await ask("UPDATE sweep SET marks = ARRAY(SELECT m - interval '1 m' FROM unnest(marks) m)")
        await backend.expire_leases(lease_ttl_s=600)
        assert await shown(backend, runs) == 40
        assert await ask("SELECT percent FROM progress") == [(40,)]
