"""A line that is open and silent: the server takes what is sent and says nothing, as a stopped
process does, or a machine whose packets are dropped on the way.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Final

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.integration.postgres.every_call import EVERY, Call, a_job, methods
from tests.integration.postgres.proxy import Proxy, proxied
from tests.waiting import together

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import borrowed, open_pool, transaction
from queue_operator.backends.protocol import News
from queue_operator.domain.errors import QueueError, Unavailable

STATEMENT_S: Final = 0.3
# Longer than a statement of 50 ms takes on any machine.
QUICK_S: Final = 1.0
CONNECT_S: Final = 1.0
# The limit of a statement, half a second to hear of it from the server, and time to compute on
# a busy machine; far below the minutes after which a kernel would give up.
ENOUGH_S: Final = STATEMENT_S + 0.5 + 3.0
AT_ONCE: Final = 8
MOST_EXCHANGES: Final = 12


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[tuple[Proxy, PostgresBackend]]:
    async with proxied(dsn) as (proxy, address):
        backend = await PostgresBackend.open(
            address, pool_size=2, connect_timeout_s=CONNECT_S, statement_timeout_s=STATEMENT_S
        )
        try:
            yield proxy, backend
        finally:
            proxy.speak()
            await backend.close()


async def answered(call: Callable[[], Awaitable[object]]) -> None:
    """Until the store is there again; what the store says about the job does not matter."""
    async with asyncio.timeout(10 * ENOUGH_S):
        while True:
            try:
                await call()
            except Unavailable:
                continue
            except QueueError:
                return
            return


def listening_to(backend: PostgresBackend) -> AsyncGenerator[News, None]:
    topics = backend.listen()
    assert isinstance(topics, AsyncGenerator)
    return topics


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """How long the call takes to say that the store is away."""
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"did not answer in time|no connection"):
        await call()
    return time.monotonic() - started


def test_every_method_is_called() -> None:
    assert set(EVERY) == methods()


async def _check_silence(dsn: str, call: Call) -> float:
    name = uuid.uuid4().hex
    async with opened(dsn) as (proxy, backend):
        await backend.enqueue_job(a_job(f"{name}-before"))
        proxy.fall_silent()
        took = await timed(lambda: call(backend, name))
        proxy.speak()
        await answered(lambda: call(backend, name))
        return took


@pytest.mark.parametrize("first", range(0, len(EVERY), AT_ONCE))
async def test_every_call_on_a_silent_line_ends_and_works_once_it_speaks_again(
    dsn: str, first: int
) -> None:
    names = list(EVERY)[first : first + AT_ONCE]
    took = await together(_check_silence(dsn, EVERY[name]) for name in names)
    assert {n: s for n, s in zip(names, took, strict=True) if s > ENOUGH_S} == {}


async def _check_silence_at(dsn: str, exchange: int, prepared: bool, call: Call) -> bool:
    """Whether the call has that many exchanges."""
    name = uuid.uuid4().hex
    async with opened(dsn) as (proxy, backend):
        if prepared:
            await backend.enqueue_job(a_job(name))
        proxy.fall_silent_at(exchange)
        started = time.monotonic()
        try:
            await call(backend, name)
        except Unavailable:
            assert time.monotonic() - started <= ENOUGH_S
            proxy.speak()
            await answered(lambda: call(backend, name))
            return True
        return False


@pytest.mark.parametrize(
    ("name", "prepared"), [("enqueue_jobs", False), ("cancel_jobs", True), ("get_history", True)]
)
async def test_silence_at_any_point_of_a_call_ends_it(dsn: str, name: str, prepared: bool) -> None:
    reached = await together(
        _check_silence_at(dsn, exchange, prepared, EVERY[name])
        for exchange in range(1, MOST_EXCHANGES)
    )
    assert sum(reached) > 3


async def test_a_silent_server_is_passed_over_for_the_next_in_the_address(dsn: str) -> None:
    there = conninfo_to_dict(dsn)
    async with proxied(dsn) as (proxy, address):
        proxy.fall_silent()
        silent = conninfo_to_dict(address)
        both = make_conninfo(
            dsn,
            host=f"{silent['host']},{there['host']}",
            port=f"{silent['port']},{there['port']}",
        )
        started = time.monotonic()
        backend = await PostgresBackend.open(both, pool_size=1, connect_timeout_s=3.0)
        await answered(backend.ping)
        assert time.monotonic() - started <= 3 * 3.0
        await backend.close()


@pytest.mark.parametrize("listening", [False, True])
async def test_close_ends_while_the_line_is_silent(dsn: str, listening: bool) -> None:
    async with opened(dsn) as (proxy, backend), AsyncExitStack() as stack:
        if listening:
            topics = await stack.enter_async_context(aclosing(listening_to(backend)))
            await anext(topics)
        await backend.enqueue_job(a_job(uuid.uuid4().hex))
        proxy.fall_silent()
        waiting = asyncio.create_task(backend.ping())
        started = time.monotonic()
        await stack.aclose()
        await backend.close()
        assert time.monotonic() - started <= 2 * ENOUGH_S
        with pytest.raises(Unavailable):
            await waiting


async def test_a_listener_whose_line_falls_silent_while_it_subscribes_can_be_stopped(
    dsn: str, backend: PostgresBackend
) -> None:
    async with proxied(dsn) as (proxy, address):
        quiet = await PostgresBackend.open(dsn, listen_dsn=address)
        proxy.stop_after(b"LISTEN")
        topics = listening_to(quiet)
        # It polls meanwhile.
        assert await anext(topics)
        await proxy.until_stopped()
        await backend.enqueue_job(a_job(uuid.uuid4().hex))
        assert await anext(topics)
        started = time.monotonic()
        await topics.aclose()
        await quiet.close()
        assert time.monotonic() - started <= 5.0
        proxy.go_on()


async def test_a_waiting_call_can_be_cancelled_on_a_silent_line(dsn: str) -> None:
    async with proxied(dsn) as (proxy, address):
        patient = await open_pool(address, size=1, connect_timeout_s=5, statement_timeout_s=60)

        async def wait() -> None:
            async with borrowed(patient) as connection:
                asked.set()
                await connection.execute("SELECT pg_sleep(60)")

        asked = asyncio.Event()
        waiting = asyncio.create_task(wait())
        await asked.wait()
        proxy.fall_silent()
        waiting.cancel()
        started = time.monotonic()
        done, _ = await asyncio.wait({waiting}, timeout=30)
        assert done
        assert waiting.cancelled()
        assert time.monotonic() - started <= 4.0
        proxy.speak()
        await patient.close()


async def test_many_quick_statements_may_take_longer_than_one(dsn: str) -> None:
    pool = await open_pool(dsn, size=1, connect_timeout_s=5, statement_timeout_s=QUICK_S)
    started = time.monotonic()
    async with transaction(pool) as connection:
        while time.monotonic() - started < QUICK_S + 0.5 + 0.5:
            await connection.execute("SELECT pg_sleep(0.05)")
    await pool.close()


async def test_one_statement_too_long_is_ended_by_the_server(dsn: str) -> None:
    pool = await open_pool(dsn, size=1, connect_timeout_s=5, statement_timeout_s=STATEMENT_S)
    with pytest.raises(Unavailable, match="took too long"):
        async with borrowed(pool) as connection:
            await connection.execute("SELECT pg_sleep(60)")
    # The connection is as good as before.
    async with borrowed(pool) as connection:
        await connection.execute("SELECT 1")
    await pool.close()
