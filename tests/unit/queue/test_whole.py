"""Calls that are seen through, and how many of those nobody waits for."""

import asyncio

import pytest

from queue_operator.domain.errors import Unavailable
from queue_operator.queue import whole
from queue_operator.queue.whole import Unfinished


async def test_calls_that_were_left_alone_are_so_many_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole, "_MOST_LEFT", 2)
    unfinished, stored = Unfinished(), asyncio.Event()
    began: list[str] = []

    async def store(name: str) -> str:
        began.append(name)
        await stored.wait()
        return name

    callers = [asyncio.create_task(unfinished.finish(store(name))) for name in "ab"]
    await asyncio.sleep(0)
    stays = asyncio.create_task(unfinished.finish(store("c")))
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    with pytest.raises(Unavailable):
        await unfinished.finish(store("d"))
    stored.set()
    assert await stays == "c"
    await unfinished.finished()
    assert await unfinished.finish(store("e")) == "e"
    assert began == ["a", "b", "c", "e"]
