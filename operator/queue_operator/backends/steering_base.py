"""The arguments of the calls about what waits (pauses, suspended jobs, places, a glance) and what
happened, checked alike for every store.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from queue_operator.backends.protocol import EventBatch, Pause, Place
from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.domain.job import DEFAULT_NAMESPACE, Demand
from queue_operator.domain.validation import (
    REASON_CHARACTERS,
    Limits,
    check_demand,
    check_flag,
    check_kind,
    check_limit,
    check_pairs,
    check_sequence,
    check_text,
    check_texts,
)

_NUMBERS: Final = 2**63


class SteeringBase(ABC):
    """Pauses, Suspensions, Places, Glance and EventLog, but for the storage itself."""

    _limits: Limits

    async def pause(self, pause: Pause) -> Pause:
        if not isinstance(pause, Pause):
            raise InvalidArgument("pause", f"must be a Pause, not {type(pause).__name__}")
        self._check_paused(pause.namespace, pause.type)
        check_text("reason", pause.reason, REASON_CHARACTERS, required=False)
        check_text("by", pause.by, REASON_CHARACTERS, required=False)
        return await self._pause(pause)

    async def resume(self, namespace: str, type: str = "") -> bool:
        self._check_paused(namespace, type)
        return await self._resume(namespace, type)

    async def pauses(self, namespace: str | None = None) -> list[Pause]:
        if namespace is not None:
            check_text("namespace", namespace, self._limits.id_characters)
        return await self._pauses(namespace)

    async def set_suspended(
        self, wanted: Mapping[tuple[str, str], bool]
    ) -> Collection[tuple[str, str]]:
        check_kind("wanted", wanted, Mapping)
        check_pairs("wanted", list(wanted))
        check_texts("namespace", {name for name, _ in wanted}, self._limits.id_characters)
        check_texts("job_id", {job_id for _, job_id in wanted}, self._limits.id_characters)
        for on in wanted.values():
            check_flag("suspended", on)
        return await self._set_suspended(wanted) if wanted else ()

    async def place_of(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Place:
        check_text("job_id", job_id, self._limits.id_characters)
        check_text("namespace", namespace, self._limits.id_characters)
        place = await self._place(namespace, job_id)
        if place is None:
            raise JobNotFound(job_id, namespace)
        return place

    async def eligible_for(self, demands: Sequence[Demand]) -> list[bool]:
        check_sequence("demands", demands)
        for demand in demands:
            check_demand(demand, self._limits)
        return await self._eligible_for(demands) if demands else []

    async def read_events(self, *, after: int = 0, limit: int = 1000) -> list[EventBatch]:
        if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < _NUMBERS:
            raise InvalidArgument("after", "must be the number of an event, or 0")
        check_limit("limit", limit)
        return await self._read_events(after, limit)

    def _check_paused(self, namespace: str, type: str) -> None:
        check_text("namespace", namespace, self._limits.id_characters)
        check_text("type", type, self._limits.id_characters, required=False)

    @abstractmethod
    async def _pause(self, pause: Pause) -> Pause: ...

    @abstractmethod
    async def _resume(self, namespace: str, type: str) -> bool: ...

    @abstractmethod
    async def _pauses(self, namespace: str | None) -> list[Pause]: ...

    @abstractmethod
    async def _set_suspended(
        self, wanted: Mapping[tuple[str, str], bool]
    ) -> Collection[tuple[str, str]]: ...

    @abstractmethod
    async def _place(self, namespace: str, job_id: str) -> Place | None:
        """None when there is no such job."""

    @abstractmethod
    async def _eligible_for(self, demands: Sequence[Demand]) -> list[bool]: ...

    @abstractmethod
    async def _read_events(self, after: int, limit: int) -> list[EventBatch]: ...
