"""What tests wait for: that it never comes fails them."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Final, TypeVar

from queue_operator.domain.job import Assignment, Job
from queue_operator.queue.protocol import JobBatches, Stream

DEADLINE_S: Final = float(os.environ.get("QUEUE_OPERATOR_TEST_DEADLINE_S", "120"))
"""However busy the machine is. Where it is known that something is broken, less is enough."""
STATEMENT_S: Final = 60.0
"""The patience of a store with one statement, where what a test asks is not how long that takes."""
T = TypeVar("T")


async def together(several: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """What all of them give. Where one fails, the others are cancelled, and still close what they
    opened before anybody hears of the failure.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in several]
    return [task.result() for task in tasks]


async def until(ask: Callable[[], Awaitable[bool]]) -> None:
    """Asks again and again until the answer is true. It has to wait for something: a store, or
    the network.
    """
    async with asyncio.timeout(DEADLINE_S):
        while not await ask():
            pass


async def take(stream: Stream, count: int) -> list[Assignment]:
    """The next assignments, delivered."""
    taken: list[Assignment] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(taken) < count:
            push = await stream.next()
            assert push is not None, "the stream has ended"
            stream.delivered(push)
            taken += push.assignments
    return taken


async def take_jobs(stream: JobBatches, count: int) -> list[Job]:
    """The next jobs, however they are cut into batches."""
    taken: list[Job] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(taken) < count:
            taken += await anext(stream)
    return taken
