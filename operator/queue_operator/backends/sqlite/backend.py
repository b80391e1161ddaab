"""The SQLite backend: one file, for small and test uses.

Each call is one transaction. Those that write lock out other writers from their start, so
several processes may use the file at once, one at a time; those that read wait for nobody.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Final, Self, TypeVar

from queue_operator.backends.engine import Engine
from queue_operator.backends.listening import Versions, listen
from queue_operator.backends.lost_workers import Loss, LostWorker
from queue_operator.backends.protocol import News, QueueDepth
from queue_operator.backends.sessions_base import SessionsBase
from queue_operator.backends.shelf import Shelf
from queue_operator.backends.sqlite import sessions as rows
from queue_operator.backends.sqlite.depth import queue_depth
from queue_operator.backends.sqlite.file import SqliteFile
from queue_operator.backends.sqlite.migrate import migrate
from queue_operator.backends.sqlite.rows import microseconds
from queue_operator.backends.sqlite.shelf import SqliteShelf
from queue_operator.backends.sqlite.signals import read_news
from queue_operator.backends.watching_base import ShelfWatching
from queue_operator.backends.worker_sessions import (
    SessionNews,
    SessionOrder,
    SessionRoll,
    WorkerSession,
)
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.lease import Lost
from queue_operator.domain.overdue import CANCEL_TIMEOUT_S
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits, check_ttl

_STALE_SESSION_S: Final = 3600.0
_T = TypeVar("_T")


class SqliteBackend(Engine, SessionsBase, ShelfWatching):
    """The whole contract in one file, with all capabilities but ResourceMirror. `clock` gives
    aware times, and every decision uses it; `sleep` paces `listen`.
    """

    def __init__(
        self,
        file: SqliteFile,
        *,
        limits: Limits,
        clock: Callable[[], datetime],
        rng: Callable[[], float],
        cancel_timeout_s: float,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._file = file
        self._sleep = sleep
        super().__init__(
            _NOWHERE, limits=limits, clock=clock, rng=rng, cancel_timeout_s=cancel_timeout_s
        )

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: Callable[[], float] = random.random,
        cancel_timeout_s: float = CANCEL_TIMEOUT_S,
        busy_timeout_s: float = 5.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> Self:
        """Opens the file, and makes it and its tables where they are missing. A call waits
        `busy_timeout_s` for others to let go of it.

        Raises Unavailable when the file cannot be used, is of a newer release, or another's, and
        InvalidArgument for a path that names none.
        """
        cls._check(limits, cancel_timeout_s)
        check_ttl("busy_timeout_s", busy_timeout_s)
        if not isinstance(path, str | Path):
            raise InvalidArgument("path", f"must be a path, not {type(path).__name__}")
        if "\x00" in str(path):
            raise InvalidArgument("path", "must not contain NUL characters")
        file = SqliteFile(Path(path), busy_timeout_s)
        try:
            await file.open(lambda c: migrate(c, Path(path), microseconds(clock())))
        except BaseException:
            await file.close()
            raise
        return cls(
            file,
            limits=limits,
            clock=clock,
            rng=rng,
            cancel_timeout_s=cancel_timeout_s,
            sleep=sleep,
        )

    async def close(self) -> None:
        """After the calls that are running."""
        await self._file.close()

    async def _alone(self, work: Callable[[], _T], *, reads: bool = False) -> _T:
        on_shelf = partial(self._on_shelf, work, reads=reads)
        return await (self._file.read(on_shelf) if reads else self._file.write(on_shelf))

    async def _alone_or_undone(self, work: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
        return await self._file.give(
            partial(self._on_shelf, work),
            lambda connection, given: self._on_shelf(lambda: undo(given), connection),
        )

    def _on_shelf(self, work: Callable[[], _T], connection: Connection, reads: bool = False) -> _T:
        self._shelf = shelf = SqliteShelf(connection)
        try:
            done = work()
            if not reads:
                shelf.flush()
            return done
        finally:
            self._shelf = _NOWHERE

    async def _expire(self, lease_ttl_s: float, limit: int) -> list[Lost]:
        lost = await super()._expire(lease_ttl_s, limit)
        await self._file.write(lambda c: rows.prune_sessions(c, _STALE_SESSION_S, self._clock()))
        return lost

    async def queue_depth(self) -> QueueDepth:
        return await self._file.read(lambda c: queue_depth(c, self._clock()))

    def listen(self) -> AsyncIterator[News]:
        return listen(self._news, self._clock, self._sleep)

    async def _news(self, since: datetime, now: datetime) -> Versions:
        return await self._file.read(lambda c: read_news(c, since, now))

    async def _open_session(self, session: WorkerSession) -> SessionNews:
        return await self._file.write(lambda c: rows.open_session(c, session, self._clock()))

    async def _session_news(self, sessions: Sequence[WorkerSession]) -> list[SessionNews]:
        return await self._file.read(lambda c: rows.session_news(c, sessions))

    async def _order_session(self, session_id: str, order: SessionOrder) -> None:
        await self._file.write(lambda c: rows.order_session(c, session_id, order))

    async def _touch_sessions(self, sessions: Sequence[WorkerSession]) -> None:
        await self._file.write(lambda c: rows.touch_sessions(c, sessions, self._clock()))

    async def _keep_sessions(self, roll: SessionRoll) -> bool:
        return await self._file.write(lambda c: rows.keep_sessions(c, roll, self._clock()))

    async def _close_sessions(self, session_ids: Collection[str], replica: str | None) -> None:
        await self._file.write(lambda c: rows.close_sessions(c, session_ids, replica))

    async def _lose_sessions(self, losses: Sequence[Loss], replica: str | None) -> None:
        await self._file.write(lambda c: rows.lose_sessions(c, losses, replica, self._clock()))

    async def _lost_workers(self, namespace: str) -> list[LostWorker]:
        return await self._file.read(lambda c: rows.lost_workers(c, namespace, self._clock()))

    async def _list_sessions(self, max_age_s: float | None) -> list[WorkerSession]:
        return await self._file.read(lambda c: rows.list_sessions(c, max_age_s, self._clock()))


class _Nowhere:
    """Between two calls there is no shelf."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked for outside of a transaction")


_NOWHERE: Final[Shelf] = _Nowhere()  # type: ignore[assignment]
