"""What must be done for every open stream a few times per lease TTL."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from queue_operator.backends.protocol import Backend
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.lease import Held, LeaseAnswer, heartbeat_interval_s
from queue_operator.domain.states import SLOT_HOLDING
from queue_operator.queue.capacity import JobKey
from queue_operator.queue.coalescer import Coalescer
from queue_operator.queue.dispatcher import Dispatcher
from queue_operator.queue.lifecycle import Loops
from queue_operator.queue.registry import StreamRegistry
from queue_operator.queue.sessions import SessionRows
from queue_operator.queue.stream import JobStream

logger = logging.getLogger(__name__)

STALLED_TTLS: Final = 6
"""How many TTLs a connected worker may take to read an assignment."""
DOUBTS_PER_TURN: Final = 64
"""Slots compared with the store one by one in a turn; more than a few are an anomaly."""


class Keeper:
    """Renews leases that no worker can, compares slots with the store, shows signs of life."""

    def __init__(
        self,
        backend: Backend,
        streams: StreamRegistry,
        leases: Coalescer[Held, LeaseAnswer],
        dispatcher: Dispatcher,
        sessions: SessionRows,
        lease_ttl_s: float,
        clock: Clock,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._backend = backend
        self._streams = streams
        self._leases = leases
        self._dispatcher = dispatcher
        self._sessions = sessions
        self._lease_ttl_s = lease_ttl_s
        self._clock = clock
        self._loops = Loops(clock, rng)

    async def start(self) -> None:
        self._loops.run("renewing leases of streams", self._renew_turn)
        self._loops.run("comparing slots with the store", self._reconcile_turn)
        self._loops.run("keeping worker sessions", self._session_turn)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _pause(self) -> None:
        await self._clock.sleep(heartbeat_interval_s(self._lease_ttl_s))

    async def _renew_turn(self) -> None:
        await self._pause()
        await self.renew()

    async def _reconcile_turn(self) -> None:
        await self._pause()
        await self.reconcile()

    async def _session_turn(self) -> None:
        await self._pause()
        gone = self._streams.forget_parked(self._lease_ttl_s)
        await self._sessions.close([name for name in gone if not self._streams.of(name)])
        await self._sessions.touch(self._streams.all())

    async def renew(self) -> None:
        """Jobs of library streams, and of all streams those their worker has not seen yet."""
        for stream in self._streams.all():
            if not stream.renewed_by_queue:
                stream.release_stalled(STALLED_TTLS * self._lease_ttl_s)
        asked = [(stream, held) for stream in self._streams.all() for held in stream.to_renew()]
        answers = await self._leases.submit([held for _, held in asked])
        for (stream, _), answer in zip(asked, answers, strict=True):
            stream.renewed(answer)
        if answers:
            self._dispatcher.freed()

    async def reconcile(self) -> None:
        """Sets free slots to the capacity minus what the store and the worker still count."""
        doubts: list[tuple[JobStream, JobKey]] = []
        for stream in self._streams.all():
            if not stream.renewed_by_queue:
                stream.forget_silence(self._lease_ttl_s)
                doubts += [(stream, key) for key in stream.doubtful(self._lease_ttl_s / 2)]
        await asyncio.gather(*(self._compare(*doubt) for doubt in doubts[:DOUBTS_PER_TURN]))
        self._dispatcher.freed()

    async def _compare(self, stream: JobStream, key: JobKey) -> None:
        before = self._streams.last_order
        namespace, job_id = key
        try:
            job = await self._backend.get_job(job_id, namespace=namespace)
        except JobNotFound:
            stream.lose(key, before=before)
            return
        if job.state in SLOT_HOLDING and job.assignee_id == stream.spec.assignee_id:
            stream.confirm(key)
        else:
            stream.lose(key, before=before)
