"""Work in several threads at once, each with an event loop of its own."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Final, TypeVar

THREADS: Final = 6
T = TypeVar("T")


@contextmanager
def impatient() -> Iterator[None]:
    """Threads take turns a thousand times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


async def in_threads(work: Callable[[int], Awaitable[T]]) -> list[T]:
    """What `work` gives in each thread; all begin at once, impatient."""
    start = Barrier(THREADS)

    async def begin(number: int) -> T:
        start.wait(60)
        return await work(number)

    def on_a_loop(number: int) -> T:
        return asyncio.run(begin(number))

    with impatient(), ThreadPoolExecutor(THREADS) as threads:
        running = [threads.submit(on_a_loop, number) for number in range(THREADS)]
        return await asyncio.gather(*map(asyncio.wrap_future, running))
