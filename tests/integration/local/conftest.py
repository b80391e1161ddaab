"""What the stores without a server have beside the contract, each store with a clock that only
the test moves.
"""

from collections.abc import AsyncIterator

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.testing.memory import MemoryStore
from queue_operator.testing.sqlite import SqliteStore

LocalStore = MemoryStore | SqliteStore
Local = MemoryBackend | SqliteBackend


@pytest.fixture(params=[MemoryStore, SqliteStore])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[LocalStore]:
    store: LocalStore = request.param()
    yield store
    await store.close()


@pytest.fixture
async def backend(store: LocalStore) -> Local:
    return await store.open()
