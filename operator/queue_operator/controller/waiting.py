"""Waiting for whichever comes first."""

import asyncio
import contextlib


async def wait_for_event(event: asyncio.Event, timeout_s: float | None) -> None:
    """Until the event or the time, whichever is first; the event is used up."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()
