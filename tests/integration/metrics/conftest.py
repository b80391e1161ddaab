"""A store with all its tables, of each test's own: the figures are about all that is stored."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.conftest import migrated_database
from tests.waiting import STATEMENT_S

from queue_operator.backends.postgres import PostgresBackend


@pytest.fixture
def database(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "figures") as address:
        yield address


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresBackend]:
    backend = await PostgresBackend.open(database, statement_timeout_s=STATEMENT_S)
    yield backend
    await backend.close()
