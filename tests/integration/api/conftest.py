"""The REST door as it runs: uvicorn, the queue service, PostgreSQL."""

import uuid
from collections.abc import AsyncIterator, Iterator

import httpx
import psycopg
import pytest
from pydantic import SecretStr
from tests.integration.api.door import TOKEN, Door

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
    RestSettings,
    Settings,
)


@pytest.fixture(scope="session")
def database(postgres_admin_dsn: str) -> Iterator[str]:
    """A database of its own, which a test may take out of service."""
    name = f"api_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
    yield psycopg.conninfo.make_conninfo(postgres_admin_dsn, dbname=name)
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def settings(database: str) -> Settings:
    return Settings(
        database=DatabaseSettings(dsn=SecretStr(database), connect_timeout_s=2.0),
        rest=RestSettings(host="127.0.0.1", port=0),
        health=HealthSettings(host="127.0.0.1", port=0),
        auth=AuthSettings(mode=AuthMode.STATIC, tokens={"tests": SecretStr(TOKEN)}),
    )


@pytest.fixture
async def door(database: str, postgres_admin_dsn: str, settings: Settings) -> AsyncIterator[Door]:
    await migrate(database)
    backend = await PostgresBackend.open(
        database, connect_timeout_s=settings.database.connect_timeout_s
    )
    queue = QueueService(backend, settings.queue)
    await queue.start()
    app = create_app(queue, *build(settings.auth), settings)
    rest = RestServer(app, settings.rest)
    probes = RestServer(create_health_app(queue), settings.health)
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
            namespace=f"ns-{uuid.uuid4().hex[:8]}",
            admin_dsn=postgres_admin_dsn,
            dsn=database,
        )
    await rest.stop()
    await probes.stop()
    await queue.close()
