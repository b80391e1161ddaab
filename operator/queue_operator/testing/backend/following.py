"""Following jobs, for stores whose log a hub can read: each who follows is told everything once,
also what happened while it was away.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Final

import pytest
import pytest_asyncio

from queue_operator.backends.horizon import Horizon
from queue_operator.backends.streams import Followed, Kind
from queue_operator.domain.errors import (
    InvalidArgument,
    JobNotFound,
    PositionExpired,
    Unavailable,
)
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import Phase
from queue_operator.queue.followers import BUFFER, Ending, Follower, News, Wish
from queue_operator.queue.hub import EventHub
from queue_operator.testing.driving import running
from queue_operator.testing.store import TTL_S, Contract, Store

PATIENCE_S: Final = 120.0
"""However busy the machine is."""
_EVERYTHING: Final = Wish(namespace="default")


def followed_of(backend: Contract) -> Followed:
    followed = getattr(backend, "followed", None)
    assert isinstance(followed, Followed)
    return followed


@pytest_asyncio.fixture
async def hub(backend: Contract) -> AsyncIterator[EventHub]:
    hub = EventHub(followed_of(backend))
    yield hub
    await hub.close()


@pytest_asyncio.fixture
async def elsewhere(store: Store) -> AsyncIterator[EventHub]:
    """Of another replica."""
    hub = EventHub(followed_of(await store.open()))
    yield hub
    await hub.close()


async def told(follower: Follower, until: Callable[[News], bool]) -> list[News]:
    """All that comes up to the first that is so."""
    found = list[News]()
    while not (found and until(found[-1])):
        batch = await follower.next(PATIENCE_S)
        assert batch.news, f"nothing but {batch.ending} after {found}"
        found += batch.news
    return found


def of(job_id: str, event: str) -> Callable[[News], bool]:
    return lambda news: (news.job_id, news.event) == (job_id, event)


async def submit(backend: Contract, *ids: str) -> None:
    await backend.enqueue_jobs([Job(id=one, type="t") for one in ids])


async def end(backend: Contract, error: ErrorInfo | None = None) -> None:
    """Claims all there is, and ends it."""
    claimed = await backend.claim([Demand(assignee_id="w", limit=100)], lease_ttl_s=TTL_S)
    event = Event.EXHAUST if error else Event.COMPLETE
    outcomes = [Outcome(one.job_id, event, token=one.token, error=error) for one in claimed]
    await backend.settle(outcomes)


def following(*ids: str) -> Wish:
    return Wish(namespace="default", job_ids=frozenset(ids))


def _statuses(news: list[News]) -> list[Phase]:
    return [one.status for one in news]


async def test_many_go_on_elsewhere_each_from_its_own_place(
    backend: Contract, hub: EventHub, elsewhere: EventHub
) -> None:
    async with hub.follow(_EVERYTHING, caller="a") as follower:
        start = hub.position_of(follower)
        for n in range(3):
            await submit(backend, f"{n}-a", f"{n}-b")
            await end(backend)
        news = await told(follower, of("2-b", "COMPLETE"))
    ids = [one.id for one in news]
    assert len(set(ids)) == len(ids) == 18
    async with AsyncExitStack() as stack:
        resumed = await asyncio.gather(
            *(
                stack.enter_async_context(elsewhere.follow(_EVERYTHING, caller="a", after=after))
                for after in (start, *ids)
            )
        )
        await submit(backend, "more")
        found = [await told(one, of("more", "SUBMIT")) for one in resumed]
    whole = [(one.job_id, one.event) for one in (*news, found[0][-1])]
    for place, rest in enumerate(found):
        assert [(one.job_id, one.event) for one in rest] == whole[place:]


async def test_a_failure_shows_as_the_status_says(backend: Contract, hub: EventHub) -> None:
    await submit(backend, "a")
    async with hub.follow(following("a"), caller="a") as follower:
        await end(backend, ErrorInfo(category=ErrorCategory.PERMANENT, message="no"))
        news = await told(follower, of("a", "EXHAUST"))
        assert _statuses(news) == [Phase.SCHEDULED, Phase.RUNNING, Phase.FAILED]
        assert [one.attempt for one in news] == [0, 1, 1]
        assert (await follower.next(PATIENCE_S)).ending is Ending.OVER
    async with hub.follow(following("a"), caller="a") as follower:
        [now], ending = await follower.next(PATIENCE_S)
        assert (now.status, now.state, now.attempt) == (Phase.FAILED, JobState.DEAD_LETTER, 1)
        # Where others write to the same server the look may be ahead of the hub, for one step.
        assert (ending or (await follower.next(PATIENCE_S)).ending) is Ending.OVER


async def test_a_new_job_shows_what_it_waits_for(
    backend: Contract, hub: EventHub, elsewhere: EventHub
) -> None:
    jobs = [
        Job(id="now", type="t", tags=frozenset({"x", "y"})),
        Job(id="later", type="t", delay_s=1000.0),
        Job(id="child", type="t", depends_on=("now",)),
    ]
    expected = {"now": Phase.SCHEDULED, "later": Phase.DELAYED, "child": Phase.PENDING}
    async with hub.follow(_EVERYTHING, caller="a") as follower:
        await backend.enqueue_jobs(jobs)
        # Of one batch they are told in any order.
        await submit(backend, "last")
        *news, _ = await told(follower, of("last", "SUBMIT"))
    assert {one.job_id: one.status for one in news} == expected
    assert {one.kind.tags for one in news} == {frozenset(), frozenset({"x", "y"})}
    async with elsewhere.follow(following(*expected), caller="a") as follower:
        (*looked,), _ = await follower.next(PATIENCE_S)
    assert {one.job_id: one.status for one in looked} == expected
    assert {one.kind for one in looked} == {one.kind for one in news}


async def test_a_job_that_is_deleted_is_followed_no_more(backend: Contract, hub: EventHub) -> None:
    job, token = await running(backend)
    async with hub.follow(following(job.id), caller="a") as follower:
        await backend.settle([Outcome(job.id, Event.COMPLETE, token=token)])
        await backend.delete_jobs([], [job.id])
        news = await told(follower, of(job.id, "COMPLETE"))
        assert _statuses(news) == [Phase.RUNNING, Phase.COMPLETED]
        assert news[-1].kind == Kind("default", job.type, frozenset())
        assert (await follower.next(PATIENCE_S)).ending is Ending.OVER
    with pytest.raises(JobNotFound):
        async with hub.follow(following(job.id), caller="a"):
            pass


async def test_who_does_not_read_is_told_so_and_costs_no_more(
    backend: Contract, hub: EventHub
) -> None:
    async with (
        hub.follow(_EVERYTHING, caller="slow") as slow,
        hub.follow(_EVERYTHING, caller="fast") as fast,
    ):
        ids = [f"{n}" for n in range(BUFFER)]
        await submit(backend, *ids)
        await told(fast, of(ids[-1], "SUBMIT"))
        await submit(backend, "more")
        await told(fast, of("more", "SUBMIT"))
        batch = await slow.next(PATIENCE_S)
        assert (len(batch.news), batch.ending) == (BUFFER, Ending.SLOW)
        assert (hub.slow, fast.ending) == (1, None)
    async with hub.follow(_EVERYTHING, caller="slow", after=batch.news[-1].id) as follower:
        assert [one.job_id for one in await told(follower, of("more", "SUBMIT"))] == ["more"]


async def test_what_is_too_much_for_one_step_is_told_in_several(
    backend: Contract, elsewhere: EventHub
) -> None:
    small = EventHub(followed_of(backend), step_jobs=3)
    async with elsewhere.follow(_EVERYTHING, caller="a") as follower:
        start = elsewhere.position_of(follower)
    for n in range(8):
        await submit(backend, f"{n}-a", f"{n}-b")
    async with small.follow(_EVERYTHING, caller="a", after=start) as follower:
        news = await told(follower, of("7-b", "SUBMIT"))
    assert [one.job_id for one in news] == [f"{n}-{one}" for n in range(8) for one in "ab"]
    await small.close()


async def test_a_position_of_another_store_has_expired(backend: Contract, hub: EventHub) -> None:
    await submit(backend, "a")
    async with hub.follow(_EVERYTHING, caller="a") as follower:
        here = hub.position_of(follower)
    other = "0" * 8 if not here.startswith("0" * 8) else "1" * 8
    async with hub.follow(_EVERYTHING, caller="a", after=here):
        pass
    with pytest.raises(PositionExpired):
        async with hub.follow(_EVERYTHING, caller="a", after=other + here[8:]):
            pass
    with pytest.raises(InvalidArgument):
        async with hub.follow(_EVERYTHING, caller="a", after="nowhere"):
            pass


async def test_what_nobody_wants_is_not_told(backend: Contract) -> None:
    followed = followed_of(backend)
    mark = await followed.mark()
    await submit(backend, *map(str, range(100)))
    asked = set[Kind]()

    def nobody(kind: Kind) -> bool:
        asked.add(kind)
        return False

    step = await followed.step(mark.horizon, None, 0, nobody, [], 1000)
    assert (list(step.events), step.is_last) == ([], True)
    assert Kind("default", "t", frozenset()) in asked
    assert await _numbers(followed, step.upto, everybody=True) == []
    assert len(await _numbers(followed, mark.horizon, everybody=True)) == 100
    number = (await _numbers(followed, mark.horizon, everybody=True))[7]
    assert await _numbers(followed, mark.horizon, number) == [number]


async def _numbers(
    followed: Followed, since: Horizon, *numbers: int, everybody: bool = False
) -> list[int]:
    step = await followed.step(since, None, 0, lambda kind: everybody, numbers, 1000)
    return [one.number for one in step.events]


async def test_a_store_that_is_away_is_followed_again_when_it_is_back(
    backend: Contract, store: Store, hub: EventHub
) -> None:
    async with hub.follow(_EVERYTHING, caller="a") as follower:
        await submit(backend, "before")
        await told(follower, of("before", "SUBMIT"))
        await store.break_down()
        with pytest.raises(Unavailable):
            await followed_of(backend).mark()
        await store.mend()
        await _until_it_works(backend)
        assert [one.job_id for one in await told(follower, of("after", "SUBMIT"))] == ["after"]


async def _until_it_works(backend: Contract) -> None:
    """An open backend works again, if not with its first call."""
    while True:
        try:
            await backend.enqueue_job(Job(id="after", type="t", idempotency_key="after"))
        except Unavailable:
            await asyncio.sleep(0)
        else:
            return
