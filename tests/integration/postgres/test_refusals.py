"""A server that is there and refuses: callers get an error that says what to do, or none at all
where a second try is enough.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.connection import Pool, borrowed, open_pool, transaction
from queue_operator.domain.errors import MissingPrivilege, SchemaMismatch, StaleLease, Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.states import JobState

# So many times is a statement asked before the driver prepares it, and once more.
OFTEN = 7
CONNECTIONS = 4


@pytest.fixture
async def admin(own_dsn: str) -> AsyncIterator[psycopg.AsyncConnection[tuple[object, ...]]]:
    async with await psycopg.AsyncConnection.connect(own_dsn, autocommit=True) as connection:
        await connection.execute("SET search_path = queue_operator")
        yield connection


Admin = psycopg.AsyncConnection[tuple[object, ...]]


async def test_a_privilege_that_was_taken_away_is_named(own_dsn: str, admin: Admin) -> None:
    role = sql.Identifier("queue_refused")
    await admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'p'").format(role))
    try:
        await migrate(own_dsn, grant_to="queue_refused")
        address = make_conninfo(own_dsn, user="queue_refused", password="p")
        backend = await PostgresBackend.open(address)
        await admin.execute(sql.SQL("REVOKE INSERT ON job FROM {}").format(role))
        with pytest.raises(MissingPrivilege, match="permission denied for table job") as raised:
            await backend.enqueue_job(Job(id="a", type="t"))
        assert "migrate --grant-to queue_refused" in str(raised.value)
        await admin.execute(sql.SQL("GRANT INSERT ON job TO {}").format(role))
        assert await backend.enqueue_job(Job(id="a", type="t")) == "a"
        await backend.close()
    finally:
        await admin.execute(sql.SQL("DROP OWNED BY {}").format(role))
        await admin.execute(sql.SQL("DROP ROLE {}").format(role))


async def test_a_schema_that_is_gone_is_named(own_dsn: str, admin: Admin) -> None:
    backend = await PostgresBackend.open(own_dsn)
    await admin.execute("DROP SCHEMA queue_operator CASCADE")
    with pytest.raises(SchemaMismatch, match="run `queue-operator migrate`"):
        await backend.enqueue_job(Job(id="a", type="t"))
    await migrate(own_dsn)
    assert await backend.enqueue_job(Job(id="a", type="t")) == "a"
    await backend.close()


async def test_a_transaction_that_was_idle_for_too_long_is_unavailable(
    own_dsn: str, admin: Admin
) -> None:
    address = make_conninfo(own_dsn, options="-c idle_in_transaction_session_timeout=50")
    pool = await open_pool(address, size=1, connect_timeout_s=5, statement_timeout_s=5)

    async def idle() -> None:
        async with transaction(pool) as connection:
            pid = connection.info.backend_pid
            await connection.execute("SELECT 1")
            query = "SELECT FROM pg_stat_activity WHERE pid = %s"
            while (await admin.execute(query, [pid])).rowcount:
                pass
            await connection.execute("SELECT 1")

    with pytest.raises(Unavailable):
        await idle()
    async with borrowed(pool) as connection:
        await connection.execute("SELECT 1")
    await pool.close()


async def _prepare_everywhere(backend: PostgresBackend) -> None:
    """Has the statements of these calls prepared on every connection."""

    async def ask() -> None:
        await backend.get_job("a")
        await backend.get_history("a")
        with pytest.raises(StaleLease):
            await backend.stop_job("a", "", token=str(UUID(int=0)))

    for _ in range(OFTEN):
        await asyncio.gather(*(ask() for _ in range(2 * CONNECTIONS)))


@pytest.mark.parametrize("name", ["get_job", "get_history", "stop_job"])
async def test_a_plan_that_a_migration_made_unfit_is_made_anew(
    own_dsn: str, admin: Admin, name: str
) -> None:
    """One statement by itself, a snapshot, and a transaction that writes."""
    backend = await PostgresBackend.open(own_dsn, pool_size=CONNECTIONS)
    await backend.enqueue_job(Job(id="a", type="t"))
    demand = Demand(assignee_id="w", limit=1)
    [claimed] = await backend.claim([demand], lease_ttl_s=60)
    await _prepare_everywhere(backend)
    before = await _connections(backend._pool)
    for column in ("id", "correlation_id", "content_type"):
        change = sql.SQL("ALTER TABLE job ALTER COLUMN {} TYPE varchar")
        await admin.execute(change.format(sql.Identifier(column)))
    for table in ("lease", "attempt"):
        change = sql.SQL("ALTER TABLE {} ALTER COLUMN worker_name TYPE varchar")
        await admin.execute(change.format(sql.Identifier(table)))
    if name == "get_job":
        assert (await backend.get_job("a")).state is JobState.RUNNING
    elif name == "get_history":
        assert (await backend.get_history("a")).attempts[-1].assignee_id == "w"
    else:
        assert await backend.stop_job("a", "", token=claimed.token) == {"w": 1}
    # None of the connections that were there is used again.
    assert not before & await _connections(backend._pool)
    await backend.close()


async def _connections(pool: Pool) -> set[int]:
    """Process ids of all that the pool has, each held until the last is."""
    together = asyncio.Barrier(pool.max_size)

    async def hold() -> int:
        async with borrowed(pool) as connection:
            await together.wait()
            return connection.info.backend_pid

    return set(await asyncio.gather(*(hold() for _ in range(pool.max_size))))


async def test_a_database_of_another_encoding_is_refused(postgres_admin_dsn: str) -> None:
    with psycopg.connect(postgres_admin_dsn, autocommit=True) as admin:
        admin.execute(
            "CREATE DATABASE queue_latin ENCODING 'LATIN1' TEMPLATE template0"
            " LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        try:
            address = make_conninfo(postgres_admin_dsn, dbname="queue_latin")
            with pytest.raises(Unavailable, match="LATIN1"):
                await PostgresBackend.open(address)
        finally:
            admin.execute("DROP DATABASE queue_latin WITH (FORCE)")


async def test_no_cancelled_call_takes_a_connection_along(dsn: str) -> None:
    """Many calls share few connections, and each is cancelled at some point of its life."""
    pool = await open_pool(dsn, size=2, connect_timeout_s=2, statement_timeout_s=5)
    rng = random.Random(1)  # noqa: S311

    async def call() -> None:
        async with borrowed(pool):
            await asyncio.sleep(0)

    for _ in range(100):
        calls = [asyncio.create_task(call()) for _ in range(8)]
        for one in rng.sample(calls, len(calls)):
            await asyncio.sleep(0)
            one.cancel()
        await asyncio.wait(calls)
        assert len(await _connections(pool)) == pool.max_size
    await pool.close()
