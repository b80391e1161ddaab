"""Whoever comes back to another store than it left begins anew."""

import asyncio

import pytest
from tests.integration.local.conftest import Local, LocalStore
from tests.threads import THREADS, in_threads

from queue_operator.domain.errors import PositionExpired
from queue_operator.domain.job import Job
from queue_operator.queue.followers import Wish
from queue_operator.queue.hub import EventHub
from queue_operator.testing.backend.following import of, told

ALL = Wish(namespace="default")


async def begun(store: LocalStore, jobs: int) -> tuple[EventHub, str]:
    """A hub of a store in which so much has happened, and where its log ends."""
    backend = await store.open()
    for n in range(jobs):
        await backend.enqueue_job(Job(id=f"{n}", type="t"))
    hub = EventHub(backend.followed)
    async with hub.follow(ALL, caller="a") as follower:
        return hub, hub.position_of(follower)


@pytest.mark.parametrize("jobs", [0, 1])
async def test_another_store_of_the_same_history_is_another(store: LocalStore, jobs: int) -> None:
    """Also while nothing has happened yet."""
    elsewhere = type(store)()
    elsewhere.clock.now = store.clock.now
    hub, here = await begun(store, jobs)
    other, there = await begun(elsewhere, jobs)
    async with hub.follow(ALL, caller="a", after=here):
        pass
    async with other.follow(ALL, caller="a", after=there):
        pass
    with pytest.raises(PositionExpired):
        async with other.follow(ALL, caller="a", after=here):
            pass
    await hub.close()
    await other.close()
    await elsewhere.close()


async def test_what_threads_do_is_told_once(backend: Local) -> None:
    """Those who follow are on one loop, those who submit on others, and they come and go."""

    async def submit(number: int) -> None:
        for n in range(20):
            await backend.enqueue_jobs([Job(id=f"{number}-{n}-{k}", type="t") for k in "ab"])

    hub = EventHub(backend.followed)
    async with hub.follow(ALL, caller="a") as follower:
        submitting = asyncio.create_task(in_threads(submit))
        while not submitting.done():
            async with hub.follow(Wish(namespace="default", types=frozenset({"t"})), caller="b"):
                pass
        await submitting
        await backend.enqueue_job(Job(id="last", type="t"))
        news = await told(follower, of("last", "SUBMIT"))
    await hub.close()
    ids = [one.job_id for one in news]
    assert len(ids) == len(set(ids)) == THREADS * 40 + 1
