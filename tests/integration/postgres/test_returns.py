"""Claims without an end whose answer was lost: what they took goes back all the same."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

import psycopg
import pytest
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.proxy import Proxy, proxied
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.states import JobState


class Pauses:
    """Pauses that end when the test says so; `begun` says that there is one."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        assert seconds > 0
        self.begun.set()
        await self.over.wait()


async def _at_once(_: float) -> None:
    await asyncio.sleep(0)


async def _has_waited(backend: PostgresBackend, namespace: str, job_id: str) -> bool:
    """Whether the job waits, with all its attempts; it is cancelled."""
    job = await backend.get_job(job_id, namespace=namespace)
    await backend.cancel_jobs([], [job_id], namespace=namespace)
    assert job.attempt == 0
    assert job.state in (JobState.INITIAL_PENDING, JobState.FAILED_RETRY)
    return job.transition > 1


async def test_a_dequeue_whose_answer_was_lost_gives_its_jobs_back(
    dsn: str, backend: PostgresBackend, namespace: str
) -> None:
    carried_out = False
    async with proxied(dsn) as (proxy, address):
        for n in count(1):
            await backend.enqueue_job(Job(id=f"{n}", type="t", namespace=namespace))
            cut = await PostgresBackend.open(address, pool_size=2, sleep=_at_once)
            proxy.cut_at(n)
            try:
                await cut.dequeue_jobs("w", [], 1, namespace=namespace)
            except Unavailable:
                proxy.disarm()
                await cut.close()
                carried_out |= await _has_waited(backend, namespace, f"{n}")
                continue
            is_over = proxy.is_armed()
            proxy.disarm()
            await cut.close()
            # Else it struck a line that was only being opened.
            if is_over:
                break
    assert carried_out


async def test_a_claim_that_is_committed_after_its_line_broke_goes_back(
    dsn: str, backend: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_job(Job(id="a", type="t", namespace=namespace))
    pauses = Pauses()
    async with proxied(dsn) as (proxy, address):
        cut = await PostgresBackend.open(address, pool_size=2, sleep=pauses)
        async with await psycopg.AsyncConnection.connect(dsn) as other:
            await other.execute("LOCK TABLE queue_operator.job_event IN SHARE MODE")
            claiming = asyncio.create_task(cut.dequeue_jobs("w", [], 1, namespace=namespace))
            await until_waiting(dsn, 1)
            await proxy.hang_up()
            with pytest.raises(Unavailable):
                await claiming
            # The first look finds nothing yet.
            await pauses.begun.wait()
            await other.rollback()
        await _until(backend, namespace, lambda job: job.state is JobState.RUNNING)
        pauses.over.set()
        await cut.close()
    assert await _has_waited(backend, namespace, "a")


async def test_a_dequeue_cancelled_as_its_line_breaks_gives_its_jobs_back(
    dsn: str, backend: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_job(Job(id="a", type="t", namespace=namespace))
    async with proxied(dsn) as (proxy, address):
        cut = await PostgresBackend.open(address, pool_size=2, sleep=_at_once)
        proxy.stop_after(b"oldest due jobs")
        claiming = asyncio.create_task(cut.dequeue_jobs("w", [], 1, namespace=namespace))
        await proxy.until_stopped()
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        # The claim is committed, and its answer is on the way.
        await proxy.hang_up()
        proxy.go_on()
        await cut.close()
    assert await _has_waited(backend, namespace, "a")


async def test_others_with_the_same_name_keep_what_they_claimed(
    dsn: str, backend: PostgresBackend, namespace: str
) -> None:
    """It is the token that tells whose claim it was, not the assignee."""
    for job_id in ("a", "b"):
        await backend.enqueue_job(Job(id=job_id, type=job_id, namespace=namespace))
    [held] = await backend.claim(
        [Demand(assignee_id=namespace, limit=1, namespace=namespace)], lease_ttl_s=60
    )
    async with proxied(dsn) as (proxy, address):
        cut = await PostgresBackend.open(address, pool_size=2, sleep=_at_once)
        proxy.stop_after(b"oldest due jobs")
        claiming = asyncio.create_task(cut.dequeue_jobs(namespace, [], 1, namespace=namespace))
        await proxy.until_stopped()
        await proxy.hang_up()
        proxy.go_on()
        with pytest.raises(Unavailable):
            await claiming
        await cut.close()
    [kept] = await backend.leased([namespace])
    assert (kept.job_id, kept.token) == (held.job_id, held.token)


@asynccontextmanager
async def _given_back_in_vain(
    dsn: str, backend: PostgresBackend, namespace: str, pauses: Pauses
) -> AsyncIterator[tuple[Proxy, PostgresBackend]]:
    """A backend that claimed job "a" for a caller who is gone, and failed to give it back since its
    line is down; and that line.
    """
    await backend.enqueue_job(Job(id="a", type="t", namespace=namespace))
    async with proxied(dsn) as (proxy, address):
        away = await PostgresBackend.open(address, pool_size=2, connect_timeout_s=0.3, sleep=pauses)
        proxy.stop_after(b"oldest due jobs")
        claiming = asyncio.create_task(away.dequeue_jobs("w", [], 1, namespace=namespace))
        await proxy.until_stopped()
        claiming.cancel()
        await proxy.go_down()
        proxy.go_on()
        await pauses.begun.wait()
        yield proxy, away


async def test_what_cannot_be_given_back_now_is_given_back_later(
    dsn: str, backend: PostgresBackend, namespace: str
) -> None:
    pauses = Pauses()
    async with _given_back_in_vain(dsn, backend, namespace, pauses) as (proxy, away):
        proxy.come_back()
        pauses.over.set()
        await _until(backend, namespace, lambda job: job.state is JobState.FAILED_RETRY)
        await away.close()
    assert await _has_waited(backend, namespace, "a")


async def test_a_store_that_stays_away_keeps_nobody_from_closing(
    dsn: str, backend: PostgresBackend, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with _given_back_in_vain(dsn, backend, namespace, Pauses()) as (_, away):
        async with asyncio.timeout(DEADLINE_S):
            await away.close()
    assert "not given back" in caplog.text
    # Who knows the name finds it.
    [lost] = [one for one in await backend.leased(["w"]) if one.namespace == namespace]
    assert lost.job_id == "a"


async def _until(backend: PostgresBackend, namespace: str, is_so: Callable[[Job], bool]) -> None:
    while not is_so(await backend.get_job("a", namespace=namespace)):
        pass
