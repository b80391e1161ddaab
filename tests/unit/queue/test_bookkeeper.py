"""How often the statistics are looked after."""

import pytest
from tests.unit.queue.conftest import ManualClock

from queue_operator.backends.memory import MemoryBackend
from queue_operator.queue.bookkeeper import BUSY_S, IDLE_S, ROWS, Bookkeeper


class Behind(MemoryBackend):
    """Has so many rows to add."""

    rows = 0
    calls = 0

    async def roll_up(self, *, limit: int = 1000) -> int:
        self.calls += 1
        added = min(self.rows, limit)
        self.rows -= added
        return added


@pytest.fixture
def backend() -> Behind:
    return Behind()


@pytest.fixture
def bookkeeper(backend: Behind, clock: ManualClock) -> Bookkeeper:
    return Bookkeeper(backend, clock)


async def test_what_is_much_is_added_without_a_pause(
    backend: Behind, bookkeeper: Bookkeeper
) -> None:
    backend.rows = 3 * ROWS + 7
    await bookkeeper.roll_up()
    assert (backend.rows, backend.calls) == (0, 4)


async def test_it_looks_more_seldom_while_nothing_happens(
    backend: Behind, bookkeeper: Bookkeeper, clock: ManualClock
) -> None:
    await bookkeeper.start()
    assert [await clock.skip() for _ in range(5)] == [BUSY_S, 10.0, IDLE_S, IDLE_S, IDLE_S]
    backend.rows = 1
    assert [await clock.skip() for _ in range(3)] == [BUSY_S, 10.0, IDLE_S]
    await bookkeeper.stop()
