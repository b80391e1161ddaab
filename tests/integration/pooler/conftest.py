"""The contract through a PgBouncer in transaction mode: the same tests as for the server itself,
and nothing that a store keeps on a session may be missed.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.conftest import migrated_database
from tests.contract.store import PostgresStore
from tests.integration.postgres.pooler import pooled
from tests.pools import closed_pools  # noqa: F401

from queue_operator.backends.postgres import PostgresBackend
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
    with migrated_database(postgres_admin_dsn, "pooled") as address, pooled(address) as pooler:
        yield address, pooler


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
