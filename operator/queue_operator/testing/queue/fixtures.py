"""The fixture of all tests of the suite."""

from collections.abc import AsyncIterator

import pytest_asyncio

from queue_operator.testing.queue.desk import Desk
from queue_operator.testing.queue.rig import QueueRig


@pytest_asyncio.fixture(loop_scope="session")
async def desk(rig: QueueRig) -> AsyncIterator[Desk]:
    """Checked for broken invariants of the store after every test."""
    desk = Desk(rig)
    try:
        yield desk
        assert await rig.faults() == []
    finally:
        await desk.close()
        await rig.end()
