"""A hub has room for so many, and those it has room for no more find it again."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.waiting import DEADLINE_S, together

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.positions import Position
from queue_operator.domain.errors import JobNotFound, QuotaExceeded
from queue_operator.domain.job import Job
from queue_operator.queue.followers import Follower, Wish
from queue_operator.queue.hub import TELLS, EventHub

ALL = Wish(namespace="default")


async def test_only_so_many_may_follow() -> None:
    hub = EventHub(MemoryBackend().followed, streams=3, each=2)
    async with hub.follow(ALL, caller="a"), hub.follow(ALL, caller="a"):
        with pytest.raises(QuotaExceeded, match="one caller"):
            async with hub.follow(ALL, caller="a"):
                pass
        async with hub.follow(ALL, caller="b"):
            with pytest.raises(QuotaExceeded, match="this server"):
                async with hub.follow(ALL, caller="c"):
                    pass
    assert hub.streams == 0
    with pytest.raises(JobNotFound):
        async with hub.follow(Wish(namespace="default", job_ids=frozenset({"no"})), caller="a"):
            pass
    assert hub.streams == 0
    await hub.close()


@pytest.mark.parametrize("is_late", [False, True], ids=["live", "of-the-past"])
async def test_others_have_their_turn_while_much_is_told(is_late: bool) -> None:
    backend = MemoryBackend()
    hub, followers, jobs = EventHub(backend.followed), 4, 1500
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        now = await stack.enter_async_context(hub.follow(ALL, caller="a"))
        after = hub.position_of(now) if is_late else None
        wanted = [Job(id=f"j{n}", type="t") for n in range(jobs)]

        async def follow() -> Follower:
            return await stack.enter_async_context(hub.follow(ALL, caller="a", after=after))

        if is_late:
            await backend.enqueue_jobs(wanted)
            told = [await follow()]
        else:
            told = [await follow() for _ in range(followers)]
            await backend.enqueue_jobs(wanted)
        sizes = await together([_sizes(hub, one, jobs) for one in told])
    # Of what many are told together each hears a part at a time, and of the past likewise.
    most = TELLS if is_late else TELLS // followers
    assert all(max(some) <= most for some in sizes), sizes
    await hub.close()


async def _sizes(hub: EventHub, one: Follower, jobs: int) -> list[int]:
    """Of what it is told at once. What it says of where it is has all that it was told."""
    sizes = list[int]()
    while sum(sizes) < jobs:
        batch = await one.next(DEADLINE_S)
        sizes.append(len(batch.news))
        told, now = Position.parse(batch.news[-1].id), Position.parse(hub.position_of(one))
        assert now.horizon.covers(told.horizon)
        assert all(now.has(xid, place) for xid, place in told.partly.items())
    return sizes
