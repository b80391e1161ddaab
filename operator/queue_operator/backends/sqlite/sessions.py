"""Worker sessions: written by the process a worker is connected to, read by all."""

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from pydantic import TypeAdapter

from queue_operator.backends.protocol import Topic, WorkerSession
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite.rows import microseconds
from queue_operator.backends.sqlite.signals import announce

_OPEN: Final = load(__package__, "open_session")
_LIST: Final = load(__package__, "list_sessions")
_PRUNE: Final = load(__package__, "prune_sessions")
_SESSION: Final = TypeAdapter(WorkerSession)


def open_session(connection: sqlite3.Connection, session: WorkerSession, now: datetime) -> None:
    _store(connection, replace(session, connected_at=now, heartbeat_at=now), now)
    announce(connection, {Topic.SESSION})


def touch_sessions(
    connection: sqlite3.Connection, sessions: Sequence[WorkerSession], now: datetime
) -> None:
    """Sessions that are not stored are left out; of two with one id the last counts."""
    stored = {one.session_id: one for one in list_sessions(connection, None, now)}
    newest = {one.session_id: one for one in sessions if one.session_id in stored}
    for session_id, told in newest.items():
        known = stored[session_id]
        touched = replace(known, busy=told.busy, draining=told.draining, heartbeat_at=now)
        _store(connection, touched, now)
        if (known.busy, known.draining) != (told.busy, told.draining):
            announce(connection, {Topic.SESSION})


def close_sessions(connection: sqlite3.Connection, session_ids: Collection[str]) -> None:
    names = [(session_id,) for session_id in session_ids]
    done = connection.executemany("DELETE FROM session WHERE session_id = ?", names)
    if done.rowcount > 0:
        announce(connection, {Topic.SESSION})


def prune_sessions(connection: sqlite3.Connection, max_age_s: float, now: datetime) -> None:
    """Removes sessions silent for longer, whose process died."""
    if connection.execute(_PRUNE, _since(max_age_s, now)).rowcount > 0:
        announce(connection, {Topic.SESSION})


def list_sessions(
    connection: sqlite3.Connection, max_age_s: float | None, now: datetime
) -> list[WorkerSession]:
    rows = connection.execute(_LIST, _since(max_age_s, now))
    found = [_SESSION.validate_json(record) for (record,) in rows]
    return sorted(
        found, key=lambda one: (one.namespace, one.worker_name, one.connected_at, one.session_id)
    )


def _store(connection: sqlite3.Connection, session: WorkerSession, now: datetime) -> None:
    parameters = {
        "session_id": session.session_id,
        "heartbeat_at": microseconds(now),
        "record": _SESSION.dump_json(session).decode(),
    }
    connection.execute(_OPEN, parameters)


def _since(max_age_s: float | None, now: datetime) -> dict[str, int]:
    return {"since": 0 if max_age_s is None else microseconds(now - timedelta(seconds=max_age_s))}
