"""How far the stores that keep jobs whole count those ahead of one."""

import pytest

from queue_operator.backends import steering_shelf
from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.protocol import Place
from queue_operator.domain.job import Job
from queue_operator.testing.sqlite import SqliteStore


async def test_a_place_is_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering_shelf, "AHEAD_BOUND", 2)
    store = SqliteStore()
    for backend in (MemoryBackend(), await store.open()):
        await backend.enqueue_jobs([Job(id=f"{n}", type="t") for n in range(5)])
        places = [await backend.place_of(f"{n}") for n in range(5)]
        told = [(place.ahead, place.ahead_is_exact) for place in places]
        assert told == [(0, True), (1, True), (2, True), (2, False), (2, False)]
        assert places[0] == Place()
    await store.close()
