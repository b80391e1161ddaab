"""The API on every store, as a server that listens."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from tests.conftest import migrated_database
from tests.contract.store import PostgresStore
from tests.contract_api.api import Api

from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.queue.service import QueueService
from queue_operator.settings import (
    AuthMode,
    AuthSettings,
    QueueSettings,
    RestSettings,
    Settings,
)
from queue_operator.testing.memory import MemoryStore
from queue_operator.testing.queue.rig import LEASE_TTL_S
from queue_operator.testing.sqlite import SqliteStore
from queue_operator.testing.store import Contract, Store

# Sweeps are made by the tests that need them: they age what is stored at the same time.
SETTINGS = Settings(
    rest=RestSettings(host="127.0.0.1", port=0),
    auth=AuthSettings(mode=AuthMode.NONE),
    queue=QueueSettings(lease_ttl_s=LEASE_TTL_S),
)


@pytest.fixture(scope="session")
def api_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    """A migrated database for this suite alone."""
    with migrated_database(postgres_admin_dsn, "contract_api") as address:
        yield address


@dataclass
class Served:
    """One server for all tests on a store."""

    store: Store
    backend: Contract
    queue: QueueService
    http: httpx.AsyncClient


# What a file does as a store is asked below the doors, but for what it does while they wait.
ON_A_FILE = {"test_events"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not selected for a store."""
    left_out = [item for item in items if not _is_selected(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_selected(item)]


def _is_selected(item: pytest.Item) -> bool:
    chosen = getattr(item, "callspec", None)
    store = chosen.params.get("make_store") if chosen is not None else None
    if store != "sqlite" or not item.path.is_relative_to(Path(__file__).parent):
        return True
    return item.path.stem in ON_A_FILE


@pytest.fixture(params=["memory", "sqlite", "postgres"], scope="session")
def make_store(request: pytest.FixtureRequest) -> Callable[[], Awaitable[Store]]:
    """Synchronous, because fixtures of a whole run cannot be made inside a test's loop."""
    dsn = request.getfixturevalue("api_dsn") if request.param == "postgres" else ""

    async def make() -> Store:
        if dsn:
            return await PostgresStore.on(dsn)
        return SqliteStore() if request.param == "sqlite" else MemoryStore()

    return make


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served(make_store: Callable[[], Awaitable[Store]]) -> AsyncIterator[Served]:
    store = await make_store()
    backend = await store.open()
    queue = QueueService(backend, SETTINGS.queue)
    await queue.start()
    # What is shown depends on the time, which tests without a server move.
    local = MemoryStore | SqliteStore
    now = store.clock if isinstance(store, local) else lambda: datetime.now(UTC)
    app = create_app(queue, *build(SETTINGS.auth), SETTINGS, now=now)
    rest = RestServer(app, SETTINGS.rest)
    await rest.start()
    async with httpx.AsyncClient(base_url=rest.url, timeout=60) as http:
        yield Served(store, backend, queue, http)
    await rest.stop()
    await queue.close()
    await store.close()


@pytest.fixture
def api(served: Served) -> Api:
    return Api(
        http=served.http,
        queue=served.queue,
        backend=served.backend,
        store=served.store,
        namespace=f"ns-{uuid.uuid4().hex[:8]}",
    )
