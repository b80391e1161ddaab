"""Queues of this process on a store of the storage suite, as a rig."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from queue_operator.backends.protocol import Backend
from queue_operator.domain.job import Assignment, Demand
from queue_operator.queue.protocol import Queue
from queue_operator.queue.service import QueueService
from queue_operator.settings import QueueSettings
from queue_operator.testing.queue.rig import LEASE_TTL_S, NEVER_S, Pair
from queue_operator.testing.store import Store


class LocalRig:
    """One queue or two on a store. The backends of stores that are read for news are read
    often, as tests wait for them.
    """

    carries = False

    def __init__(self, store: Store, replicas: int = 1) -> None:
        self.store = store
        self.far = replicas > 1
        self.pair: Pair
        self._replicas = replicas
        self._looks: Counter[str] = Counter()
        self._extra: list[QueueService] = []
        self._own: list[QueueService] = []
        self._closed: set[QueueService] = set()
        self._behind: dict[Pair, list[QueueService]] = {}

    async def start(self) -> "LocalRig":
        settings = QueueSettings(lease_ttl_s=LEASE_TTL_S, idle_poll_s=NEVER_S)
        self.pair = await self._pair(self._own, settings)
        return self

    async def open(self, *, lease_ttl_s: float = LEASE_TTL_S, idle_poll_s: float = NEVER_S) -> Pair:
        settings = QueueSettings(lease_ttl_s=lease_ttl_s, idle_poll_s=idle_poll_s)
        return await self._pair(self._extra, settings)

    async def _pair(self, kept: list[QueueService], settings: QueueSettings) -> Pair:
        services = [await self._service(settings) for _ in range(self._replicas)]
        kept += services
        offered = [await self._offer(service) for service in services]
        pair = Pair(offered[0], offered[-1])
        self._behind[pair] = services
        return pair

    async def _offer(self, service: QueueService) -> Queue:
        """What the tests are given of a queue."""
        return service

    async def shut(self, pair: Pair) -> None:
        for service in self._behind[pair]:
            await self._close(service)

    async def _close(self, service: QueueService) -> None:
        self._closed.add(service)
        await service.close()

    async def _service(self, settings: QueueSettings) -> QueueService:
        backend = await self.store.open()
        _read_often(backend)
        self._count(backend)
        service = QueueService(backend, settings)
        await service.start()
        return service

    def _count(self, backend: Backend) -> None:
        claim = backend.claim

        async def counted(demands: Sequence[Demand], **options: Any) -> list[Assignment]:
            self._looks.update({demand.assignee_id for demand in demands})
            return await claim(demands, **options)

        backend.claim = counted  # type: ignore[method-assign]

    def looks(self, assignee_id: str) -> int:
        return self._looks[assignee_id]

    async def tick(self) -> None:
        for service in (*self._own, *self._extra):
            if service in self._closed:
                continue
            await service.rescuer.sweep()
            await service.keeper.renew()
            await service.keeper.reconcile()

    async def age(self, seconds: float, *, outage: bool = False) -> None:
        await self.store.age(seconds, outage=outage)

    async def break_down(self) -> None:
        await self.store.break_down()

    async def mend(self) -> None:
        await self.store.mend()

    async def faults(self) -> list[str]:
        return await self.store.faults()

    async def end(self) -> None:
        extra, self._extra = self._extra, []
        for service in extra:
            await self._close(service)

    async def close(self) -> None:
        await self.end()
        for service in self._own:
            await self._close(service)
        await self.store.close()


def _read_often(backend: Backend) -> None:
    async def pause(seconds: float) -> None:
        await asyncio.sleep(seconds / 25)

    if hasattr(backend, "_sleep"):
        backend._sleep = pause
