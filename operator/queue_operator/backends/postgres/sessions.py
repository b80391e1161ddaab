"""Worker sessions: written by the process a worker is connected to, read by all."""

from collections.abc import Collection, Sequence
from typing import Any, Final, LiteralString

from psycopg.rows import TupleRow, dict_row

from queue_operator.backends.lost_workers import LOST_FOR, MOST_LOST, Loss, LostWorker
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.signals import Announcer
from queue_operator.backends.protocol import (
    SessionNews,
    SessionOrder,
    SessionRoll,
    Topic,
    WorkerSession,
)
from queue_operator.backends.sql import load
from queue_operator.backends.worker_sessions import KEPT_FOR, not_yours
from queue_operator.domain.errors import Unavailable

_OPEN: Final = load(__package__, "session_open")
TOUCH: Final = load(__package__, "session_touch")
_KEEP: Final = load(__package__, "session_keep")
_CLOSE: Final = load(__package__, "session_close")
_BEATS: Final = load(__package__, "session_beats")
_LIST: Final = load(__package__, "session_list", beats=_BEATS)
_NEWS: Final = load(__package__, "session_news")
_LOSE: Final = load(__package__, "session_lose")
_LOST: Final = load(__package__, "session_lost")
_FORGET: Final = load(__package__, "session_forget")
_ORDER: Final = load(__package__, "session_order")
_PRUNE: Final = load(__package__, "session_prune", beats=_BEATS)

_TRIES: Final = 100
"""Each time that a heartbeat was overtaken, another has been stored."""


class SessionStore:
    """The store's part of the protocol `Sessions`. Times are the database's."""

    def __init__(self, pool: Pool, announcer: Announcer) -> None:
        self._pool = pool
        self._announcer = announcer

    async def open_session(self, session: WorkerSession) -> SessionNews:
        parameters = {
            "session_id": session.session_id,
            "namespace": session.namespace,
            "worker_name": session.worker_name,
            "pod_uid": session.pod_uid,
            "host": session.host,
            "replica": session.replica,
            "tags": sorted(session.tags),
            "types": sorted(session.types),
            "capacity": session.capacity,
            "busy": session.busy,
            "draining": session.draining,
            "version": session.version,
            "connection": session.connection,
        }
        async with borrowed(self._pool) as connection:
            row = await (await connection.execute(_OPEN, parameters)).fetchone()
        if row is None:
            raise not_yours(session)
        self._announcer.announce(Topic.SESSION)
        return _news(row[:-1], previous=row[-1])

    async def touch_sessions(self, sessions: Sequence[WorkerSession]) -> None:
        """Sessions that are not stored are left out; of two with one id the last counts."""
        by_id = {session.session_id: session for session in sessions}
        if not by_id:
            return
        newest = [by_id[session_id] for session_id in sorted(by_id)]
        parameters = {
            **_known(newest),
            "busy": [session.busy for session in newest],
            "draining": [session.draining for session in newest],
        }
        changed = False
        for _ in range(_TRIES):
            async with borrowed(self._pool) as connection:
                [(changed, stored)] = await (await connection.execute(TOUCH, parameters)).fetchall()
            if stored:
                break
        else:
            raise Unavailable("the sessions are being written by others; call again")
        if changed:
            self._announcer.announce(Topic.SESSION)

    async def keep_sessions(self, roll: SessionRoll) -> bool:
        parameters = {
            "replica": roll.replica,
            "count": roll.count,
            "mark": roll.mark,
            "kept_for_s": KEPT_FOR.total_seconds(),
        }
        async with borrowed(self._pool) as connection:
            row = await (await connection.execute(_KEEP, parameters)).fetchone()
        return row is not None and row[0]

    async def session_news(self, sessions: Sequence[WorkerSession]) -> list[SessionNews]:
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_NEWS, _known(sessions))
            return [_news(row) for row in await cursor.fetchall()]

    async def order_session(self, session_id: str, order: SessionOrder) -> None:
        parameters: dict[str, object] = {
            "session_id": session_id,
            "capacity": order.capacity,
            "tags": None if order.tags is None else sorted(order.tags),
            "drain": order.drain,
            "ended": order.ended,
        }
        if await self._count(_ORDER, parameters):
            self._announcer.announce(Topic.SESSION)

    async def close_sessions(
        self, session_ids: Collection[str], *, replica: str | None = None
    ) -> None:
        if await self._count(_CLOSE, {"session_ids": list(session_ids), "replica": replica}):
            self._announcer.announce(Topic.SESSION)

    async def lose_sessions(self, losses: Sequence[Loss], *, replica: str | None = None) -> None:
        parameters: dict[str, object] = {
            "session_ids": [one.session_id for one in losses],
            "jobs": [one.jobs for one in losses],
            "ago_s": [one.ago_s for one in losses],
            "replica": replica,
        }
        if await self._count(_LOSE, parameters):
            self._announcer.announce(Topic.SESSION)

    async def lost_workers(self, namespace: str) -> list[LostWorker]:
        asked = {
            "namespace": namespace,
            "max_age_s": LOST_FOR.total_seconds(),
            "limit": MOST_LOST,
        }
        async with borrowed(self._pool) as connection, connection.cursor(row_factory=dict_row) as c:
            await c.execute(_LOST, asked)
            rows = await c.fetchall()
        return [LostWorker(**{**row, "types": frozenset(row["types"])}) for row in rows]

    async def forget_lost(self) -> None:
        """Removes what was kept of workers that were lost long ago."""
        await self._count(_FORGET, {"max_age_s": LOST_FOR.total_seconds()})

    async def prune_sessions(self, max_age_s: float) -> int:
        """Removes sessions silent for longer, whose process died; gives their number."""
        async with borrowed(self._pool) as connection:
            [(removed,)] = await (
                await connection.execute(_PRUNE, {"max_age_s": max_age_s})
            ).fetchall()
        if removed:
            self._announcer.announce(Topic.SESSION)
        return int(removed)

    async def list_sessions(self, *, max_age_s: float | None = None) -> list[WorkerSession]:
        async with borrowed(self._pool) as connection, connection.cursor(row_factory=dict_row) as c:
            await c.execute(_LIST, {"max_age_s": max_age_s})
            return [_session_from_row(row) for row in await c.fetchall()]

    async def _count(self, statement: LiteralString, parameters: dict[str, object]) -> int:
        async with borrowed(self._pool) as connection:
            return (await connection.execute(statement, parameters)).rowcount


def _known(sessions: Sequence[WorkerSession]) -> dict[str, object]:
    return {
        "session_ids": [session.session_id for session in sessions],
        "connections": [session.connection for session in sessions],
        "followed": [session.followed for session in sessions],
    }


def _news(row: TupleRow, previous: str = "") -> SessionNews:
    session_id, connection, capacity, tags, drain, ended, number = row
    return SessionNews(
        session_id=session_id,
        connection=connection,
        order=_order(capacity, tags, drain, ended=ended),
        order_number=number,
        previous=previous,
    )


def _order(
    capacity: int | None, tags: list[str] | None, drain: bool | None, *, ended: bool = False
) -> SessionOrder:
    wanted = None if tags is None else frozenset(tags)
    return SessionOrder(capacity=capacity, tags=wanted, drain=drain, ended=ended)


def _session_from_row(row: dict[str, Any]) -> WorkerSession:
    wanted = [row.pop(f"wanted_{name}") for name in ("capacity", "tags", "drain")]
    sets = {"tags": frozenset(row["tags"]), "types": frozenset(row["types"])}
    return WorkerSession(**{**row, **sets}, order=_order(*wanted))
