"""Worker sessions: written by the process a worker is connected to, read by all."""

from collections.abc import Collection, Sequence
from typing import Any, Final, LiteralString

from psycopg.rows import dict_row

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.signals import Announcer
from queue_operator.backends.protocol import Topic, WorkerSession
from queue_operator.backends.sql import load

_OPEN: Final = load(__package__, "session_open")
_TOUCH: Final = load(__package__, "session_touch")
_CLOSE: Final = load(__package__, "session_close")
_LIST: Final = load(__package__, "session_list")
_PRUNE: Final = load(__package__, "session_prune")


class SessionStore:
    """The store's part of the protocol `Sessions`. Times are the database's."""

    def __init__(self, pool: Pool, announcer: Announcer) -> None:
        self._pool = pool
        self._announcer = announcer

    async def open_session(self, session: WorkerSession) -> None:
        """Stores the session; one with this id is replaced, as when a worker reconnects."""
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
        }
        async with borrowed(self._pool) as connection:
            await connection.execute(_OPEN, parameters)
        self._announcer.announce(Topic.SESSION)

    async def touch_sessions(self, sessions: Sequence[WorkerSession]) -> None:
        """Sessions that are not stored are left out; of two with one id the last counts."""
        by_id = {session.session_id: session for session in sessions}
        if not by_id:
            return
        newest = [by_id[session_id] for session_id in sorted(by_id)]
        parameters = {
            "session_ids": [session.session_id for session in newest],
            "busy": [session.busy for session in newest],
            "draining": [session.draining for session in newest],
        }
        async with borrowed(self._pool) as connection:
            row = await (await connection.execute(_TOUCH, parameters)).fetchone()
        if row is not None and row[0]:
            self._announcer.announce(Topic.SESSION)

    async def close_sessions(self, session_ids: Collection[str]) -> None:
        if await self._count(_CLOSE, {"session_ids": list(session_ids)}):
            self._announcer.announce(Topic.SESSION)

    async def prune_sessions(self, max_age_s: float) -> int:
        """Removes sessions silent for longer, whose process died; gives their number."""
        removed = await self._count(_PRUNE, {"max_age_s": max_age_s})
        if removed:
            self._announcer.announce(Topic.SESSION)
        return removed

    async def list_sessions(self, *, max_age_s: float | None = None) -> list[WorkerSession]:
        async with borrowed(self._pool) as connection, connection.cursor(row_factory=dict_row) as c:
            await c.execute(_LIST, {"max_age_s": max_age_s})
            return [_session_from_row(row) for row in await c.fetchall()]

    async def _count(self, statement: LiteralString, parameters: dict[str, object]) -> int:
        async with borrowed(self._pool) as connection:
            return (await connection.execute(statement, parameters)).rowcount


def _session_from_row(row: dict[str, Any]) -> WorkerSession:
    sets = {"tags": frozenset(row["tags"]), "types": frozenset(row["types"])}
    return WorkerSession(**{**row, **sets})
