"""Pools of connections that a test leaves open where it fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from queue_operator.backends.postgres.connection import Pool


@asynccontextmanager
async def closing_pools() -> AsyncIterator[None]:
    """Closes what is opened on this loop meanwhile. While they connect, the tasks of a pool do not
    end when they are cancelled, and with them no loop would ever close.
    """
    opened: list[Pool] = []
    is_opened = Pool.open

    async def noted(self: Pool, *arguments: Any, **options: Any) -> None:
        opened.append(self)
        await is_opened(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "open", noted)
        try:
            yield
        finally:
            loop = asyncio.get_running_loop()
            for pool in opened:
                if pool.loop is loop:
                    await pool.close()


@pytest.fixture(autouse=True)
async def closed_pools() -> AsyncIterator[None]:
    """What a conftest imports whose tests open backends of their own."""
    async with closing_pools():
        yield
