"""Calls that are seen through although whoever waits for them is cancelled: the slots here must
follow what was stored.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Calls:
    """Those that are under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Its answer; a cancellation ends the wait alone."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # It may be that nobody is left to be told.
            task.exception()

    async def finished(self) -> None:
        """Once none is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)


class Caller(Protocol):
    """What `whole` methods belong to."""

    calls: Calls


_C = TypeVar("_C", bound=Caller)


def whole(
    method: Callable[Concatenate[_C, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_C, _P], Coroutine[Any, Any, _T]]:
    """The call happens as a whole, or not at all."""

    @wraps(method)
    async def finishing(self: _C, /, *args: _P.args, **options: _P.kwargs) -> _T:
        return await self.calls.finish(method(self, *args, **options))

    return finishing
