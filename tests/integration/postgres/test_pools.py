"""What a test leaves open is closed after it, lest its loop never closes."""

import asyncio

import pytest
from tests.integration.postgres.proxy import proxied
from tests.pools import closing_pools

from queue_operator.backends.postgres.connection import Pool, open_pool


async def test_pools_that_are_left_open_are_closed(dsn: str) -> None:
    """Also one that is connecting, on a line where nobody answers."""
    pools: list[Pool] = []

    async with proxied(dsn) as (proxy, address):

        async def fail() -> None:
            async with closing_pools():
                for _ in range(2):
                    opening = open_pool(
                        address, size=1, connect_timeout_s=2.0, statement_timeout_s=1.0
                    )
                    pools.append(await opening)
                proxy.fall_silent()
                await proxy.hang_up()
                asking.append(asyncio.create_task(pools[0].getconn()))
                raise AssertionError("what failed")

        asking: list[asyncio.Task[object]] = []
        with pytest.raises(AssertionError, match="what failed"):
            await fail()
        assert [pool.closed for pool in pools] == [True, True]
        await asyncio.wait(asking)
        assert asking[0].exception() is not None
