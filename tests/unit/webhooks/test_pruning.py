"""Messages that ended are pruned by the replica that leads, whether or not anybody sends."""

import logging
from datetime import UTC, datetime

import pytest
from tests.unit.queue.conftest import ManualClock

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.webhooks import MessageSearch, MessageState, Told
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.settings import WebhookSettings
from queue_operator.webhooks.pruning import STEP, STEPS, TURN_S, Pruner

SETTINGS = WebhookSettings(enabled=False, keep_delivered_s=10, keep_failed_s=30)
URL = "https://receiver.example/"
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


class Wall:
    def __init__(self) -> None:
        self.now_s = BEGUN.timestamp()

    def __call__(self) -> datetime:
        return datetime.fromtimestamp(self.now_s, UTC)


async def told(backend: MemoryBackend, **states: MessageState) -> None:
    """A job that has ended for each, and what came of its message."""
    await backend.enqueue_jobs([Job(id=id, type="t", callback_url=URL) for id in states])
    await backend.cancel_jobs([], list(states))
    messages = await backend.webhooks.claim("s", limit=9, per_receiver=9, lease_s=5)
    await backend.webhooks.settle(
        [Told(id=one.id, claim=one.claim, state=states[one.job_id], status=500) for one in messages]
    )


async def left(backend: MemoryBackend) -> set[str]:
    page = await backend.webhooks.search(MessageSearch())
    return {one.job_id for one in page.messages}


async def test_what_ended_is_kept_for_as_long_as_it_is_set() -> None:
    wall = Wall()
    backend = MemoryBackend(clock=wall)
    await told(backend, done=MessageState.DELIVERED, lost=MessageState.FAILED)
    pruner = Pruner(backend.webhooks, SETTINGS, ManualClock(), lambda: True)
    found = []
    for later_s in (9, 2, 18, 2):
        wall.now_s += later_s
        await pruner.prune()
        found.append(await left(backend))
    assert found == [{"done", "lost"}, {"lost"}, {"lost"}, set()]


class Endless:
    """There is always more, or an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self.error = error

    async def prune(self, *, delivered_s: float, failed_s: float, limit: int) -> int:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return STEP


async def test_a_turn_is_bounded_and_ends_when_another_replica_leads() -> None:
    box = Endless()
    await Pruner(box, SETTINGS, ManualClock(), lambda: True).prune()
    assert box.calls == STEPS
    await Pruner(box, SETTINGS, ManualClock(), lambda: box.calls < STEPS + 2).prune()
    assert box.calls == STEPS + 2


async def test_an_outage_is_said_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    box = Endless(Unavailable("the database is away"))
    clock = ManualClock()
    async with Pruner(box, SETTINGS, clock, lambda: True).pruning():
        for _ in range(3):
            assert await clock.skip() == pytest.approx(TURN_S)
            # Until the next try.
            await clock.skip()
        box.error = None
        assert [await clock.skip(), await clock.skip()] == pytest.approx([TURN_S, TURN_S])
    assert [record.message for record in caplog.records] == [
        "pruning messages waits for the store: the database is away",
        "pruning messages works again after 3 failed tries",
    ]
