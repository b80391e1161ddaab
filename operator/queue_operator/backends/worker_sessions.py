"""Worker sessions as stores keep them: what the worker said, what it does, what it should do."""

import hashlib
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, runtime_checkable

from queue_operator.backends.lost_workers import Loss, LostWorker
from queue_operator.domain.errors import Forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOrder:
    """What an operator of the cluster wants of a session, above what its worker declared; None
    leaves that alone. `ended` is for ever: the worker must come back as a new process.
    """

    capacity: int | None = None
    tags: frozenset[str] | None = None
    drain: bool | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSession:
    """A connected worker process. `session_id` is the assignee id of its jobs; `worker_name`
    and `pod_uid` come from its proven identity, the rest from its hello.

    `connection` names the stream that opened it last. `order` is the newest one, number
    `order_number`, and the replica of the stream follows the one numbered `followed`. `shown`
    says that whoever gives orders has seen it.
    """

    session_id: str
    namespace: str
    worker_name: str
    pod_uid: str = ""
    host: str = ""
    replica: str = ""
    tags: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    capacity: int = 1
    busy: int = 0
    draining: bool = False
    version: str = ""
    connection: str = ""
    order: SessionOrder = field(default_factory=SessionOrder)
    order_number: int = 0
    followed: int = 0
    shown: bool = False
    connected_at: datetime | None = None
    heartbeat_at: datetime | None = None

    def is_of_the_worker_of(self, other: "WorkerSession") -> bool:
        """Both are one worker's."""
        mine = (self.namespace, self.worker_name, self.pod_uid)
        return mine == (other.namespace, other.worker_name, other.pod_uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNews:
    """What the stream of a session does not know yet. `connection` is None where the session
    is not stored any more, and not the stream's own where a newer one has it. `previous` is the
    connection that had it before this one opened it.
    """

    session_id: str
    connection: str | None = None
    order: SessionOrder = field(default_factory=SessionOrder)
    order_number: int = 0
    previous: str = ""


KEPT_FOR: Final = timedelta(minutes=1)
"""A session that is silent for longer was left behind: it is on no roll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRoll:
    """The sessions that a replica has open, in short: how many they are, and the sum of the
    marks of their connections. One that was left behind, and so is silent, is none of them.
    """

    replica: str
    count: int = 0
    mark: int = 0

    @classmethod
    def of(cls, replica: str, sessions: Collection[WorkerSession]) -> "SessionRoll":
        mark = sum(_mark(one.connection) for one in sessions)
        return cls(replica=replica, count=len(sessions), mark=mark)


def _mark(connection: str) -> int:
    """A number that every store can find; two sets of connections hardly have the same sum."""
    return int(hashlib.sha256(connection.encode()).hexdigest()[:12], 16)


def connection_of(process: str) -> str:
    """The name of a new connection of a worker's process."""
    return f"{process}/{uuid.uuid4().hex}"


def is_of(process: str, connection: str) -> bool:
    """Whether a connection was that process's; of one without a name nobody knows."""
    return bool(process) and connection.rpartition("/")[0] == process


def not_yours(session: WorkerSession) -> Forbidden:
    """Why it is not opened."""
    return Forbidden(
        f"session {session.session_id!r} is another worker's, or its QueueWorker was deleted; "
        "start again as a new process, with a new id"
    )


@runtime_checkable
class Sessions(Protocol):
    """Worker sessions in the store: written by the worker plane, read and given orders by the
    controller.
    """

    async def open_session(self, session: WorkerSession) -> SessionNews:
        """Stores the session, or hands it to this connection if it is the same worker's, and
        says what it is ordered. Raises Forbidden if the id is another worker's, or was ended.
        """
        ...

    async def touch_sessions(self, sessions: Sequence[WorkerSession]) -> None:
        """Heartbeats of many sessions in one statement: busy, draining, followed and
        heartbeat_at. Those that another connection has are left alone.
        """
        ...

    async def keep_sessions(self, roll: SessionRoll) -> bool:
        """Heartbeats of all sessions of a replica that were not ended, which show nothing new
        since they were touched. Where the stored ones are not those of the roll, or have an
        order beyond the one followed, nothing is done; False then.
        """
        ...

    async def session_news(self, sessions: Sequence[WorkerSession]) -> list[SessionNews]:
        """Of these, those that are gone, that another connection has, that were ended, or that
        have an order beyond the one `followed`.
        """
        ...

    async def order_session(self, session_id: str, order: SessionOrder) -> None:
        """Gives the session an order, unless it has the same; it is shown from then on."""
        ...

    async def close_sessions(
        self, session_ids: Collection[str], *, replica: str | None = None
    ) -> None:
        """With `replica`, those that a worker has opened on another one since then stay. One
        that was ended stays until it is long silent.
        """
        ...

    async def lose_sessions(self, losses: Sequence[Loss], *, replica: str | None = None) -> None:
        """Closes sessions whose workers went without a goodbye, and keeps for some minutes that
        they did. What `close_sessions` leaves alone is left alone.
        """
        ...

    async def lost_workers(self, namespace: str) -> list[LostWorker]:
        """The newest, the last lost first. A worker is not lost any more once a session under its
        name is opened.
        """
        ...

    async def list_sessions(self, *, max_age_s: float | None = None) -> list[WorkerSession]:
        """Open sessions, those ended or silent for longer than `max_age_s` left out."""
        ...


# What follows from what is stored, for stores that keep sessions as they are.


def opening(session: WorkerSession, stored: WorkerSession | None) -> WorkerSession:
    """The session when it is opened by a new connection. Raises Forbidden."""
    if stored is None:
        return replace(session, order=SessionOrder(), order_number=0, followed=0, shown=False)
    if stored.order.ended or not stored.is_of_the_worker_of(session):
        raise not_yours(session)
    return replace(
        session,
        order=stored.order,
        order_number=stored.order_number,
        followed=0,
        shown=stored.shown,
    )


def touching(
    stored: Mapping[str, WorkerSession], sessions: Iterable[WorkerSession]
) -> list[WorkerSession]:
    """The sessions that these heartbeats are about, as they are told; of two with one id the
    last counts.
    """
    newest = {one.session_id: one for one in sessions if one.session_id in stored}
    return [
        replace(stored[name], busy=told.busy, draining=told.draining, followed=told.followed)
        for name, told in newest.items()
        if stored[name].connection == told.connection
    ]


def keeping(
    stored: Mapping[str, WorkerSession], roll: SessionRoll, now: datetime
) -> list[WorkerSession]:
    """The sessions of a roll; none where it is not the stored ones'."""
    kept = [
        one
        for one in stored.values()
        if one.replica == roll.replica
        and not one.order.ended
        and one.followed == one.order_number
        and one.heartbeat_at is not None
        and now - one.heartbeat_at < KEPT_FOR
    ]
    return kept if SessionRoll.of(roll.replica, kept) == roll else []


def ordering(stored: WorkerSession | None, order: SessionOrder) -> WorkerSession | None:
    """The session with the order; None where nothing changes."""
    if stored is None or stored.order.ended or (stored.shown and stored.order == order):
        return None
    return replace(stored, order=order, order_number=stored.order_number + 1, shown=True)


def news_of(known: WorkerSession, stored: WorkerSession | None) -> SessionNews | None:
    """What whoever has the session open as `known` is to hear."""
    if stored is None:
        return SessionNews(session_id=known.session_id)
    told = (known.connection, known.followed, False)
    if (stored.connection, stored.order_number, stored.order.ended) == told:
        return None
    return told_of(stored)


def told_of(stored: WorkerSession, before: WorkerSession | None = None) -> SessionNews:
    """All that a stream is told of its session, which was as `before` when it was opened."""
    return SessionNews(
        session_id=stored.session_id,
        connection=stored.connection,
        order=stored.order,
        order_number=stored.order_number,
        previous="" if before is None else before.connection,
    )


def losing(stored: WorkerSession, loss: Loss, now: datetime) -> LostWorker:
    return LostWorker(
        session_id=stored.session_id,
        namespace=stored.namespace,
        worker_name=stored.worker_name,
        host=stored.host,
        version=stored.version,
        types=stored.types,
        capacity=stored.capacity,
        jobs=loss.jobs,
        lost_at=now - timedelta(seconds=loss.ago_s),
    )


def is_back(lost: LostWorker, opened: WorkerSession) -> bool:
    """A worker of that name is there again, maybe as another process."""
    return (lost.namespace, lost.worker_name) == (opened.namespace, opened.worker_name)
