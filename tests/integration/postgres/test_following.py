"""One reads the log for all who follow jobs; each is told everything once, also what is committed
late, and what happened while it was away.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.test_late_commits import held_up
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.streams import Kind
from queue_operator.domain.errors import JobNotFound, PositionExpired, QuotaExceeded
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.domain.views import Phase
from queue_operator.queue.followers import BUFFER, Ending, Follower, News, Wish
from queue_operator.queue.hub import EventHub

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
async def hub(backend: PostgresBackend) -> AsyncIterator[EventHub]:
    hub = EventHub(backend.followed)
    yield hub
    await hub.close()


@pytest.fixture
async def elsewhere(other: PostgresBackend) -> AsyncIterator[EventHub]:
    """Of another replica."""
    hub = EventHub(other.followed)
    yield hub
    await hub.close()


async def told(follower: Follower, until: Callable[[News], bool]) -> list[News]:
    """All that comes up to the first that is so."""
    found = list[News]()
    while not (found and until(found[-1])):
        batch = await follower.next(DEADLINE_S)
        assert batch.news, f"nothing but {batch.ending} after {found}"
        found += batch.news
    return found


def of(job_id: str, event: str) -> Callable[[News], bool]:
    return lambda news: (news.job_id, news.event) == (job_id, event)


async def submit(backend: PostgresBackend, namespace: str, *ids: str) -> None:
    await backend.enqueue_jobs([Job(id=one, type="t", namespace=namespace) for one in ids])


async def end(backend: PostgresBackend, namespace: str, error: ErrorInfo | None = None) -> None:
    demand = Demand(assignee_id="w", limit=100, namespace=namespace)
    claimed = await backend.claim([demand], lease_ttl_s=600.0)
    event = Event.EXHAUST if error else Event.COMPLETE
    outcomes = [
        Outcome(event=event, job_id=one.job_id, namespace=namespace, token=one.token, error=error)
        for one in claimed
    ]
    await backend.settle(outcomes)


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


async def test_many_go_on_elsewhere_each_from_its_own_place(
    backend: PostgresBackend, hub: EventHub, elsewhere: EventHub, namespace: str
) -> None:
    everything = Wish(namespace=namespace)
    async with hub.follow(everything, caller="a") as follower:
        start = hub.position_of(follower)
        for n in range(3):
            await submit(backend, namespace, f"{n}-a", f"{n}-b")
            await end(backend, namespace)
        news = await told(follower, of("2-b", "COMPLETE"))
    ids = [one.id for one in news]
    assert len(set(ids)) == len(ids) == 18
    async with AsyncExitStack() as stack:
        resumed = await asyncio.gather(
            *(
                stack.enter_async_context(elsewhere.follow(everything, caller="a", after=after))
                for after in (start, *ids)
            )
        )
        await submit(backend, namespace, "more")
        found = [await told(one, of("more", "SUBMIT")) for one in resumed]
    whole = [(one.job_id, one.event) for one in (*news, found[0][-1])]
    for place, rest in enumerate(found):
        assert [(one.job_id, one.event) for one in rest] == whole[place:]


async def test_a_failure_shows_as_the_status_says(
    backend: PostgresBackend, hub: EventHub, namespace: str
) -> None:
    await submit(backend, namespace, "a")
    wish = Wish(namespace=namespace, job_ids=frozenset({"a"}))
    async with hub.follow(wish, caller="a") as follower:
        await end(backend, namespace, ErrorInfo(category=ErrorCategory.PERMANENT, message="no"))
        news = await told(follower, of("a", "EXHAUST"))
        assert [one.status for one in news] == [Phase.SCHEDULED, Phase.RUNNING, Phase.FAILED]
        assert (await follower.next(DEADLINE_S)).ending is Ending.OVER


async def test_who_does_not_read_is_told_so_and_costs_no_more(
    backend: PostgresBackend, hub: EventHub, namespace: str
) -> None:
    wish = Wish(namespace=namespace)
    async with hub.follow(wish, caller="slow") as slow, hub.follow(wish, caller="fast") as fast:
        ids = [f"{n}" for n in range(BUFFER)]
        await submit(backend, namespace, *ids)
        await told(fast, of(ids[-1], "SUBMIT"))
        await submit(backend, namespace, "more")
        await told(fast, of("more", "SUBMIT"))
        batch = await slow.next(DEADLINE_S)
        assert (len(batch.news), batch.ending) == (BUFFER, Ending.SLOW)
        assert (hub.slow, fast.ending) == (1, None)
    async with hub.follow(wish, caller="slow", after=batch.news[-1].id) as follower:
        assert [one.job_id for one in await told(follower, of("more", "SUBMIT"))] == ["more"]


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


async def test_only_so_many_may_follow(backend: PostgresBackend, namespace: str) -> None:
    hub = EventHub(backend.followed, streams=3, each=2)
    wish = Wish(namespace=namespace)
    async with hub.follow(wish, caller="a"), hub.follow(wish, caller="a"):
        with pytest.raises(QuotaExceeded, match="one caller"):
            async with hub.follow(wish, caller="a"):
                pass
        async with hub.follow(wish, caller="b"):
            with pytest.raises(QuotaExceeded, match="this server"):
                async with hub.follow(wish, caller="c"):
                    pass
    assert hub.streams == 0
    with pytest.raises(JobNotFound):
        async with hub.follow(Wish(namespace=namespace, job_ids=frozenset({"no"})), caller="a"):
            pass
    assert hub.streams == 0
    await hub.close()


async def test_of_a_large_step_nothing_is_looked_up_that_nobody_wants(
    backend: PostgresBackend, namespace: str
) -> None:
    mark = await backend.followed.mark()
    await submit(backend, namespace, *map(str, range(100)))
    asked = set[Kind]()

    def nobody(kind: Kind) -> bool:
        asked.add(kind)
        return False

    step = await backend.followed.step(mark.horizon, None, 0, nobody, [], 1000)
    assert (step.events, step.is_last) == ([], True)
    assert Kind(namespace, "t", frozenset()) in asked
