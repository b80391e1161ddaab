"""Looks at the database now and then, while there is something to look for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from queue_operator.controller.pacing import backoff_s
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable

logger = logging.getLogger(__name__)

LOOK_S: Final = 2.0


async def look_while(
    some: asyncio.Event, look: Callable[[], Awaitable[None]], who: str, clock: Clock
) -> None:
    """For ever; `who` waits is logged once, however long the database is away."""
    failures = 0
    while True:
        await some.wait()
        try:
            await look()
            failures = 0
        except Unavailable as error:
            failures += 1
            if failures == 1:
                logger.warning("%s wait for the database: %s", who, error)
        await clock.sleep(backoff_s(failures) if failures else LOOK_S)
