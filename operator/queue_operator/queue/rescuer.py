"""Takes jobs back whose worker is gone. Every replica sweeps; the store keeps them apart."""

import logging
import random
from collections.abc import Callable
from typing import Final

from queue_operator.backends.protocol import Backend
from queue_operator.domain.clock import Clock
from queue_operator.domain.lease import heartbeat_interval_s
from queue_operator.observing import about
from queue_operator.queue.dispatcher import Dispatcher
from queue_operator.queue.lifecycle import Loops
from queue_operator.queue.registry import StreamRegistry

logger = logging.getLogger(__name__)

SWEEP_LIMIT: Final = 1000
_NAMED: Final = 5


class Rescuer:
    """Sweeps every third of a TTL."""

    def __init__(
        self,
        backend: Backend,
        streams: StreamRegistry,
        dispatcher: Dispatcher,
        lease_ttl_s: float,
        clock: Clock,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._backend = backend
        self._streams = streams
        self._dispatcher = dispatcher
        self._lease_ttl_s = lease_ttl_s
        self._clock = clock
        self._loops = Loops(clock, rng)

    async def start(self) -> None:
        self._loops.run("sweeping expired leases", self._turn)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _turn(self) -> None:
        await self._clock.sleep(heartbeat_interval_s(self._lease_ttl_s))
        while await self.sweep() == SWEEP_LIMIT:
            pass

    async def sweep(self) -> int:
        """One statement; how many jobs it took back."""
        before = self._streams.last_order
        lost = await self._backend.expire_leases(lease_ttl_s=self._lease_ttl_s, limit=SWEEP_LIMIT)
        if lost:
            workers = sorted({one.assignee_id for one in lost})
            logger.warning(
                "%d jobs were taken from their workers, whose lease or time ran out: %s%s",
                len(lost),
                ", ".join(workers[:_NAMED]),
                " and others" if len(workers) > _NAMED else "",
                extra=about(lost[0].namespace, lost[0].job_id) if len(lost) == 1 else None,
            )
            self._streams.lost(lost, before)
            self._dispatcher.may_be_ready()
            self._dispatcher.freed()
        return len(lost)
