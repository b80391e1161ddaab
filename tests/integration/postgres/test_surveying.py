"""What the server tells of itself, compared with what it tells others, and what the pool does."""

import asyncio
import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.integration.postgres.conftest import Ask
from tests.waiting import STATEMENT_S, until

from queue_operator.backends.postgres import PostgresBackend, grants
from queue_operator.backends.postgres.connection import borrowed, open_pool
from queue_operator.backends.postgres.surveying import Surveying
from queue_operator.backends.server_figures import PoolUsage
from queue_operator.domain.errors import Unavailable


@pytest.fixture
def runner(own_dsn: str, postgres_admin_dsn: str) -> Iterator[str]:
    """The address of a role that may run the queue, and no more."""
    role = sql.Identifier(f"runner_{secrets.token_hex(4)}")
    with psycopg.connect(own_dsn, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(role))
        for statement in grants.statements(role.as_string().strip('"')):
            owner.execute(statement)
        yield make_conninfo(own_dsn, user=role.as_string().strip('"'), password="x")
        owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
        owner.execute(sql.SQL("DROP ROLE {}").format(role))


async def test_sizes_are_those_that_the_server_tells_others(
    backend: PostgresBackend, ask: Ask
) -> None:
    found = await backend.database_figures()
    assert found.table_bytes.keys() == set(grants.TABLES)
    assert found.dead_rows.keys() == found.table_bytes.keys()
    [(size,)] = await ask("SELECT pg_database_size(current_database())")
    assert found.size_bytes == pytest.approx(size, rel=0.1)
    [(job,)] = await ask("SELECT pg_total_relation_size('job')")
    assert found.table_bytes["job"] == job > 0


async def test_rows_that_were_deleted_are_dead_until_they_are_removed(own_dsn: str) -> None:
    backend = await PostgresBackend.open(own_dsn, statement_timeout_s=STATEMENT_S)
    async with await psycopg.AsyncConnection.connect(own_dsn, autocommit=True) as connection:
        await connection.execute("SET search_path = queue_operator")
        await connection.execute("ALTER TABLE namespace SET (autovacuum_enabled = false)")
        assert (await backend.database_figures()).dead_rows["namespace"] == 0
        await connection.execute(
            "INSERT INTO namespace (name) SELECT 'n' || n FROM generate_series(1, 50) n"
        )
        await connection.execute("DELETE FROM namespace")
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await connection.execute("SELECT 1")
        assert (await backend.database_figures()).dead_rows["namespace"] == 50
        await connection.execute("VACUUM namespace")
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await connection.execute("SELECT 1")
        assert (await backend.database_figures()).dead_rows["namespace"] == 0
    await backend.close()


async def test_the_oldest_transaction_and_all_states_of_connections_are_seen(own_dsn: str) -> None:
    backend = await PostgresBackend.open(own_dsn, statement_timeout_s=STATEMENT_S)
    alone = await backend.database_figures()
    assert alone.oldest_transaction_s == 0
    assert alone.connections is not None
    assert alone.connections["idle_in_transaction"] == 0
    async with await psycopg.AsyncConnection.connect(own_dsn) as somebody:
        await somebody.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        [(began,)] = await (await somebody.execute("SELECT now()")).fetchall()
        found = await backend.database_figures()
        [(age_s,)] = await (
            await somebody.execute("SELECT extract(epoch FROM clock_timestamp() - %s)", (began,))
        ).fetchall()
        assert found.oldest_transaction_s is not None
        assert 0 < found.oldest_transaction_s <= age_s
        assert found.connections is not None
        assert found.connections["idle_in_transaction"] == 1
        assert found.connections["active"] >= 1
        assert found.connections.keys() == {"active", "idle", "idle_in_transaction", "other"}
    await backend.close()


async def test_a_role_that_may_not_see_others_has_no_figures_of_them(
    runner: str, own_dsn: str
) -> None:
    backend = await PostgresBackend.open(runner, statement_timeout_s=STATEMENT_S)
    # The sessions of others are hidden; what it may see it still does.
    async with await psycopg.AsyncConnection.connect(own_dsn, autocommit=True) as owner:
        found = await backend.database_figures()
        assert (found.oldest_transaction_s, found.connections) == (None, None)
        assert found.size_bytes
        assert found.table_bytes["job"] > 0
        name = psycopg.conninfo.conninfo_to_dict(runner)["user"]
        grant = sql.SQL("GRANT pg_read_all_stats TO {}")
        await owner.execute(grant.format(sql.Identifier(str(name))))
        granted = await backend.database_figures()
        assert granted.oldest_transaction_s == 0
        assert granted.connections is not None
        assert sum(granted.connections.values()) >= 2
    await backend.close()


async def test_a_server_that_is_away_is_no_answer(own_dsn: str) -> None:
    backend = await PostgresBackend.open(own_dsn, statement_timeout_s=STATEMENT_S)
    await backend.close()
    with pytest.raises(Unavailable):
        await backend.database_figures()


async def test_who_waits_for_a_connection_is_seen_and_for_how_long(dsn: str) -> None:
    pool = await open_pool(dsn, size=1, connect_timeout_s=5.0, statement_timeout_s=STATEMENT_S)
    surveying, waits = Surveying(), list[float]()
    surveying._pool = pool
    surveying.on_wait(waits.append)
    async with borrowed(pool):
        pass
    assert surveying.pool_usage() == PoolUsage(idle=1, busy=0, most=1, waiters=0)
    waits.clear()
    async with borrowed(pool):
        assert surveying.pool_usage() == PoolUsage(idle=0, busy=1, most=1, waiters=0)
        assert len(waits) == 1

        async def second() -> None:
            async with borrowed(pool):
                pass

        waiting = asyncio.create_task(second())

        async def is_waiting() -> bool:
            await asyncio.sleep(0)
            return surveying.pool_usage().waiters == 1

        await until(is_waiting)
        # The wait is told when it is over.
        assert len(waits) == 1
    await waiting
    assert len(waits) == 2
    assert waits[1] > 0
    assert surveying.pool_usage().waiters == 0
    await pool.close()


async def test_a_wait_in_vain_is_a_wait(dsn: str) -> None:
    pool = await open_pool(dsn, size=1, connect_timeout_s=0.05, statement_timeout_s=STATEMENT_S)
    waits: list[float] = []
    async with borrowed(pool):
        pool.on_wait = waits.append
        with pytest.raises(Unavailable):
            async with borrowed(pool):
                pass
    assert len(waits) == 1
    assert waits[0] >= 0.05
    await pool.close()
