"""Worker sessions in a dictionary. What changes it says whether that is news to anybody; a
session that is opened always is.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from queue_operator.backends.lost_workers import LOST_FOR, Loss, LostWorker
from queue_operator.backends.worker_sessions import (
    SessionOrder,
    SessionRoll,
    WorkerSession,
    is_back,
    keeping,
    losing,
    opening,
    ordering,
    touching,
)

Book = dict[str, WorkerSession]
LostBook = dict[str, LostWorker]


def open_session(book: Book, session: WorkerSession, now: datetime) -> WorkerSession:
    opened = opening(session, book.get(session.session_id))
    opened = book[session.session_id] = replace(opened, connected_at=now, heartbeat_at=now)
    return opened


def touch(book: Book, sessions: Sequence[WorkerSession], now: datetime) -> bool:
    """Sessions that are not open are left out; of two with one id the last counts."""
    touched = touching(book, sessions)
    changed = any(one != book[one.session_id] for one in touched)
    for one in touched:
        book[one.session_id] = replace(one, heartbeat_at=now)
    return changed


def keep(book: Book, roll: SessionRoll, now: datetime) -> bool:
    kept = keeping(book, roll, now)
    for one in kept:
        book[one.session_id] = replace(one, heartbeat_at=now)
    return bool(kept)


def order(book: Book, session_id: str, wanted: SessionOrder) -> bool:
    ordered = ordering(book.get(session_id), wanted)
    if ordered is not None:
        book[session_id] = ordered
    return ordered is not None


def close(book: Book, session_ids: Iterable[str], replica: str | None) -> bool:
    """With `replica`, those that are open on another one stay."""
    mine = {name for name in session_ids if name in book and not book[name].order.ended}
    if replica is not None:
        mine = {name for name in mine if book[name].replica == replica}
    return forget(book, mine)


def lose(
    book: Book, lost: LostBook, losses: Iterable[Loss], replica: str | None, now: datetime
) -> bool:
    """As `close`, but it is kept that they were lost."""
    known = {
        one.session_id: losing(book[one.session_id], one, now)
        for one in losses
        if one.session_id in book
    }
    closed = close(book, known, replica)
    lost.update({name: one for name, one in known.items() if name not in book})
    return closed


def find_again(lost: LostBook, opened: WorkerSession) -> None:
    for name in [name for name, one in lost.items() if is_back(one, opened)]:
        del lost[name]


def forget_lost(lost: LostBook, now: datetime) -> None:
    for name in [name for name, one in lost.items() if now - one.lost_at > LOST_FOR]:
        del lost[name]


def forget(book: Book, session_ids: Collection[str]) -> bool:
    for name in session_ids:
        del book[name]
    return bool(session_ids)


def silent(book: Book, max_age_s: float, now: datetime) -> list[str]:
    """Ids of those not heard of for longer, whose process died."""
    since = now - timedelta(seconds=max_age_s)
    return [one.session_id for one in book.values() if (one.heartbeat_at or now) < since]


def listed(book: Book, max_age_s: float | None, now: datetime) -> list[WorkerSession]:
    age = None if max_age_s is None else timedelta(seconds=max_age_s)
    heard = [one for one in book.values() if age is None or now - (one.heartbeat_at or now) <= age]
    found = [one for one in heard if not one.order.ended]
    return sorted(
        found, key=lambda one: (one.namespace, one.worker_name, one.connected_at, one.session_id)
    )
