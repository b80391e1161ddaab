"""Passing things to another thread's event loop, cheaply when there are many."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Handoff(Generic[Item]):
    """Calls `take` on the loop with each item, in order. To wake a loop costs more than most
    items do, so it is woken once for all that arrive before it looks. What takes them sees the
    context variables of whoever made this, and not of one that puts something in.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[Item], object]) -> None:
        self._loop = loop
        self._take = take
        self._items: deque[Item] = deque()
        self._woken = False
        self._within = copy_context()

    def put(self, item: Item) -> None:
        """From any thread. After the loop's end nothing happens."""
        self._items.append(item)
        if not self._woken:
            self._woken = True
            self._wake()

    def _wake(self) -> None:
        # A loop that is closed says so by a RuntimeError.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take_all, context=self._within)

    def _take_all(self) -> None:
        # Before the first look: whoever puts something in from now on is seen, or wakes again.
        self._woken = False
        try:
            while self._items:
                self._take(self._items.popleft())
        except BaseException:
            # The loop tells of the error; it is no fault of the items behind.
            self._wake()
            raise
