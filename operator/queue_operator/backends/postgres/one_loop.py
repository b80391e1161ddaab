"""A Postgres backend belongs to the event loop that it was opened on. Its connections are that
loop's, and so is whatever a call waits for: from another, a call might hang, or break others.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import getattr_static, iscoroutinefunction
from typing import Any, TypeVar

from queue_operator.backends.postgres.connection import Pool
from queue_operator.domain.errors import QueueError

_T = TypeVar("_T")


class WrongLoop(QueueError):
    """A call came from another event loop, mostly another thread's, or after `asyncio.run` had
    ended the one that the backend was opened on. Nothing of it happened.
    """

    def __init__(self) -> None:
        super().__init__(
            "the Postgres backend was opened on another event loop: open one there too (any number "
            "may use a database), or hand the call over with asyncio.run_coroutine_threadsafe; "
            "where that loop has ended, only close() works, on any loop"
        )


def check_loop(pool: Pool) -> None:
    """Raises WrongLoop, or WrongProcess in a fork, whatever loop that runs."""
    pool.birthplace.check()
    if asyncio.get_running_loop() is not pool.loop:
        raise WrongLoop


def on_one_loop(backend: type[_T]) -> type[_T]:
    """Makes all public coroutine methods of a class raise WrongLoop where they must not run; its
    instances have a `_pool`.
    """
    for name in dir(backend):
        method = getattr_static(backend, name)
        if not name.startswith("_") and iscoroutinefunction(method):
            setattr(backend, name, _checking(method))
    return backend


def _checking(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def checked(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if method.__name__ == "close":
            if self._pool.birthplace.is_elsewhere:
                # To hang up would end the connections of the parent.
                return None
            if self._pool.loop.is_closed():
                self._pool.abandon()
                return None
        check_loop(self._pool)
        return await method(self, *args, **kwargs)

    return checked
