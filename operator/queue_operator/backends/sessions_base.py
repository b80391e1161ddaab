"""The arguments of the calls in `backends.worker_sessions`, checked alike for every store. A store
keeps a session as it is told, so one that is none would be in the way of all others.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from queue_operator.backends.lost_workers import Loss, LostWorker
from queue_operator.backends.worker_sessions import (
    SessionNews,
    SessionOrder,
    SessionRoll,
    WorkerSession,
)
from queue_operator.domain.limits import MAX_CAPACITY
from queue_operator.domain.validation import (
    NAME_CHARACTERS,
    REASON_CHARACTERS,
    Limits,
    check_count,
    check_duration,
    check_flag,
    check_kind,
    check_sequence,
    check_text,
    check_texts,
    check_ttl,
)

_TEXTS = ("worker_name", "pod_uid", "host", "version")


class SessionsBase(ABC):
    """Sessions, but for the storage itself."""

    _limits: Limits

    async def open_session(self, session: WorkerSession) -> SessionNews:
        self._check_told("session", session)
        check_text("session.namespace", session.namespace, self._limits.id_characters)
        for field in _TEXTS:
            value = getattr(session, field)
            check_text(f"session.{field}", value, REASON_CHARACTERS, required=False)
        check_text("session.replica", session.replica, NAME_CHARACTERS, required=False)
        check_count("session.capacity", session.capacity, MAX_CAPACITY)
        check_texts("session.tags", session.tags, self._limits.tag_characters)
        check_texts("session.types", session.types, self._limits.id_characters)
        return await self._open_session(session)

    async def touch_sessions(self, sessions: Sequence[WorkerSession]) -> None:
        self._check_all_told(sessions)
        await self._touch_sessions(sessions)

    async def keep_sessions(self, roll: SessionRoll) -> bool:
        check_kind("roll", roll, SessionRoll)
        check_text("roll.replica", roll.replica, NAME_CHARACTERS, required=False)
        check_count("roll.count", roll.count)
        check_kind("roll.mark", roll.mark, int)
        return await self._keep_sessions(roll)

    async def session_news(self, sessions: Sequence[WorkerSession]) -> list[SessionNews]:
        self._check_all_told(sessions)
        return await self._session_news(sessions)

    async def order_session(self, session_id: str, order: SessionOrder) -> None:
        check_text("session_id", session_id, self._limits.id_characters)
        check_kind("order", order, SessionOrder)
        if order.capacity is not None:
            check_count("order.capacity", order.capacity, MAX_CAPACITY)
        if order.tags is not None:
            check_texts("order.tags", order.tags, self._limits.tag_characters)
        if order.drain is not None:
            check_flag("order.drain", order.drain)
        check_flag("order.ended", order.ended)
        await self._order_session(session_id, order)

    async def close_sessions(
        self, session_ids: Collection[str], *, replica: str | None = None
    ) -> None:
        check_texts("session_ids", session_ids, self._limits.id_characters)
        if replica is not None:
            check_text("replica", replica, NAME_CHARACTERS, required=False)
        await self._close_sessions(session_ids, replica)

    async def lose_sessions(self, losses: Sequence[Loss], *, replica: str | None = None) -> None:
        check_sequence("losses", losses)
        for place, one in enumerate(losses):
            name = f"losses[{place}]"
            check_kind(name, one, Loss)
            check_text(f"{name}.session_id", one.session_id, self._limits.id_characters)
            check_count(f"{name}.jobs", one.jobs, MAX_CAPACITY)
            check_duration(f"{name}.ago_s", one.ago_s)
        if replica is not None:
            check_text("replica", replica, NAME_CHARACTERS, required=False)
        # Of two with one id the last counts.
        newest = {one.session_id: one for one in losses}
        await self._lose_sessions([*newest.values()], replica)

    async def lost_workers(self, namespace: str) -> list[LostWorker]:
        check_text("namespace", namespace, self._limits.id_characters)
        return await self._lost_workers(namespace)

    async def list_sessions(self, *, max_age_s: float | None = None) -> list[WorkerSession]:
        if max_age_s is not None:
            check_ttl("max_age_s", max_age_s)
        return await self._list_sessions(max_age_s)

    def _check_all_told(self, sessions: Sequence[WorkerSession]) -> None:
        check_sequence("sessions", sessions)
        for place, one in enumerate(sessions):
            self._check_told(f"sessions[{place}]", one)

    def _check_told(self, name: str, session: WorkerSession) -> None:
        """What every call about a session tells of it."""
        check_kind(name, session, WorkerSession)
        check_text(f"{name}.session_id", session.session_id, self._limits.id_characters)
        check_text(f"{name}.connection", session.connection, REASON_CHARACTERS, required=False)
        check_count(f"{name}.busy", session.busy)
        check_count(f"{name}.followed", session.followed)
        check_flag(f"{name}.draining", session.draining)

    @abstractmethod
    async def _open_session(self, session: WorkerSession) -> SessionNews: ...

    @abstractmethod
    async def _touch_sessions(self, sessions: Sequence[WorkerSession]) -> None: ...

    @abstractmethod
    async def _keep_sessions(self, roll: SessionRoll) -> bool: ...

    @abstractmethod
    async def _session_news(self, sessions: Sequence[WorkerSession]) -> list[SessionNews]: ...

    @abstractmethod
    async def _order_session(self, session_id: str, order: SessionOrder) -> None: ...

    @abstractmethod
    async def _close_sessions(self, session_ids: Collection[str], replica: str | None) -> None: ...

    @abstractmethod
    async def _lose_sessions(self, losses: Sequence[Loss], replica: str | None) -> None: ...

    @abstractmethod
    async def _lost_workers(self, namespace: str) -> list[LostWorker]: ...

    @abstractmethod
    async def _list_sessions(self, max_age_s: float | None) -> list[WorkerSession]: ...
