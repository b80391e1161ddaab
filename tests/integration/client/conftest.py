"""The REST door as it runs, in a thread of its own: uvicorn, the queue service, PostgreSQL."""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from pydantic import SecretStr
from tests.conftest import empty_database
from tests.integration.client.stage import SMALL, TOKEN, Stage

from queue_operator.api.app import create_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.queue.service import QueueService
from queue_operator.settings import (
    AuthMode,
    AuthSettings,
    Quota,
    QuotaSettings,
    RestSettings,
    Settings,
)


@pytest.fixture(scope="session")
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with empty_database(postgres_admin_dsn, "client") as address:
        yield address


@asynccontextmanager
async def serving(dsn: str) -> AsyncIterator[Stage]:
    settings = Settings(
        rest=RestSettings(host="127.0.0.1", port=0),
        auth=AuthSettings(mode=AuthMode.STATIC, tokens={"tests": SecretStr(TOKEN)}),
        quotas=QuotaSettings(namespaces={SMALL: Quota(pending_jobs=2)}),
    )
    await migrate(dsn)
    backend = await PostgresBackend.open(dsn)
    queue = QueueService(backend, settings.queue, quotas=settings.quotas)
    await queue.start()
    door = RestServer(create_app(queue, *build(settings.auth), settings), settings.rest)
    await door.start()
    yield Stage(f"http://127.0.0.1:{door.port}", asyncio.get_running_loop(), queue, backend, "")
    await door.stop()
    await queue.close()


@pytest.fixture(scope="session")
def server(dsn: str) -> Iterator[Stage]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)  # type: ignore[arg-type]

    stage = serving(dsn)
    yield run(stage.__aenter__())  # type: ignore[misc]
    run(stage.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def stage(server: Stage) -> Stage:
    return replace(server, namespace=f"ns-{uuid.uuid4().hex[:8]}")
