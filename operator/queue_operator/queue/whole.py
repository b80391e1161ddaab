"""Calls that are seen through although whoever waits for them is cancelled: the slots here must
follow what was stored.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from queue_operator.domain.errors import Unavailable

_P = ParamSpec("_P")
_T = TypeVar("_T")


_MOST_LEFT: Final = 1000
"""Calls whose callers have gone, while the store is away. There are no more until some are over."""


class Unfinished:
    """Calls that are under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._left: set[asyncio.Task[Any]] = set()

    async def finish(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Its answer; a cancellation ends the wait alone. Raises Unavailable, and does not begin,
        while too many were left alone.
        """
        if len(self._left) >= _MOST_LEFT:
            work.close()
            raise Unavailable("too much waits for the store already; call again later")
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._left.add(task)
            raise

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._left.discard(task)
        if not task.cancelled():
            # It may be that nobody is left to be told.
            task.exception()

    async def finished(self) -> None:
        """Once none is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)


class Caller(Protocol):
    """What `whole` methods belong to."""

    unfinished: Unfinished


_C = TypeVar("_C", bound=Caller)


def whole(
    method: Callable[Concatenate[_C, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_C, _P], Coroutine[Any, Any, _T]]:
    """The call happens as a whole, or not at all."""

    @wraps(method)
    async def finishing(self: _C, /, *args: _P.args, **options: _P.kwargs) -> _T:
        return await self.unfinished.finish(method(self, *args, **options))

    return finishing
