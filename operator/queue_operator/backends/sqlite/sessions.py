"""Worker sessions: written by the process a worker is connected to, read by all."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from pydantic import TypeAdapter

from queue_operator.backends.lost_workers import LOST_FOR, Loss, LostWorker, newest_of
from queue_operator.backends.protocol import Topic
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite.rows import microseconds
from queue_operator.backends.sqlite.signals import announce
from queue_operator.backends.worker_sessions import (
    SessionNews,
    SessionOrder,
    SessionRoll,
    WorkerSession,
    keeping,
    losing,
    news_of,
    opening,
    ordering,
    told_of,
    touching,
)

_OPEN: Final = load(__package__, "open_session")
_CLOSE: Final = load(__package__, "close_sessions")
_LIST: Final = load(__package__, "list_sessions")
_PRUNE: Final = load(__package__, "prune_sessions")
_LOSE: Final = load(__package__, "lose_session")
_LOST: Final = load(__package__, "lost_workers")
_FIND_AGAIN: Final = load(__package__, "find_again")
_PRUNE_LOST: Final = load(__package__, "prune_lost")
_LOST_WORKER: Final = TypeAdapter(LostWorker)
_SESSION: Final = TypeAdapter(WorkerSession)
_EVER: Final = {"since": 0}


def open_session(
    connection: sqlite3.Connection, session: WorkerSession, now: datetime
) -> SessionNews:
    before = _find(connection).get(session.session_id)
    opened = opening(session, before)
    _store(connection, replace(opened, connected_at=now), now)
    name = {"namespace": session.namespace, "worker_name": session.worker_name}
    connection.execute(_FIND_AGAIN, name)
    announce(connection, {Topic.SESSION})
    return told_of(opened, before)


def touch_sessions(
    connection: sqlite3.Connection, sessions: Sequence[WorkerSession], now: datetime
) -> None:
    """Sessions that are not stored are left out; of two with one id the last counts."""
    stored = _find(connection)
    for touched in touching(stored, sessions):
        if touched != stored[touched.session_id]:
            announce(connection, {Topic.SESSION})
        _store(connection, touched, now)


def keep_sessions(connection: sqlite3.Connection, roll: SessionRoll, now: datetime) -> bool:
    kept = keeping(_find(connection), roll, now)
    for one in kept:
        _store(connection, one, now)
    return bool(kept)


def session_news(
    connection: sqlite3.Connection, sessions: Sequence[WorkerSession]
) -> list[SessionNews]:
    stored = _find(connection)
    return [news for one in sessions if (news := news_of(one, stored.get(one.session_id)))]


def order_session(connection: sqlite3.Connection, session_id: str, order: SessionOrder) -> None:
    stored = _find(connection).get(session_id)
    ordered = ordering(stored, order)
    if ordered is not None and ordered.heartbeat_at is not None:
        _store(connection, ordered, ordered.heartbeat_at)
        announce(connection, {Topic.SESSION})


def close_sessions(
    connection: sqlite3.Connection, session_ids: Collection[str], replica: str | None
) -> None:
    named = [{"id": session_id, "replica": replica} for session_id in session_ids]
    done = connection.executemany(_CLOSE, named)
    if done.rowcount > 0:
        announce(connection, {Topic.SESSION})


def lose_sessions(
    connection: sqlite3.Connection, losses: Sequence[Loss], replica: str | None, now: datetime
) -> None:
    """As `close_sessions`, but it is kept that they were lost."""
    stored = _find(connection)
    for loss in losses:
        closed = connection.execute(_CLOSE, {"id": loss.session_id, "replica": replica})
        if closed.rowcount > 0:
            _keep_lost(connection, losing(stored[loss.session_id], loss, now))
            announce(connection, {Topic.SESSION})


def _keep_lost(connection: sqlite3.Connection, lost: LostWorker) -> None:
    parameters = {
        "session_id": lost.session_id,
        "namespace": lost.namespace,
        "worker_name": lost.worker_name,
        "lost_at": microseconds(lost.lost_at),
        "record": _LOST_WORKER.dump_json(lost).decode(),
    }
    connection.execute(_LOSE, parameters)


def lost_workers(connection: sqlite3.Connection, namespace: str, now: datetime) -> list[LostWorker]:
    rows = connection.execute(_LOST, {"namespace": namespace})
    found = [_LOST_WORKER.validate_json(record) for (record,) in rows]
    return newest_of(found, namespace, now)


def prune_sessions(connection: sqlite3.Connection, max_age_s: float, now: datetime) -> None:
    """Removes sessions silent for longer, whose process died."""
    connection.execute(_PRUNE_LOST, {"since": microseconds(now - LOST_FOR)})
    if connection.execute(_PRUNE, _since(max_age_s, now)).rowcount > 0:
        announce(connection, {Topic.SESSION})


def list_sessions(
    connection: sqlite3.Connection, max_age_s: float | None, now: datetime
) -> list[WorkerSession]:
    found = _find(connection, _since(max_age_s, now)).values()
    return sorted(
        (one for one in found if not one.order.ended),
        key=lambda one: (one.namespace, one.worker_name, one.connected_at, one.session_id),
    )


def _find(
    connection: sqlite3.Connection, heard: Mapping[str, int] = _EVER
) -> dict[str, WorkerSession]:
    rows = connection.execute(_LIST, heard)
    found = [_SESSION.validate_json(record) for (record,) in rows]
    return {one.session_id: one for one in found}


def _store(connection: sqlite3.Connection, session: WorkerSession, heard_at: datetime) -> None:
    kept = replace(session, heartbeat_at=heard_at)
    parameters = {
        "session_id": session.session_id,
        "heartbeat_at": microseconds(heard_at),
        "record": _SESSION.dump_json(kept).decode(),
    }
    connection.execute(_OPEN, parameters)


def _since(max_age_s: float | None, now: datetime) -> dict[str, int]:
    return {"since": 0 if max_age_s is None else microseconds(now - timedelta(seconds=max_age_s))}
