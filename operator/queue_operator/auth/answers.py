"""Remembers the answers of a slow reviewer for a short while."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from queue_operator.domain.errors import Unavailable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

AWAY_S: Final = 15.0
"""How long after a question that it did not answer the reviewer counts as away."""


class _Kept(NamedTuple, Generic[V]):
    asked_s: float
    answer: V


class Answers(Generic[K, V]):
    """A bounded cache in which concurrent questions about one key ask only once.

    `ttl_s` says how long an answer may be reused, `outage_s` how long while the reviewer is away:
    then nobody waits for it who has such an answer, and one question at a time looks whether it is
    back. Errors are never kept. The least recently used of more than `size` answers is dropped;
    those that are `cheap`, which anybody can have made, never push out others.
    """

    def __init__(
        self,
        ttl_s: Callable[[V], float],
        monotonic: Callable[[], float],
        size: int = 10_000,
        *,
        outage_s: Callable[[V], float] = lambda _: 0.0,
        cheap: Callable[[V], bool] = lambda _: False,
    ) -> None:
        self._ttl_s = ttl_s
        self._outage_s = outage_s
        self._cheap = cheap
        self._monotonic = monotonic
        self._size = size
        self._unanswered_s = float("-inf")
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._kept_cheaply: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The kept answer if it is fresh, else that of `ask`, whose errors pass through unless an
        older answer stands in for it.
        """
        store = self._kept if key in self._kept else self._kept_cheaply
        kept = store.get(key)
        if kept is not None and self._is_within(kept, self._ttl_s):
            store.move_to_end(key)
            return kept.answer
        stand_in = kept if kept is not None and self._is_within(kept, self._outage_s) else None
        if stand_in is not None and self._is_away():
            if not self._asking:
                self._begin(key, ask)
            return stand_in.answer
        task = self._asking.get(key) or self._begin(key, ask)
        try:
            # One caller that gives up must not take the answer from the others.
            return await asyncio.shield(task)
        except Unavailable:
            if stand_in is None:
                raise
            return stand_in.answer

    def has_been_good(self, key: K) -> bool:
        """Whether the last answer, however old, was none of the cheap ones."""
        return key in self._kept

    def _is_away(self) -> bool:
        return self._monotonic() < self._unanswered_s + AWAY_S

    def _is_within(self, kept: _Kept[V], limit_s: Callable[[V], float]) -> bool:
        return self._monotonic() < kept.asked_s + limit_s(kept.answer)

    def _begin(self, key: K, ask: Callable[[], Awaitable[V]]) -> asyncio.Task[V]:
        task = asyncio.ensure_future(self._ask(key, ask))
        self._asking[key] = task
        task.add_done_callback(lambda done: self._asked(key, done))
        return task

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            answer = await ask()
        except Unavailable:
            self._unanswered_s = self._monotonic()
            raise
        self._unanswered_s = float("-inf")
        store, other = self._kept, self._kept_cheaply
        if self._cheap(answer):
            store, other = other, store
        other.pop(key, None)
        store[key] = _Kept(self._monotonic(), answer)
        store.move_to_end(key)
        while len(store) > self._size:
            store.popitem(last=False)
        return answer

    def _asked(self, key: K, task: asyncio.Task[V]) -> None:
        del self._asking[key]
        if not task.cancelled():
            # Looked at here too, in case every caller has given up meanwhile.
            task.exception()
