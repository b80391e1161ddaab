"""What was looked up on one server is not used on another, where an address leads after a failover:
the numbers of lanes and namespaces may be those of others there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import psycopg
import pytest
from tests.integration.postgres.taking import claim

from queue_operator.backends.horizon import Horizon
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import borrowed, trust
from queue_operator.backends.protocol import StatsWindow
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState


@pytest.fixture
def dsn(own_dsn: str) -> str:
    return own_dsn


async def test_no_claim_goes_by_lanes_of_another_history(backend: PostgresBackend) -> None:
    """Their numbers may be those of others, where the address leads by now."""
    await backend.enqueue_job(Job(id="a", type="t"))
    reading = backend._arrivals
    await reading.catch_up()
    assert reading._read is not None
    reading._read = reading._read._replace(history="another")
    reading._read_s, reading._hinted = float("inf"), False
    with pytest.raises(Unavailable, match="another server by now"):
        await claim(backend)
    reading.lose()
    reading._read_s = float("-inf")
    assert await claim(backend) == ["a"]


async def test_what_was_looked_up_elsewhere_refuses_one_connection_and_no_more(
    backend: PostgresBackend, other: PostgresBackend
) -> None:
    """Also where tasks that were begun later know of it, and none of another pool."""
    trust(other._pool, "yet another")
    await backend.ping()
    trust(backend._pool, "another")
    refused = 0
    for _ in range(3):
        try:
            await asyncio.create_task(backend.ping())
        except Unavailable:
            refused += 1
    assert refused == 1


@pytest.mark.parametrize("names", [["a"], ["none"], ["a", "none"], ["none", "a"]], ids=" ".join)
async def test_numbers_of_namespaces_are_not_used_on_another_server(
    dsn: str, names: list[str]
) -> None:
    backend = await PostgresBackend.open(dsn, pool_size=1)
    await backend.enqueue_job(Job(id="a", type="t", namespace="a"))
    async with borrowed(backend._pool) as line:
        pass
    for name in names:
        await backend._lanes.namespace_id(name)
    line.history = "another"
    with pytest.raises(Unavailable, match="another server by now"):
        await backend.ping()
    await backend.close()


async def test_what_a_lost_server_still_answers_is_not_taken_for_what_the_new_one_says(
    dsn: str,
) -> None:
    backend = await PostgresBackend.open(dsn, pool_size=1)
    async with borrowed(backend._pool) as line:
        new, line.history = line.history, "of the lost one"
    assert await backend._lanes.namespace_id("none") is None
    line.history = new
    with pytest.raises(Unavailable, match="another server by now"):
        await backend.ping()
    await backend.ping()
    await backend.close()


async def test_statistics_are_not_those_of_another_server(dsn: str) -> None:
    backend = await PostgresBackend.open(dsn, pool_size=1)
    await backend.enqueue_job(Job(id="a", type="t", namespace="a"))
    await backend.window_stats(StatsWindow(namespace="a"))
    # Remembered from the server that is lost.
    backend._lanes._history = "another"
    backend._counts._fold_at_s = float("-inf")
    with pytest.raises(Unavailable, match="another server by now"):
        await backend.window_stats(StatsWindow(namespace="a"))
    await backend.close()


async def test_who_only_reads_knows_to_which_server_its_numbers_belong(
    dsn: str, backend: PostgresBackend
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    fresh = await PostgresBackend.open(dsn, pool_size=1)
    await fresh.get_job("a")
    async with borrowed(fresh._pool) as line:
        pass
    line.history = "another"
    with pytest.raises(Unavailable, match="another server by now"):
        await fresh.cancel_jobs([], ["a"])
    await fresh.close()


async def test_lanes_are_named_by_the_server_that_told_of_them(backend: PostgresBackend) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    [lane_id] = backend._lanes._keys
    with pytest.raises(Unavailable, match="another server by now"):
        await backend._lanes.find([lane_id], "another")


async def test_statistics_of_the_server_that_are_reset_stop_nobody(
    dsn: str, backend: PostgresBackend, postgres_admin_dsn: str
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    await backend._arrivals.catch_up()
    async with await psycopg.AsyncConnection.connect(postgres_admin_dsn) as admin:
        await admin.execute("SELECT pg_stat_reset_shared('bgwriter')")
    refused = 0
    calls: list[Callable[[], Awaitable[object]]] = [
        partial(claim, backend),
        partial(backend.get_job, "a"),
    ]
    for call in (*calls, *calls):
        try:
            await call()
        except Unavailable:
            refused += 1
    assert refused <= 2
    assert (await backend.get_job("a")).state is JobState.RUNNING


async def test_of_another_history_nothing_is_forgotten_by_what_was_read_before(
    backend: PostgresBackend, other: PostgresBackend
) -> None:
    """Its transactions have other numbers."""
    known = backend._arrivals
    assert await claim(backend) == []
    last = known._read
    assert last is not None
    longer_ago = last.at.replace(year=last.at.year - 1)
    known._past._reads = [last._replace(horizon=Horizon(10**12), at=longer_ago)]
    known._read = last._replace(history="of another server")
    assert await claim(other) == []
    await backend.enqueue_job(Job(id="a", type="t"))
    await known.catch_up(thorough=True)
    await known.prune()
    other._arrivals.hint()
    assert await claim(other) == ["a"]
