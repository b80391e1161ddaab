"""Things for another thread's loop arrive in order, with few wake-ups, whatever happens."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from queue_operator.worker.handoff import Handoff


async def turns() -> None:
    """Lets what was called from a thread run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_many_items_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, taken, wakes = asyncio.get_running_loop(), list[int](), list[object]()
    wake = loop.call_soon_threadsafe

    def counted(*call: Any, **options: Any) -> object:
        wakes.append(call)
        return wake(*call, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    handoff = Handoff(loop, taken.append)
    for number in range(1000):
        handoff.put(number)
    assert taken == []
    await turns()
    assert taken == list(range(1000))
    assert len(wakes) == 1
    handoff.put(1000)
    await turns()
    assert taken[-1] == 1000


async def test_whoever_takes_sees_the_variables_of_its_own_side() -> None:
    side: ContextVar[str] = ContextVar("side", default="nobody's")
    side.set("the loop's")
    seen: list[str] = []
    handoff = Handoff[int](asyncio.get_running_loop(), lambda _: seen.append(side.get()))

    def put() -> None:
        side.set("a thread's")
        handoff.put(1)

    await asyncio.to_thread(put)
    await turns()
    assert seen == ["the loop's"]


async def test_nothing_is_missed_between_threads() -> None:
    loop, taken, done = asyncio.get_running_loop(), list[int](), asyncio.Event()
    count = 20_000

    def take(number: int) -> None:
        taken.append(number)
        if len(taken) == count:
            done.set()

    handoff = Handoff(loop, take)

    def put_all() -> None:
        for number in range(count):
            handoff.put(number)

    async with asyncio.timeout(30):
        await asyncio.to_thread(put_all)
        await done.wait()
    assert taken == list(range(count))


async def test_an_item_that_cannot_be_taken_stops_none_behind_it() -> None:
    loop, taken, told = asyncio.get_running_loop(), list[int](), list[object]()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    def take(number: int) -> None:
        if number == 1:
            raise ValueError(number)
        taken.append(number)

    handoff = Handoff(loop, take)
    for number in range(3):
        handoff.put(number)
    await turns()
    assert taken == [0, 2]
    assert [type(error) for error in told] == [ValueError]


def test_a_loop_that_has_ended_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    handoff = Handoff[int](loop, print)
    loop.close()
    handoff.put(1)
