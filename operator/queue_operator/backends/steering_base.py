"""The arguments of the calls in `backends.steering` about pauses and places, checked alike for
every store.
"""

from abc import ABC, abstractmethod

from queue_operator.backends.protocol import Pause, Place
from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.domain.job import DEFAULT_NAMESPACE
from queue_operator.domain.validation import REASON_CHARACTERS, Limits, check_text


class SteeringBase(ABC):
    """Pauses and Places, but for the storage itself."""

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

    async def place_of(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Place:
        check_text("job_id", job_id, self._limits.id_characters)
        check_text("namespace", namespace, self._limits.id_characters)
        place = await self._place(namespace, job_id)
        if place is None:
            raise JobNotFound(job_id, namespace)
        return place

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
    async def _place(self, namespace: str, job_id: str) -> Place | None:
        """None when there is no such job."""
