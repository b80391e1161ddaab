"""The queue on a real PostgreSQL: a database for each module, a namespace for each test."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Protocol

import pytest
from tests.conftest import migrated_database
from tests.integration.queue.leases import lease_end
from tests.pools import closed_pools  # noqa: F401

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Job
from queue_operator.queue.protocol import StreamSpec
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings


@pytest.fixture(scope="module")
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "queue") as address:
        yield address


@pytest.fixture
def namespace() -> str:
    return f"team-{uuid.uuid4().hex[:8]}"


class OpenQueue(Protocol):
    """Opens one more instance on the module's database, as another replica would."""

    def __call__(self, settings: QueueSettings | None = None) -> Awaitable[QueueService]: ...


@pytest.fixture
async def open_queue(dsn: str) -> AsyncIterator[OpenQueue]:
    async with AsyncExitStack() as stack:

        async def open_one(settings: QueueSettings | None = None) -> QueueService:
            queue = QueueService(await PostgresBackend.open(dsn), settings)
            await queue.start()
            stack.push_async_callback(queue.close)
            return queue

        yield open_one


@pytest.fixture
async def queue(open_queue: OpenQueue) -> QueueService:
    return await open_queue()


@pytest.fixture
def new_jobs(namespace: str) -> Callable[..., list[Job]]:
    """Jobs of the test's namespace."""

    def make(count: int = 1, type: str = "mail", **fields: object) -> list[Job]:
        return [
            Job(id=uuid.uuid4().hex, type=type, namespace=namespace, **fields)  # type: ignore[arg-type]
            for _ in range(count)
        ]

    return make


@pytest.fixture
def new_spec(namespace: str) -> Callable[..., StreamSpec]:
    def make(capacity: int = 10, **fields: object) -> StreamSpec:
        values = {"assignee_id": uuid.uuid4().hex, "worker_name": "w"} | fields
        return StreamSpec(capacity=capacity, namespace=namespace, **values)  # type: ignore[arg-type]

    return make


@pytest.fixture
def read_lease_end(dsn: str) -> Callable[[str], Awaitable[datetime]]:
    """When the lease of a job ends, from the table itself."""
    return partial(lease_end, dsn)
