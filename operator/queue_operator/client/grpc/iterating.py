"""What iterators over streams of another process have in common."""

import asyncio
import weakref
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """What is behind an iterator, and outlives one that nobody holds any more, until closed."""

    async def next(self) -> T_co:
        """Raises StopAsyncIteration at the end."""
        ...

    async def open(self) -> None:
        """Raises what the server has against it."""
        ...

    async def close(self) -> None: ...


class Steps(Generic[T]):
    """An async iterator. A step that is cancelled, or timed out, loses nothing."""

    def __init__(self, source: Source[T]) -> None:
        self._source = source
        self._begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self._begin()
        return await self._source.next()

    async def __aenter__(self) -> Self:
        self._begin()
        await self._source.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the stream; a step that waits ends too."""
        await self._source.close()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            # One that a loop has left and nobody closes would go on for ever.
            loop = asyncio.get_running_loop()
            weakref.finalize(self, _abandon, self._source, loop).atexit = False


def _abandon(source: Source[T], loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(lambda: asyncio.ensure_future(source.close()))


async def until_done(task: "asyncio.Task[T]", ended: asyncio.Event) -> None:
    """Until the task is done or the stream has ended; cancels neither."""
    waiting = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
