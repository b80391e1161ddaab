"""News for those who wait, whoever made them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.local.conftest import Local, LocalStore
from tests.waiting import DEADLINE_S

from queue_operator.backends.listening import POLL_S, listen
from queue_operator.backends.protocol import News, Pause, Signals, Topic, WorkerSession
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.testing.store import TTL_S

EVERYTHING = frozenset(Topic)
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Listener:
    """What one process hears. It polls when it is asked for what it heard, and only then."""

    def __init__(self, store: LocalStore, backend: Local) -> None:
        self._asked = asyncio.Semaphore(0)
        self._news: asyncio.Queue[News] = asyncio.Queue()
        self._done = asyncio.Semaphore(0)
        self._stream = listen(backend._news, store.clock, self._sleep)
        self._task = asyncio.create_task(self._run())

    async def _sleep(self, delay_s: float) -> None:
        assert delay_s == POLL_S <= 0.25
        self._done.release()
        await self._asked.acquire()

    async def _run(self) -> None:
        async with aclosing(self._stream) as stream:
            async for news in stream:
                self._news.put_nowait(news)

    async def first(self) -> frozenset[Topic]:
        """What the poll tells that comes before all sleep."""
        async with asyncio.timeout(DEADLINE_S):
            await self._done.acquire()
        return frozenset() if self._news.empty() else frozenset(self._news.get_nowait())

    async def heard(self) -> frozenset[Topic]:
        """What the next poll tells."""
        self._asked.release()
        return await self.first()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.fixture
async def listener(store: LocalStore) -> AsyncIterator[Listener]:
    """On a backend of its own, as in another process."""
    listener = Listener(store, await store.open())
    assert await listener.first() == EVERYTHING
    yield listener
    await listener.close()


def session(**fields: object) -> WorkerSession:
    known = WorkerSession(session_id="s-1", namespace="team", worker_name="mailer")
    return replace(known, **fields)  # type: ignore[arg-type]


async def _claimed(backend: Local) -> str:
    demand = Demand(assignee_id="w", limit=1)
    [taken] = await backend.claim([demand], lease_ttl_s=TTL_S)
    return taken.token


async def test_a_backend_is_the_source_of_signals(backend: Local) -> None:
    assert isinstance(backend, Signals)
    async with aclosing(backend.listen()) as topics:  # type: ignore[type-var]
        assert frozenset(await anext(topics)) == EVERYTHING


async def test_new_and_returning_jobs_are_told(backend: Local, listener: Listener) -> None:
    assert not await listener.heard()
    await backend.enqueue_job(Job(id="a", type="t"))
    assert await listener.heard() == {Topic.READY}
    token = await _claimed(backend)
    assert not await listener.heard()
    await backend.settle([Outcome("a", Event.RELEASE, token=token)])
    assert await listener.heard() == {Topic.READY}
    token = await _claimed(backend)
    await backend.complete_job("a", b"", token=token)
    assert not await listener.heard()


async def test_reading_and_heartbeats_are_told_to_nobody(
    backend: Local, listener: Listener
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    token = await _claimed(backend)
    await backend.cancel_jobs([], ["a"])
    assert await listener.heard() == {Topic.READY, Topic.CANCEL}
    await backend.extend_leases([Held("a", token)], lease_ttl_s=TTL_S)
    await backend.get_job("a")
    await backend.expire_leases(lease_ttl_s=TTL_S)
    assert not await listener.heard()


async def test_cancels_are_told_and_told_again_when_forced(
    backend: Local, listener: Listener
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    await _claimed(backend)
    assert await listener.heard() == {Topic.READY}
    await backend.cancel_jobs([], ["a"])
    assert await listener.heard() == {Topic.CANCEL}
    await backend.cancel_jobs([], ["a"], force=True)
    assert await listener.heard() == {Topic.CANCEL}


async def test_a_child_that_is_let_go_is_told(backend: Local, listener: Listener) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    assert await listener.heard() == {Topic.READY}
    await backend.enqueue_job(Job(id="b", type="t", depends_on=("a",)))
    assert not await listener.heard()
    await backend.complete_job("a", b"", token=await _claimed(backend))
    assert await listener.heard() == {Topic.READY}


async def test_a_child_is_told_also_by_whose_clock_is_behind(
    store: LocalStore, backend: Local, listener: Listener
) -> None:
    await backend.enqueue_jobs([Job(id="a", type="t"), Job(id="b", type="t", depends_on=("a",))])
    token = await _claimed(backend)
    await listener.heard()
    # It became due before the listener's last look, which could not see it yet.
    store.clock.now -= timedelta(seconds=30)
    await backend.complete_job("a", b"", token=token)
    assert await listener.heard() == {Topic.READY}


async def test_the_end_of_a_pause_is_told_to_who_waits_for_jobs(
    backend: Local, listener: Listener
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    assert await listener.heard() == {Topic.READY}
    await backend.pause(Pause(namespace="default", type="t", since=_NOON))
    assert await listener.heard() == {Topic.PAUSE}
    assert await backend.resume("default", "t")
    assert await listener.heard() == {Topic.PAUSE, Topic.READY}
    # There was none to end any more.
    assert not await backend.resume("default", "t")
    assert not await listener.heard()


async def test_a_delayed_job_is_told_when_its_time_comes(
    store: LocalStore, backend: Local, listener: Listener
) -> None:
    await backend.enqueue_job(Job(id="a", type="t", delay_s=10.0))
    assert await listener.heard() == {Topic.READY}
    store.clock.advance(9.0)
    assert not await listener.heard()
    store.clock.advance(2.0)
    assert await listener.heard() == {Topic.READY}
    assert not await listener.heard()


async def test_sessions_are_told_when_they_change(backend: Local, listener: Listener) -> None:
    await backend.open_session(session(busy=1))
    assert await listener.heard() == {Topic.SESSION}
    await backend.touch_sessions([session(busy=1)])
    assert not await listener.heard()
    await backend.touch_sessions([session(busy=2)])
    assert await listener.heard() == {Topic.SESSION}
    await backend.close_sessions(["missing"])
    assert not await listener.heard()
    await backend.close_sessions(["s-1"])
    assert await listener.heard() == {Topic.SESSION}


async def test_what_was_undone_is_told_to_nobody(backend: Local, listener: Listener) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    assert await listener.heard() == {Topic.READY}
    refused = [Job(id="b", type="t"), Job(id="a", type="t")]
    assert [bool(one.error) for one in await backend.submit(refused, atomic=False)] == [False, True]
    assert await listener.heard() == {Topic.READY}
    with pytest.raises(Exception, match="already exists"):
        await backend.submit([Job(id="c", type="t"), Job(id="a", type="t")])
    assert not await listener.heard()


async def test_after_an_outage_everything_may_have_changed(
    store: LocalStore, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    await store.break_down()
    for _ in range(3):
        assert not await listener.heard()
    await store.mend()
    assert await listener.heard() == EVERYTHING
    assert not await listener.heard()
    # Once per outage, not once per poll.
    assert len(caplog.records) == 1
