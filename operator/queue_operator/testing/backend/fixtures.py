"""The fixture of all tests of the suite."""

import pytest_asyncio

from queue_operator.testing.store import Contract, Store


@pytest_asyncio.fixture
async def backend(store: Store) -> Contract:
    return await store.open()
