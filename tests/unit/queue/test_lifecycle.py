"""Loops outlive failures, wait longer each time and say so once."""

import asyncio
import logging
from typing import Protocol

import pytest

from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable
from queue_operator.queue.clock import sleep_unless
from queue_operator.queue.lifecycle import Loops


class Turnable(Clock, Protocol):
    """The clock of conftest."""

    async def skip(self) -> float: ...


async def test_a_loop_goes_on_after_failures(
    clock: Turnable, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[Exception] = [Unavailable("gone"), Unavailable("gone"), Unavailable("gone")]
    worked = asyncio.Event()

    async def turn() -> None:
        if failures:
            raise failures.pop()
        if worked.is_set():
            await clock.sleep(1.0)
        worked.set()

    loops = Loops(clock, rng=lambda: 0.5)
    with caplog.at_level(logging.WARNING):
        loops.run("the test", turn)
        waits = [await clock.skip() for _ in range(3)]
        await worked.wait()
        await clock.skip()
    await loops.stop()
    assert waits == pytest.approx([0.05, 0.1, 0.2])
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "the test waits for the store: gone",
        "the test works again after 3 failed tries",
    ]


async def test_stop_ends_every_loop(clock: Turnable) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def turn() -> None:
        started.set()
        try:
            await clock.sleep(1.0)
        finally:
            ended.set()

    loops = Loops(clock)
    loops.run("the test", turn)
    await started.wait()
    await loops.stop()
    assert ended.is_set()


async def test_a_wait_ends_by_time_or_by_event(clock: Turnable) -> None:
    event = asyncio.Event()
    waiting = asyncio.ensure_future(sleep_unless(event, 3.0, clock))
    assert await clock.skip() == 3.0
    assert await waiting is False
    waiting = asyncio.ensure_future(sleep_unless(event, 3.0, clock))
    event.set()
    assert await waiting is True
