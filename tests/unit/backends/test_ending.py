"""Tasks end, also those that lose a cancel on the way."""

import asyncio
import contextlib

from queue_operator.backends.ending import end_tasks


async def test_a_task_that_drops_the_first_cancel_ends_all_the_same() -> None:
    started = asyncio.Event()

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            started.set()
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await started.wait()
    await end_tasks([task])
    assert task.cancelled()


async def test_what_has_ended_is_left_alone_and_what_fails_does_not_disturb() -> None:
    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("on the way out")

    done, fails = asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(failing())
    await done
    await end_tasks([done, fails])
    assert isinstance(fails.exception(), ValueError)
