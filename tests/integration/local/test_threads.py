"""A store that several threads use, each with an event loop of its own."""

import asyncio
from collections import Counter
from threading import Barrier

import pytest
from tests.integration.local.conftest import Local, LocalStore
from tests.integration.local.test_sessions import session
from tests.threads import THREADS, in_threads

from queue_operator.domain.errors import DuplicateJob, Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.store import TTL_S

_JOBS = 300


async def _claim_all(backend: Local, assignee_id: str) -> list[str]:
    mine: list[str] = []
    while jobs := await backend.dequeue_jobs(assignee_id, [], 3):
        mine += [job.id for job in jobs]
    return mine


@pytest.mark.parametrize("shared", [True, False])
async def test_threads_never_share_a_job(store: LocalStore, shared: bool) -> None:
    backends = [await store.open()] * THREADS
    if not shared:
        backends = [await store.open() for _ in range(THREADS)]
    await backends[0].enqueue_jobs([Job(id=f"j-{n}", type="t") for n in range(_JOBS)])
    claimed = await in_threads(lambda n: _claim_all(backends[n], f"w-{n}"))
    times = Counter(job_id for mine in claimed for job_id in mine)
    assert {job_id: n for job_id, n in times.items() if n > 1} == {}
    assert len(times) == _JOBS
    assert await store.faults() == []


async def test_an_id_is_stored_for_one_thread(backend: Local) -> None:
    async def enqueue(_: int) -> int:
        stored = 0
        for n in range(40):
            try:
                await backend.enqueue_job(Job(id=f"j-{n}", type="t"))
                stored += 1
            except DuplicateJob:
                pass
        return stored

    assert sum(await in_threads(enqueue)) == 40
    assert (await backend.get_job_stats([])).total_jobs == 40


async def test_the_books_balance_after_whole_lives_in_threads(
    store: LocalStore, backend: Local
) -> None:
    """Submissions, claims, failures, ends, cancels, sweeps and looks, all through each other."""

    async def live(number: int) -> int:
        freed = 0
        for n in range(25):
            name = f"{number}-{n}"
            await backend.enqueue_job(Job(id=name, type="t", tags=frozenset({str(number)})))
            [job] = await backend.dequeue_jobs(name, [str(number)], 1, lease_ttl_s=TTL_S)
            if n % 3 == 0:
                freed += sum((await backend.fail_job(job.id, "again")).values())
                await backend.dequeue_jobs(name, [str(number)], 1)
            if n % 3 == 1:
                await backend.cancel_jobs([], [job.id])
            await backend.get_job_stats([])
            await backend.expire_leases(lease_ttl_s=TTL_S)
            freed += sum((await backend.complete_job(job.id, name.encode())).values())
        return freed

    failures = THREADS * 9
    assert sum(await in_threads(live)) == THREADS * 25 + failures
    stats = await backend.get_job_stats([])
    assert (stats.completed_jobs, stats.total_jobs) == (THREADS * 25, THREADS * 25)
    assert stats.total_retries == failures
    events = await backend.read_events(limit=10_000)
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    assert Counter(event.event for event in events)["CLAIM"] == THREADS * 25 + failures
    assert await store.faults() == []


async def test_sessions_of_many_threads(backend: Local) -> None:
    async def open_and_close(number: int) -> None:
        for n in range(20):
            await backend.open_session(session(f"{number}-{n}"))
            await backend.touch_sessions([session(f"{number}-{n}", busy=1)])
            await backend.list_sessions()
            if n % 2:
                await backend.close_sessions([f"{number}-{n}"])

    await in_threads(open_and_close)
    assert len(await backend.list_sessions()) == THREADS * 10


async def test_closed_by_one_thread_others_are_told(store: LocalStore) -> None:
    backend = await store.open()

    async def use_until_closed(number: int) -> str:
        for n in range(100_000):
            try:
                await backend.enqueue_job(Job(id=f"{number}-{n}", type="t"))
            except Unavailable:
                return "told"
            if number == 0 and n == 10:
                await backend.close()
        return "never told"

    assert await in_threads(use_until_closed) == ["told"] * THREADS
    counted = await (await store.open()).get_job_stats([])
    assert counted.pending_jobs == counted.total_jobs >= 11


async def test_listeners_in_threads_hear_of_all(backend: Local) -> None:
    """Each on a loop of its own, of what another thread does."""
    heard = Barrier(THREADS)

    async def listen(number: int) -> bool:
        news = aiter(backend.listen())
        await anext(news)
        heard.wait(60)
        if number == 0:
            await backend.enqueue_job(Job(id="a", type="t"))
        return bool(await anext(news))

    assert all(await asyncio.wait_for(in_threads(listen), 60))
    assert (await backend.get_job("a")).state is JobState.INITIAL_PENDING
