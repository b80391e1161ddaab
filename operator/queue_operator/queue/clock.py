"""The real clock, and waiting that something else may cut short."""

import asyncio
import time

from queue_operator.domain.clock import Clock


class SystemClock:
    """The machine's monotonic clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


async def sleep_unless(event: asyncio.Event, delay_s: float, clock: Clock) -> bool:
    """Waits `delay_s` seconds or until `event` is set; True when it is set."""
    sleeper = asyncio.ensure_future(clock.sleep(delay_s))
    waiter = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((sleeper, waiter), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()
        waiter.cancel()
    return event.is_set()
