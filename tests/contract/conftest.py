"""The contract suite runs on every store: a new one adds its factory to `STORES`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from tests.conftest import migrated_database
from tests.contract.store import PostgresStore

from queue_operator.testing.memory import MemoryStore
from queue_operator.testing.sqlite import SqliteStore
from queue_operator.testing.store import Contract, Store


@pytest.fixture(scope="session")
def postgres_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """A migrated database for the contract suite alone."""
    with migrated_database(postgres_admin_dsn, "contract") as address:
        yield address


Make = Callable[[], Awaitable[Store]]


def _postgres(request: pytest.FixtureRequest) -> Make:
    dsn: str = request.getfixturevalue("postgres_dsn")
    return lambda: PostgresStore.on(dsn)


def _memory(request: pytest.FixtureRequest) -> Make:
    async def make() -> Store:
        return MemoryStore()

    return make


def _sqlite(_: pytest.FixtureRequest) -> Make:
    async def make() -> Store:
        return SqliteStore()

    return make


STORES: dict[str, Callable[[pytest.FixtureRequest], Make]] = {
    "postgres": _postgres,
    "sqlite": _sqlite,
    "memory": _memory,
}


@pytest.fixture(params=STORES)
def make_store(request: pytest.FixtureRequest) -> Make:
    """Synchronous, because fixtures of a whole run cannot be made inside a test's loop."""
    return STORES[request.param](request)


@pytest.fixture
async def store(make_store: Make) -> AsyncIterator[Store]:
    """Checked for broken invariants after every test."""
    store = await make_store()
    try:
        yield store
        assert await store.faults() == []
    finally:
        await store.close()


@pytest.fixture
async def backend(store: Store) -> Contract:
    return await store.open()
