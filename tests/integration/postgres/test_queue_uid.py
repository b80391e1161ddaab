"""A database tells itself from every other, its own copies included."""

import asyncio
from collections.abc import Callable

from queue_operator.backends.postgres import PostgresBackend, migrate


async def uid(dsn: str) -> str:
    backend = await PostgresBackend.open(dsn)
    try:
        return await backend.queue_uid()
    finally:
        await backend.close()


def test_it_is_the_database_s_and_no_other_s(new_database: Callable[[], str]) -> None:
    addresses = [new_database(), new_database()]
    for address in addresses:
        asyncio.run(migrate(address))
    first, again, other = (asyncio.run(uid(dsn)) for dsn in (*addresses[:1], *addresses))
    assert first == again
    assert first != other
