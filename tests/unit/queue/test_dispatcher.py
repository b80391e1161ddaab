"""Claims for many streams: one that the store refuses, and how equals share."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.queue.conftest import ManualClock
from tests.waiting import DEADLINE_S

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.protocol import Backend, Kind, Pause
from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.errors import InvalidArgument, QueueError, Unavailable
from queue_operator.domain.job import Assignment, Demand, Job, TypeDefaults
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue import dispatcher
from queue_operator.queue.operations import Operations
from queue_operator.queue.protocol import EndReason, StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.queue.stream import JobStream


class Picky(MemoryBackend):
    """Refuses every claim that one of `unwanted` takes part in, and counts its claims."""

    unwanted: frozenset[str] = frozenset()
    error: QueueError = InvalidArgument("tags", "are too many for this store")
    asked = 0

    async def claim(
        self,
        demands: Sequence[Demand],
        *,
        lease_ttl_s: float,
        defaults: Mapping[str, TypeDefaults] | None = None,
    ) -> list[Assignment]:
        self.asked += 1
        if not self.unwanted.isdisjoint(demand.assignee_id for demand in demands):
            raise self.error
        return await super().claim(demands, lease_ttl_s=lease_ttl_s, defaults=defaults)


@pytest.fixture
async def backend() -> Picky:
    return Picky()


@pytest.fixture
async def queue(backend: Picky) -> AsyncIterator[QueueService]:
    queue = QueueService(backend)
    await queue.start()
    yield queue
    await queue.close()


def spec(name: str, capacity: int = 2, tags: frozenset[str] = frozenset()) -> StreamSpec:
    return StreamSpec(assignee_id=name, worker_name=name, capacity=capacity, tags=tags)


async def given(stream: JobStream, count: int) -> list[Assignment]:
    got: list[Assignment] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(got) < count:
            push = await stream.next()
            assert push is not None
            stream.delivered(push)
            got += push.assignments
    return got


async def test_one_that_the_store_refuses_ends_alone(backend: Picky, queue: QueueService) -> None:
    names = [f"w{n}" for n in range(16)]
    backend.unwanted = frozenset({"w5", "w11"})
    streams = {name: await queue.open_stream(spec(name)) for name in names}
    await queue.enqueue_jobs([Job(id=f"j{n}", type="t") for n in range(28)])
    for name in set(names) - backend.unwanted:
        assert len(await given(streams[name], 2)) == 2
    for name in backend.unwanted:
        with pytest.raises(InvalidArgument, match="too many for this store"):
            async with asyncio.timeout(DEADLINE_S):
                await streams[name].next()
        assert streams[name].end_reason is EndReason.FAILED
    assert {usage.spec.assignee_id for usage in queue.usage()} == set(names) - backend.unwanted


async def test_a_store_that_is_away_refuses_nobody(backend: Picky, queue: QueueService) -> None:
    backend.unwanted = frozenset({"w0"})
    backend.error = Unavailable("away")
    streams = [await queue.open_stream(spec(f"w{n}")) for n in range(2)]
    await queue.enqueue_jobs([Job(id=f"j{n}", type="t") for n in range(4)])
    async with asyncio.timeout(DEADLINE_S):
        while backend.asked < 3:
            await asyncio.wait([asyncio.ensure_future(queue.ping())])
    backend.unwanted = frozenset()
    for stream in streams:
        assert len(await given(stream, 2)) == 2


async def test_equals_share_whatever_their_number_and_order(queue: QueueService) -> None:
    """Single jobs go round, and each of many jobs goes to who has waited longest."""
    streams = [await queue.open_stream(spec(f"w{n}", capacity=1)) for n in range(5)]
    served: Counter[str] = Counter()

    async def work(stream: JobStream) -> None:
        while (push := await stream.next()) is not None:
            stream.delivered(push)
            served[stream.spec.assignee_id] += len(push.assignments)
            await stream.settle(
                [
                    Outcome(one.job_id, Event.COMPLETE, one.namespace, one.token)
                    for one in push.assignments
                ]
            )

    workers = [asyncio.create_task(work(stream)) for stream in streams]
    await queue.enqueue_jobs([Job(id=f"j{n}", type="t") for n in range(200)])
    async with asyncio.timeout(DEADLINE_S):
        while served.total() < 200:
            await asyncio.wait([asyncio.ensure_future(queue.ping())])
    for stream in streams:
        await stream.close()
    await asyncio.gather(*workers)
    assert min(served.values()) >= 30, served


async def test_news_of_a_kind_wake_whom_they_concern(queue: QueueService) -> None:
    for name, tags in {"red": {"red"}, "blue": {"blue"}, "any": set[str]()}.items():
        await queue.open_stream(spec(name, tags=frozenset(tags)))
    matching = queue.dispatcher._streams.matching
    found = {one.tags for one in matching(Kind("default", "t", frozenset({"red", "big"})))}
    assert found == {frozenset({"red"}), frozenset()}
    assert not matching(Kind("elsewhere", "t", frozenset({"red"})))
    await queue.open_stream(spec("big", tags=frozenset({"big"})))
    found = {one.tags for one in matching(Kind("default", "t", frozenset({"red", "big"})))}
    assert found == {frozenset({"red"}), frozenset(), frozenset({"big"})}


async def never(delay_s: float) -> None:
    await asyncio.Event().wait()


@pytest.fixture(params=["memory", "sqlite"])
async def unpolled(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A store that nobody polls for news."""
    if request.param == "memory":
        return MemoryBackend(sleep=never)
    return await SqliteBackend.open(tmp_path / "queue.db", sleep=never)


async def test_a_resume_wakes_who_waits_at_once(unpolled: Backend, clock: ManualClock) -> None:
    queue = QueueService(unpolled, clock=clock)
    await queue.start()
    operations = Operations(queue)
    stream = await queue.open_stream(spec("w", capacity=20))
    # What every listener hears first is over then.
    for n in range(9):
        await queue.enqueue_job(Job(id=f"before-{n}", type="t"))
        await given(stream, 1)
    await operations.pause(Pause(namespace="default", type="paused"))
    await queue.enqueue_jobs([Job(id="waits", type="paused"), Job(id="runs", type="t")])
    assert [one.job_id for one in await given(stream, 1)] == ["runs"]
    assert await operations.resume("default", "paused")
    assert [one.job_id for one in await given(stream, 1)] == ["waits"]
    await queue.close()


class Slow(Picky):
    """Tells what it is asked in order: None for a claim, and for each look at what is there a
    future of the answer, which is the test's.
    """

    def __init__(self) -> None:
        super().__init__(sleep=never)
        self.happened = asyncio.Queue[asyncio.Future[bool] | None]()

    async def claim(self, *given: Any, **named: Any) -> list[Assignment]:
        self.happened.put_nowait(None)
        return await super().claim(*given, **named)

    async def eligible_for(self, demands: Sequence[Demand]) -> list[bool]:
        self.happened.put_nowait(answer := asyncio.get_running_loop().create_future())
        return [await answer] * len(demands)


@pytest.mark.parametrize("there", [True, False])
async def test_what_a_claim_took_while_a_poll_looked_is_not_asked_for_again(there: bool) -> None:
    """But what came meanwhile is."""
    backend = Slow()
    queue = QueueService(backend)
    await queue.start()
    stream = await queue.open_stream(spec("w", capacity=10))
    async with asyncio.timeout(DEADLINE_S):
        # For the new stream, and for what each listener hears first.
        first = [await backend.happened.get() for _ in range(2)]
        [answer] = [one for one in first if one is not None]
        answer.set_result(False)
        await queue.enqueue_job(Job(id="first", type="t"))
        await given(stream, 1)
        assert await backend.happened.get() is None
        # Early, because the claim brought less than there was room for.
        look = await backend.happened.get()
        assert look is not None
        await queue.enqueue_job(Job(id="second", type="t"))
        await given(stream, 1)
        assert await backend.happened.get() is None
        look.set_result(True)
        look = await backend.happened.get()
        assert look is not None, "a claim"
        look.set_result(there)
        # Otherwise the next is a look that is due in any case.
        assert (await backend.happened.get() is None) is there
    await queue.close()


async def test_a_look_that_ends_when_no_slot_is_left_is_made_up_for_once_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim for the same came back short, though what the look saw is still there."""
    backend = Slow()
    queue = QueueService(backend)
    await queue.open_stream(spec("w", capacity=1))
    looker, streams = queue.dispatcher, queue.dispatcher._streams
    [asked] = streams.idle_filters()
    looking = asyncio.create_task(looker._look(told=False))
    answer = await backend.happened.get()
    assert answer is not None
    looker._asked_meanwhile.add(asked)
    looker._hungry.clear()
    looker._wanted.clear()
    monkeypatch.setattr(streams, "idle_filters", set)
    answer.set_result(True)
    await looking
    assert not looker._wanted.is_set()
    looker.freed()
    assert looker._wanted.is_set()
    await queue.close()


async def test_news_that_come_during_a_look_that_fails_are_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def due(*_: object) -> bool:
        return False

    monkeypatch.setattr(dispatcher, "sleep_unless", due)
    backend = Slow()
    queue = QueueService(backend)
    await queue.open_stream(spec("w"))
    queue.dispatcher._look_now = False
    polling = asyncio.create_task(queue.dispatcher._poll())
    look = await backend.happened.get()
    assert look is not None
    queue.dispatcher.wake_all()
    look.set_exception(Unavailable("away"))
    with pytest.raises(Unavailable):
        await polling
    # Nobody told this one of anything: it does not wait until it is due.
    monkeypatch.setattr(dispatcher, "sleep_unless", None)
    polling = asyncio.create_task(queue.dispatcher._poll())
    look = await backend.happened.get()
    assert look is not None
    look.set_result(False)
    await polling
    await queue.close()
