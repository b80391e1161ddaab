"""What is not to be claimed, and why: each call handed to the part that does it."""

from collections.abc import Awaitable, Callable, Mapping

from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.consequences import OnReady
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.pauses import PauseStore
from queue_operator.backends.postgres.places import PlaceStore
from queue_operator.backends.postgres.signals import Announcer
from queue_operator.backends.postgres.suspending import Suspending
from queue_operator.backends.protocol import Pause, Place, Topic
from queue_operator.backends.steering_base import SteeringBase


class Steering(SteeringBase):
    """Pauses, Suspensions and Places of a backend that calls `_steer` when it is made."""

    _announcer: Announcer

    def _steer(
        self,
        pool: Pool,
        lanes: Lanes,
        sleep: Callable[[float], Awaitable[None]],
        on_ready: OnReady,
    ) -> None:
        self._pause_store = PauseStore(pool, lanes, self._announcer, sleep)
        self._suspending = Suspending(pool, lanes, on_ready)
        self._places = PlaceStore(pool, lanes)

    async def _pause(self, pause: Pause) -> Pause:
        return await self._pause_store.pause(pause)

    async def _resume(self, namespace: str, type: str) -> bool:
        return await self._pause_store.resume(namespace, type)

    async def _pauses(self, namespace: str | None) -> list[Pause]:
        return await self._pause_store.pauses(namespace)

    async def _set_suspended(self, wanted: Mapping[tuple[str, str], bool]) -> set[tuple[str, str]]:
        left = await self._suspending.set_suspended(wanted)
        self._announcer.announce(Topic.MIRROR)
        return left

    async def _place(self, namespace: str, job_id: str) -> Place | None:
        return await self._places.place_of(namespace, job_id)
