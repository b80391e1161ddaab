"""The memory backend: nothing waits inside a change, so every call is alone on its loop; and one
lock per shelf keeps it alone among threads.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from queue_operator.backends.chances import SYSTEM, Entropy
from queue_operator.backends.engine import Engine
from queue_operator.backends.listening import Versions, listen
from queue_operator.backends.lost_workers import Loss, LostWorker, newest_of
from queue_operator.backends.memory import sessions as book
from queue_operator.backends.memory.shelf import MemoryShelf
from queue_operator.backends.protocol import News, QueueDepth, Topic
from queue_operator.backends.sessions_base import SessionsBase
from queue_operator.backends.watching_base import ShelfWatching
from queue_operator.backends.worker_sessions import (
    SessionNews,
    SessionOrder,
    SessionRoll,
    WorkerSession,
    news_of,
    told_of,
)
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.lease import Lost
from queue_operator.domain.overdue import CANCEL_TIMEOUT_S
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits

_STALE_SESSION_S: Final = 3600.0
_T = TypeVar("_T")


class MemoryBackend(Engine, SessionsBase, ShelfWatching):
    """Every store's model, with all capabilities but ResourceMirror. Nothing outlives the
    process; backends on one shelf share its jobs. `sleep` paces `listen`. Threads with loops of
    their own may share a backend, or a shelf.
    """

    def __init__(
        self,
        shelf: MemoryShelf | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: Callable[[], float] = random.random,
        cancel_timeout_s: float = CANCEL_TIMEOUT_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        entropy: Entropy = SYSTEM,
    ) -> None:
        self._own = shelf or MemoryShelf()
        self._sleep = sleep
        self._closed = False
        super().__init__(
            self._own,
            limits=limits,
            clock=clock,
            rng=rng,
            cancel_timeout_s=cancel_timeout_s,
            entropy=entropy,
        )
        self._own.swept_at = self._own.swept_at or self._now

    async def _alone(self, work: Callable[[], _T], *, reads: bool = False) -> _T:
        await asyncio.sleep(0)
        with self._own.lock:
            if self._closed:
                raise Unavailable("the backend was closed: open another one")
            if not self._own.reachable:
                raise Unavailable("the memory store was put out of reach")
            return work()

    async def close(self) -> None:
        self._closed = True

    async def _expire(self, lease_ttl_s: float, limit: int) -> list[Lost]:
        lost = await super()._expire(lease_ttl_s, limit)
        own = self._own.sessions
        await self._alone(lambda: book.forget_lost(self._own.lost, self._clock()))
        # Looked for and forgotten at once: another sweep may be under way.
        await self._on_sessions(
            lambda: book.forget(own, book.silent(own, _STALE_SESSION_S, self._clock()))
        )
        return lost

    async def queue_depth(self) -> QueueDepth:
        return await self._alone(lambda: self._own.depth(self._clock()), reads=True)

    def listen(self) -> AsyncIterator[News]:
        return listen(self._news, self._clock, self._sleep)

    async def _news(self, since: datetime, now: datetime) -> Versions:
        return await self._alone(lambda: self._own.news(since, now), reads=True)

    async def _open_session(self, session: WorkerSession) -> SessionNews:
        def opened() -> SessionNews:
            before = self._own.sessions.get(session.session_id)
            new = book.open_session(self._own.sessions, session, self._clock())
            book.find_again(self._own.lost, session)
            self._own.announce(Topic.SESSION)
            return told_of(new, before)

        return await self._alone(opened)

    async def _session_news(self, sessions: Sequence[WorkerSession]) -> list[SessionNews]:
        kept = self._own.sessions
        return await self._alone(
            lambda: [news for one in sessions if (news := news_of(one, kept.get(one.session_id)))],
            reads=True,
        )

    async def _order_session(self, session_id: str, order: SessionOrder) -> None:
        await self._on_sessions(lambda: book.order(self._own.sessions, session_id, order))

    async def _touch_sessions(self, sessions: Sequence[WorkerSession]) -> None:
        await self._on_sessions(lambda: book.touch(self._own.sessions, sessions, self._clock()))

    async def _keep_sessions(self, roll: SessionRoll) -> bool:
        return await self._alone(lambda: book.keep(self._own.sessions, roll, self._clock()))

    async def _close_sessions(self, session_ids: Collection[str], replica: str | None) -> None:
        await self._on_sessions(lambda: book.close(self._own.sessions, session_ids, replica))

    async def _lose_sessions(self, losses: Sequence[Loss], replica: str | None) -> None:
        own = self._own
        await self._on_sessions(
            lambda: book.lose(own.sessions, own.lost, losses, replica, self._clock())
        )

    async def _lost_workers(self, namespace: str) -> list[LostWorker]:
        lost = self._own.lost
        return await self._alone(
            lambda: newest_of(lost.values(), namespace, self._clock()), reads=True
        )

    async def _on_sessions(self, change: Callable[[], bool]) -> None:
        def changed() -> None:
            if change():
                self._own.announce(Topic.SESSION)

        await self._alone(changed)

    async def _list_sessions(self, max_age_s: float | None) -> list[WorkerSession]:
        kept = self._own.sessions
        return await self._alone(lambda: book.listed(kept, max_age_s, self._clock()), reads=True)
