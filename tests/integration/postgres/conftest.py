"""The parts of the Postgres store, each on a database made for the test module."""

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from tests.conftest import migrated_database
from tests.contract.store import PostgresStore
from tests.pools import closed_pools  # noqa: F401
from tests.waiting import STATEMENT_S

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.connection import Pool, borrowed, open_pool
from queue_operator.backends.postgres.counts import TAIL
from queue_operator.backends.postgres.depth import KINDS
from queue_operator.backends.sql import load
from queue_operator.domain.job import Assignment, Demand, Job

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
Steps = Callable[..., Awaitable[list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "store") as address:
        yield address


@pytest.fixture
def own_dsn(new_database: Callable[[], str]) -> str:
    """As `dsn`, of the test's own: it looks at all that is stored, or changes the schema."""
    address = new_database()
    asyncio.run(migrate(address))
    return address


@pytest.fixture
async def store(own_dsn: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.on(own_dsn)
    yield store
    await store.close()


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    pool = await open_pool(dsn, size=8, connect_timeout_s=5.0, statement_timeout_s=STATEMENT_S)
    yield pool
    await pool.close()


@pytest.fixture
async def backend(dsn: str) -> AsyncIterator[PostgresBackend]:
    backend = await PostgresBackend.open(dsn, statement_timeout_s=STATEMENT_S)
    yield backend
    await backend.close()


@pytest.fixture
async def other(dsn: str) -> AsyncIterator[PostgresBackend]:
    """Of another process than `backend`."""
    other = await PostgresBackend.open(dsn, statement_timeout_s=STATEMENT_S)
    yield other
    await other.close()


@pytest.fixture
async def somebody(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[tuple[Any, ...]]]:
    """A connection whose transaction stays open until the test ends it."""
    async with await psycopg.AsyncConnection.connect(
        dsn, options="-c search_path=queue_operator"
    ) as connection:
        yield connection
        await connection.rollback()


@pytest.fixture
async def replicas(dsn: str) -> AsyncIterator[list[PostgresBackend]]:
    opened = [
        await PostgresBackend.open(dsn, pool_size=4, statement_timeout_s=STATEMENT_S)
        for _ in range(3)
    ]
    yield opened
    for backend in opened:
        await backend.close()


@pytest.fixture
def namespace() -> str:
    return f"team-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def running(backend: PostgresBackend, namespace: str) -> Assignment:
    """The only job of the namespace, which a worker has."""
    await backend.enqueue_job(Job(id=uuid.uuid4().hex, type="mail", namespace=namespace))
    demand = Demand(assignee_id="worker", limit=1, namespace=namespace)
    [assignment] = await backend.claim([demand], lease_ttl_s=60)
    return assignment


@pytest.fixture
async def ask(dsn: str) -> AsyncIterator[Ask]:
    """Runs a statement on a connection of the test's own and gives its rows."""
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    await connection.execute("SET search_path = queue_operator")

    async def run(statement: LiteralString, *parameters: object) -> list[tuple[Any, ...]]:
        cursor = await connection.execute(statement, parameters)
        return await cursor.fetchall() if cursor.description else []

    yield run
    await connection.close()


@pytest.fixture
def steps(pool: Pool) -> Steps:
    """The index scans on an index in the plan of a statement of the store."""

    async def explain(name: str, index: str, **parameters: object) -> list[dict[str, Any]]:
        statement = "EXPLAIN (FORMAT JSON) " + load(
            "queue_operator.backends.postgres", name, tail=TAIL, kinds=KINDS
        )
        async with borrowed(pool) as connection:
            rows = await (await connection.execute(statement, parameters)).fetchall()
        nodes: list[dict[str, Any]] = []

        def collect(node: dict[str, Any]) -> dict[str, Any]:
            nodes.append(node)
            return node

        json.loads(json.dumps(rows[0][0]), object_hook=collect)
        return [node for node in nodes if node.get("Index Name") == index]

    return explain


@pytest.fixture
def no_deadlock(caplog: pytest.LogCaptureFixture) -> Callable[[], None]:
    """Fails when a call had to be repeated because the server ended a deadlock."""
    caplog.set_level(logging.INFO, "queue_operator.backends.postgres.connection")

    def check() -> None:
        repeated = [record.getMessage() for record in caplog.records]
        assert [message for message in repeated if "deadlock" in message] == []

    return check
