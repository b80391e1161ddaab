"""A server that ends idle sessions does not end the one that listens."""

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from psycopg import AsyncConnection, sql
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres.ear import Ear


async def ending_idle_sessions(dsn: str) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as admin:
        name = sql.Identifier(admin.info.dbname)
        statement = sql.SQL("ALTER DATABASE {} SET idle_session_timeout = '200ms'")
        await admin.execute(statement.format(name))


async def test_the_listening_connection_outlives_sessions_that_say_nothing(
    new_database: Callable[[], str],
) -> None:
    dsn = new_database()
    await ending_idle_sessions(dsn)
    heard: asyncio.Queue[str] = asyncio.Queue()
    connections: list[None] = []
    ear = Ear(dsn, heard.put_nowait, lambda: connections.append(None), lambda: 0.5)
    listening = asyncio.create_task(ear.listen())
    await ear.tried.wait()
    # It began after the ear did: when the server has ended it, the ear was silent for longer.
    async with await AsyncConnection.connect(dsn, autocommit=True) as idle:
        with pytest.raises(psycopg.OperationalError, match="closed the connection"):
            await anext(idle.notifies())
    async with await AsyncConnection.connect(dsn, autocommit=True) as other:
        await other.execute("SELECT pg_notify('queue_operator', 'still there?')")
    assert await asyncio.wait_for(heard.get(), DEADLINE_S) == "still there?"
    assert len(connections) == 1
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
