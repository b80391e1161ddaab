"""What is committed late is told too, and what was pruned cannot be. All else that those are told
who follow jobs is asked of every store.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.test_late_commits import held_up

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.errors import PositionExpired
from queue_operator.domain.job import Job
from queue_operator.queue.followers import Wish
from queue_operator.queue.hub import EventHub
from queue_operator.testing.backend.following import of, told

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
async def hub(backend: PostgresBackend) -> AsyncIterator[EventHub]:
    hub = EventHub(backend.followed)
    yield hub
    await hub.close()


async def submit(backend: PostgresBackend, namespace: str, *ids: str) -> None:
    await backend.enqueue_jobs([Job(id=one, type="t", namespace=namespace) for one in ids])


async def test_what_is_committed_late_is_told_once(
    backend: PostgresBackend, hub: EventHub, ask: Ask, dsn: str, namespace: str
) -> None:
    """By whoever was there, and by whoever comes back from a position before or after it."""
    everything = Wish(namespace=namespace)
    # Its namespace must be there.
    await submit(backend, namespace, "before")
    async with hub.follow(everything, caller="a") as follower:
        start = hub.position_of(follower)
        async with held_up(dsn, namespace):
            late = Job(id="late", type="t", namespace=namespace, idempotency_key="late")
            submitting = asyncio.create_task(backend.enqueue_job(late))
            while await ask(WAITING) == [(0,)]:
                assert not submitting.done()
            await submit(backend, namespace, "young")
            young = await told(follower, of("young", "SUBMIT"))
        await submitting
        assert [one.job_id for one in young] == ["young"]
        assert [one.job_id for one in await told(follower, of("late", "SUBMIT"))] == ["late"]
        await submit(backend, namespace, "last")
        assert [one.job_id for one in await told(follower, of("last", "SUBMIT"))] == ["last"]
    for after, missed in ((start, {"young", "late", "last"}), (young[-1].id, {"late", "last"})):
        async with hub.follow(everything, caller="a", after=after) as follower:
            await submit(backend, namespace, f"end-{len(missed)}")
            found = [one.job_id for one in await told(follower, of(f"end-{len(missed)}", "SUBMIT"))]
        assert len(found) == len(set(found))
        assert missed < set(found)
        assert "before" not in found


async def test_what_was_pruned_cannot_be_told(own_dsn: str) -> None:
    backend = await PostgresBackend.open(own_dsn)
    hub = EventHub(backend.followed)
    wish = Wish(namespace="default")
    async with hub.follow(wish, caller="a") as follower:
        old = hub.position_of(follower)
        await submit(backend, "default", "a")
        [news] = await told(follower, of("a", "SUBMIT"))
        await backend.roll_up()
        assert await backend.prune_events(1e-6) == 1
        async with hub.follow(wish, caller="a", after=news.id):
            pass
        with pytest.raises(PositionExpired):
            async with hub.follow(wish, caller="a", after=old):
                pass
    await hub.close()
    await backend.close()
