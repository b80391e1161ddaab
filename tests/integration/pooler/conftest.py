"""The contract through a PgBouncer in transaction mode: the same tests as for the server itself,
and nothing that a store keeps on a session may be missed.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.contract.store import PostgresStore
from tests.integration.postgres.pooler import pooled

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits
from queue_operator.testing.store import Contract, Store, half


@dataclass
class PooledStore(PostgresStore):
    """Looked behind the curtain of directly, used through the pooler."""

    pooler: str = ""

    async def open(
        self, *, limits: Limits = DEFAULT_LIMITS, rng: Callable[[], float] = half
    ) -> PostgresBackend:
        backend = await PostgresBackend.open(
            self.pooler, limits=limits, rng=rng, pooler=True, connect_timeout_s=1.0
        )
        self.opened.append(backend)
        return backend


@pytest.fixture(scope="session")
def addresses(postgres_admin_dsn: str) -> Iterator[tuple[str, str]]:
    """Of a migrated database, and of the pooler before it."""
    name = f"pooled_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        address = make_conninfo(postgres_admin_dsn, dbname=name)
        asyncio.run(migrate(address))
        with pooled(address) as pooler:
            yield address, pooler
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
async def store(addresses: tuple[str, str]) -> AsyncIterator[Store]:
    """Checked for broken invariants after every test."""
    address, pooler = addresses
    store = await PooledStore.on(address)
    assert isinstance(store, PooledStore)
    store.pooler = pooler
    try:
        yield store
        assert await store.faults() == []
    finally:
        await store.close()


@pytest.fixture
async def backend(store: Store) -> Contract:
    return await store.open()
