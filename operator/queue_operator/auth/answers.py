"""Remembers the answers of a slow reviewer for a short while."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Answers(Generic[K, V]):
    """A bounded cache in which concurrent questions about one key ask only once.

    `ttl_s` says how long an answer may be reused; errors are never kept. The least
    recently used of more than `size` answers is dropped.
    """

    def __init__(
        self, ttl_s: Callable[[V], float], monotonic: Callable[[], float], size: int = 10_000
    ) -> None:
        self._ttl_s = ttl_s
        self._monotonic = monotonic
        self._size = size
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The kept answer if it is fresh, else that of `ask`, whose errors pass through."""
        kept = self._kept.get(key)
        if kept is not None and kept[0] > self._monotonic():
            self._kept.move_to_end(key)
            return kept[1]
        task = self._asking.get(key)
        if task is None:
            task = asyncio.ensure_future(self._ask(key, ask))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._asked(key, done))
        # One caller that gives up must not take the answer from the others.
        return await asyncio.shield(task)

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        answer = await ask()
        self._kept[key] = (self._monotonic() + self._ttl_s(answer), answer)
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return answer

    def _asked(self, key: K, task: asyncio.Task[V]) -> None:
        del self._asking[key]
        if not task.cancelled():
            # Looked at here too, in case every caller has given up meanwhile.
            task.exception()
