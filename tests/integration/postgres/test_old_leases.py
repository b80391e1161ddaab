"""A transaction that was forgotten keeps every dead row, and leases do not mind.

Nothing is timed here: what a call reads is counted by the server, in pages.
"""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.postgres.test_old_snapshot import pinned
from tests.integration.postgres.watching import Watched, watched

from queue_operator.backends.news import Topic
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import ProgressReport
from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.job import Demand, Job, Progress
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

__all__ = ["pinned"]

JOBS = 20_000
BATCH = 1000
RUNNING = 200
BEATS = 300
# So short that the sweeper finds the lease expired.
EXPIRED_S = 0.000001
TTL_S = 600.0
# To pass by the dead rows would be a page for every ten of the jobs.
PAGES = JOBS // 20


async def work_off(backend: PostgresBackend, jobs: int) -> None:
    """So many jobs come and go, and leave their dead rows behind, each sweep some more."""
    for _ in range(0, jobs, BATCH):
        await backend.enqueue_jobs([Job(id=uuid.uuid4().hex, type="t") for _ in range(BATCH)])
        claimed = await backend.claim([Demand(assignee_id="w", limit=BATCH)], lease_ttl_s=EXPIRED_S)
        await backend.settle(
            [Outcome(one.job_id, Event.COMPLETE, token=one.token) for one in claimed]
        )
        assert await backend.expire_leases(lease_ttl_s=TTL_S) == []
        await backend._housekeeping.settled()


async def take(backend: PostgresBackend, count: int, ttl_s: float) -> list[Held]:
    await backend.enqueue_jobs([Job(id=uuid.uuid4().hex, type="t") for _ in range(count)])
    claimed = await backend.claim([Demand(assignee_id="w", limit=count)], lease_ttl_s=ttl_s)
    assert len(claimed) == count
    return [Held(one.job_id, one.token) for one in claimed]


async def beat(backend: PostgresBackend, seen: Watched, held: list[Held]) -> int:
    """How many pages a heartbeat reads."""
    seen.clear()
    await backend.extend_leases(held, lease_ttl_s=TTL_S)
    return seen.pages


async def test_the_last_of_many_heartbeats_reads_no_more_than_the_first(pinned: str) -> None:
    async with watched(pinned, plans="auto") as (backend, seen):
        held = await take(backend, RUNNING, TTL_S)
        pages = [await beat(backend, seen, held) for _ in range(BEATS)]
    # Its own row grows an index by a level now and then.
    assert pages[-1] <= pages[2] + RUNNING // 20, pages


async def test_a_sweep_passes_by_no_dead_row(pinned: str) -> None:
    async with watched(pinned, plans="auto") as (backend, seen):
        await work_off(backend, JOBS)
        for _ in range(3):
            # What is due was renewed, or ended, or has run out.
            held = await take(backend, 30, EXPIRED_S)
            await backend.extend_leases(held[:10], lease_ttl_s=TTL_S)
            await backend.settle(
                [Outcome(h.job_id, Event.COMPLETE, token=h.token) for h in held[10:20]]
            )
            seen.clear()
            lost = await backend.expire_leases(lease_ttl_s=TTL_S)
            assert {one.job_id for one in lost} == {one.job_id for one in held[20:]}
            assert seen.pages <= PAGES, f"{seen.pages} pages\n{seen}"


async def test_what_an_assignee_has_is_found_among_dead_rows(pinned: str) -> None:
    async with watched(pinned, plans="auto") as (backend, seen):
        await work_off(backend, JOBS)
        held = await take(backend, 20, TTL_S)
        seen.clear()
        told = await backend.leased(["w"])
        assert {one.job_id for one in told} == {one.job_id for one in held}
        assert await backend.mark_worker_unresponsive("w") == {"w": 20}
        assert seen.pages <= PAGES, f"{seen.pages} pages\n{seen}"


@pytest.mark.parametrize("what", ["cancel", "delete"])
async def test_a_selection_by_tags_passes_by_no_lease_that_ended(pinned: str, what: str) -> None:
    few = frozenset({"few"})
    async with watched(pinned, plans="auto") as (backend, seen):
        await work_off(backend, JOBS)
        await backend.enqueue_jobs([Job(id=f"few-{n}", type="t", tags=few) for n in range(3)])
        demand = Demand(assignee_id="w", limit=1, tags=few)
        assert len(await backend.claim([demand], lease_ttl_s=TTL_S)) == 1
        seen.clear()
        if what == "cancel":
            assert len((await backend.cancel_jobs(few, [])).cancelled_job_ids) == 3
        else:
            with pytest.raises(InvalidTransition):
                await backend.delete_jobs(few, [])
        assert seen.whole_tables & {"lease", "ready"} == set(), str(seen)
        assert seen.pages <= PAGES // 4, f"{seen.pages} pages\n{seen}"


async def test_the_last_of_many_pulses_reads_no_more_than_the_first(pinned: str) -> None:
    """Though each announcement in between raised a version."""
    async with watched(pinned, plans="auto") as (backend, seen):
        pages: list[int] = []
        for _ in range(BEATS):
            await backend._announcer._raise({Topic.READY: None, Topic.MIRROR: None})
            seen.clear()
            await backend._pulse._beat()
            pages.append(seen.pages)
    assert pages[-1] <= pages[2] + 2, pages


async def test_progress_told_again_and_again_costs_no_more(pinned: str) -> None:
    """Neither to tell, nor to read, nor by a heartbeat of the same job."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    async with watched(pinned, plans="auto") as (backend, seen):
        held = await take(backend, 10, TTL_S)
        pages: list[int] = []
        for n in range(BEATS):
            seen.clear()
            progress = Progress(n % 100, "", start + timedelta(seconds=n))
            await backend.record_progress(
                [
                    ProgressReport(
                        job_id=h.job_id, token=h.token, namespace=h.namespace, progress=progress
                    )
                    for h in held
                ]
            )
            await backend.get_job(held[0].job_id)
            await backend.extend_leases(held, lease_ttl_s=TTL_S)
            pages.append(seen.pages)
    # Indexes grow by a level now and then.
    assert pages[-1] <= pages[2] + 6 * len(held), pages
