"""The store of many jobs that the benchmark copies from a few."""

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from tests.contract.store import RECOUNT

from bench.programs.sample import multiply
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.domain.job import Job


def family(name: str) -> list[Job]:
    """Three that wait for the first, in a lane of their own."""
    waiting = [Job(id=f"{name}{n}", type="t", depends_on=(name,)) for n in range(3)]
    return [Job(id=name, type="t", tags=frozenset({name})), *waiting]


@pytest.mark.parametrize("folded", [0, 1, 2], ids=["nothing", "half", "all"])
def test_copies_are_counted_as_what_they_are_copies_of(
    new_database: Callable[[], str], folded: int
) -> None:
    """Also those that wait for others, whatever was folded before."""
    dsn = new_database()

    async def wrong() -> list[tuple[object, ...]]:
        await migrate(dsn)
        backend = await PostgresBackend.open(dsn)
        for n, name in enumerate("ab"):
            await backend.enqueue_jobs(family(name))
            if n < folded:
                await backend._counts.fold_all()
        await multiply(dsn, 4, lambda _: None)
        await backend._counts.fold_all()
        await backend.close()
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await connection.execute("SET search_path = queue_operator")
            assert await (await connection.execute(_BLOCKED)).fetchall() == [(24,)]
            return await (await connection.execute(RECOUNT)).fetchall()

    assert asyncio.run(wrong()) == []


_BLOCKED = "SELECT sum(blocked)::int FROM kind_count"
