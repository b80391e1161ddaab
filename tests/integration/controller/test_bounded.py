"""What the controller holds in memory is bounded, whatever objects and jobs are like."""

import asyncio
import gc
import tracemalloc
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.controller.conftest import Stage, StartStage

from queue_operator.controller.inbox import MOST_BYTES
from queue_operator.domain.errors import Unavailable

OBJECTS = 3000
PAYLOAD = 20_000
MIB = 1024 * 1024


@contextmanager
def away(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A database in which nothing can be stored."""

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as outage:
        outage.setattr(stage.backend, "take_in", fail)
        yield


async def test_events_are_let_go_while_the_database_is_away_and_none_is_lost(
    start: StartStage, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start()
    with away(stage, monkeypatch):
        gc.collect()
        tracemalloc.start()
        try:
            for n in range(OBJECTS):
                # As from the wire: nobody else keeps what is shown.
                body = stage.api.make(f"j{n}", team, payload="x" * PAYLOAD)
                stage.intake.see(body, gone=False)
                body["spec"]["payload"] = ""
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert stage.stats.events_put_off > OBJECTS / 2
    assert held < MOST_BYTES + 12 * MIB
    for body in stage.api.objects.values():
        body["spec"]["payload"] = 1
    with running(stage.catch_up.run()), running(time_passes(stage)):
        await stage.until(lambda: stage.stats.taken_in == OBJECTS)
    # In pages, of which one at a time is in memory.
    assert stage.api.pages >= OBJECTS / 100
    assert stage.stats.taken_in == OBJECTS


async def test_a_list_waits_for_room(
    start: StartStage, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start()
    for n in range(OBJECTS):
        stage.api.make(f"j{n}", team, payload="x" * PAYLOAD)
    with running(stage.catch_up.once()) as listing:
        with away(stage, monkeypatch):
            await stage.until(lambda: stage.stats.store_retries > 0)
            for _ in range(300):
                await stage.backend.ping()
            # What fits the inbox, and a page that waits.
            assert stage.api.pages <= MOST_BYTES / PAYLOAD / 100 + 2
            assert not listing.done()
        with running(time_passes(stage)):
            await listing
            await stage.intake.caught_up()
    assert await stage.stored(team) == OBJECTS


@contextmanager
def running(work: Coroutine[Any, Any, None]) -> Iterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()


async def time_passes(stage: Stage) -> None:
    """Whoever sleeps wakes."""
    while True:
        await stage.clock.skip()


async def test_an_object_larger_than_the_inbox_is_taken_in_alone(
    start: StartStage, team: str
) -> None:
    stage = await start()
    large: dict[str, Any] = stage.api.make("large", team, payload="x" * 200_000)
    await stage.see(large, stage.api.make("small", team))
    assert await stage.stored(team) == 2
