"""What kopf leaves in the event loop when it ends is not told; what others leave there is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from kopf._cogs.clients.api import stream
from kopf._cogs.clients.watching import infinite_watch

from queue_operator.controller.startup import _unless_of_kopf


async def told(callback: Any, caplog: pytest.LogCaptureFixture) -> str:
    """What the log has of a callback that fails."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unless_of_kopf)
    called = asyncio.Event()
    loop.call_soon(callback)
    loop.call_soon(called.set)
    await called.wait()
    return caplog.text


async def test_a_request_of_kopf_s_that_cannot_be_cancelled_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It waits for its answer when kopf ends, and kopf looks for its task where there is none."""
    stopper: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    added: list[Any] = []

    class Stopper:
        def done(self) -> bool:
            return stopper.done()

        def add_done_callback(self, callback: Any) -> None:
            added.append(callback)

        def remove_done_callback(self, callback: Any) -> None:
            """It is kept."""

    # It has nobody to ask.
    with suppress(Exception):
        async for _ in stream(url="", settings=None, logger=None, stopper=Stopper()):  # type: ignore[arg-type]
            pass
    assert added
    assert await told(lambda: added[0](stopper), caplog) == ""


async def test_a_watch_of_kopf_s_that_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    """It is in the middle of an event when kopf ends, and its block catches what should end it."""
    error = RuntimeError("generator didn't stop after athrow()")
    loop = asyncio.get_running_loop()

    def of(watch: object) -> dict[str, Any]:
        return {"message": "not closed", "exception": error, "asyncgen": watch}

    kopf_s = infinite_watch(settings=None, resource=None, namespace=None)  # type: ignore[arg-type]
    assert await told(lambda: loop.call_exception_handler(of(kopf_s)), caplog) == ""

    async def ours() -> AsyncIterator[int]:
        yield 1

    text = await told(lambda: loop.call_exception_handler(of(ours())), caplog)
    assert "generator didn't stop" in text


async def test_a_failure_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise RuntimeError("of ours")

    assert "RuntimeError: of ours" in await told(fails, caplog)
