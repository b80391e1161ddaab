"""The contract suite runs on every store: a new one adds its factory to `STORES`."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.contract.store import PostgresStore

from queue_operator.backends.postgres import migrate
from queue_operator.testing.memory import MemoryStore
from queue_operator.testing.sqlite import SqliteStore
from queue_operator.testing.store import Contract, Store


@pytest.fixture(scope="session")
def postgres_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """A migrated database for the contract suite alone."""
    name = f"contract_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        address = make_conninfo(postgres_admin_dsn, dbname=name)
        asyncio.run(migrate(address))
        yield address
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


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
