"""Waiting for calls to stand at a lock."""

import asyncio

import psycopg
from tests.waiting import DEADLINE_S

_WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


async def until_waiting(dsn: str, count: int) -> None:
    """Returns once that many sessions of the database wait for a lock; that they never do fails
    the test.
    """
    async with (
        asyncio.timeout(DEADLINE_S),
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as admin,
    ):
        while await (await admin.execute(_WAITING)).fetchone() != (count,):
            pass
