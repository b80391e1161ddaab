"""The REST door as it runs: uvicorn, the queue service, PostgreSQL."""

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import yaml
from pydantic import SecretStr
from pytest_asyncio import fixture, is_async_test
from tests.conftest import empty_database
from tests.integration.api.door import CALLERS, QUOTAS, TOKEN, Door

from queue_operator.api.app import create_app
from queue_operator.api.health import create_health_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.queue.service import QueueService
from queue_operator.settings import (
    AuthMode,
    AuthSettings,
    DatabaseSettings,
    HealthSettings,
    QuotaSettings,
    RestSettings,
    Settings,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests share the loop of the server."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def database(postgres_admin_dsn: str) -> Iterator[str]:
    """A database of its own, which a test may take out of service."""
    with empty_database(postgres_admin_dsn, "api") as address:
        yield address


@pytest.fixture(scope="session")
def settings(database: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    tokens = tmp_path_factory.mktemp("auth") / "tokens.yaml"
    tokens.write_text(yaml.safe_dump({"tokens": CALLERS}))
    return Settings(
        database=DatabaseSettings(dsn=SecretStr(database), connect_timeout_s=2.0),
        rest=RestSettings(host="127.0.0.1", port=0),
        health=HealthSettings(host="127.0.0.1", port=0),
        quotas=QuotaSettings(namespaces=QUOTAS),
        auth=AuthSettings(
            mode=AuthMode.STATIC, tokens={"tests": SecretStr(TOKEN)}, tokens_file=tokens
        ),
    )


async def _open() -> None:
    """The doors of these tests always are."""


@fixture(scope="session", loop_scope="session")
async def house(database: str, postgres_admin_dsn: str, settings: Settings) -> AsyncIterator[Door]:
    """One server for all tests: each has a namespace of its own."""
    await migrate(database)
    backend = await PostgresBackend.open(
        database, connect_timeout_s=settings.database.connect_timeout_s
    )
    queue = QueueService(backend, settings.queue, quotas=settings.quotas)
    await queue.start()
    app = create_app(queue, *build(settings.auth), settings)
    rest = RestServer(app, settings.rest)
    probes = RestServer(create_health_app(_open, {"store": queue.ping}), settings.health)
    await rest.start()
    await probes.start()
    async with httpx.AsyncClient(
        base_url=rest.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
    ) as http:
        yield Door(
            http=http,
            url=rest.url,
            probes=probes.url,
            queue=queue,
            backend=backend,
            namespace="none",
            admin_dsn=postgres_admin_dsn,
            dsn=database,
        )
    await rest.stop()
    await probes.stop()
    await queue.close()


@pytest.fixture
def door(house: Door) -> Door:
    return replace(house, namespace=f"ns-{uuid.uuid4().hex[:8]}")
