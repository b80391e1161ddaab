"""What must be done for every open stream a few times per lease TTL."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from queue_operator.backends.protocol import Backend
from queue_operator.domain.clock import Clock
from queue_operator.domain.lease import Held, LeaseAnswer, Leased, heartbeat_interval_s
from queue_operator.queue.capacity import JobKey
from queue_operator.queue.clock import sleep_unless
from queue_operator.queue.coalescer import Coalescer
from queue_operator.queue.completer import Completer, undelivered
from queue_operator.queue.dispatcher import Dispatcher
from queue_operator.queue.lifecycle import Loops
from queue_operator.queue.registry import StreamRegistry
from queue_operator.queue.sessions import SessionRows
from queue_operator.queue.stream import JobStream

STALLED_TTLS: Final = 6
"""How many TTLs a connected worker may take to read an assignment."""

NEWS_PAUSE_S: Final = 0.5
"""Sessions change all the time; streams that are told to go need not hear of it sooner."""


class Keeper:
    """Renews leases that no worker can, compares slots with the store, shows signs of life."""

    def __init__(
        self,
        backend: Backend,
        streams: StreamRegistry,
        completer: Completer,
        leases: Coalescer[Held, LeaseAnswer],
        dispatcher: Dispatcher,
        sessions: SessionRows,
        lease_ttl_s: float,
        clock: Clock,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._backend = backend
        self._streams = streams
        self._completer = completer
        self._leases = leases
        self._dispatcher = dispatcher
        self._sessions = sessions
        self._lease_ttl_s = lease_ttl_s
        self._clock = clock
        self._loops = Loops(clock, rng)
        self._sessions_changed = asyncio.Event()

    async def start(self) -> None:
        self._loops.run("renewing leases of streams", self._renew_turn)
        self._loops.run("comparing slots with the store", self._reconcile_turn)
        self._loops.run("keeping worker sessions", self._session_turn)
        self._loops.run("following worker sessions", self._follow_turn)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _pause(self) -> None:
        await self._clock.sleep(heartbeat_interval_s(self._lease_ttl_s))

    async def _renew_turn(self) -> None:
        await self._pause()
        await self.renew()

    async def _reconcile_turn(self) -> None:
        if not any(stream.in_doubt for stream in self._streams.all()):
            doubted = self._dispatcher.doubted
            doubted.clear()
            await sleep_unless(doubted, heartbeat_interval_s(self._lease_ttl_s), self._clock)
        await self.reconcile()

    async def _session_turn(self) -> None:
        await self._pause()
        await self.tend_sessions()

    async def tend_sessions(self) -> None:
        """Shows which sessions are open here, and what their streams do."""
        gone = self._streams.forget_parked(self._lease_ttl_s)
        gone = {name: loss for name, loss in gone.items() if not self._streams.of(name)}
        await self._sessions.close([name for name, loss in gone.items() if loss is None])
        await self._sessions.lose([loss for loss in gone.values() if loss is not None])
        await self._sessions.tend(self._streams.all())

    async def _follow_turn(self) -> None:
        await self._sessions_changed.wait()
        self._sessions_changed.clear()
        await self.follow()
        await self._clock.sleep(NEWS_PAUSE_S)

    def sessions_changed(self) -> None:
        """Another process wrote to worker sessions, perhaps to those of streams here."""
        self._sessions_changed.set()

    async def follow(self) -> None:
        """Streams learn what others wrote to their sessions."""
        await self._sessions.follow(self._streams.all())

    async def renew(self) -> None:
        """Jobs of library streams, and of all streams those their worker has not seen yet."""
        busy = _busy(self._streams.all())
        for stream in busy:
            stream.tend_suspects()
            if not stream.renewed_by_queue:
                stream.release_stalled(STALLED_TTLS * self._lease_ttl_s)
        asked = [(stream, held) for stream in busy for held in stream.to_renew()]
        answers = await self._leases.submit([held for _, held in asked])
        for (stream, _), answer in zip(asked, answers, strict=True):
            stream.renewed(answer)
        if answers:
            self._dispatcher.freed()

    async def reconcile(self) -> None:
        """Sets free slots to the capacity minus what the store and the worker still count, and
        gives back what the store counts for a stream that never heard of it.
        """
        streams = self._streams.all()
        if not streams:
            return
        # Most workers have nothing most of the time: each look at all of them is paid for.
        restless = [stream for stream in streams if not stream.at_rest]
        for stream in restless:
            if not stream.renewed_by_queue:
                stream.forget_silence(self._lease_ttl_s)
        doubted = [stream for stream in restless if stream.in_doubt]
        before, known = self._streams.last_order, _tokens(restless)
        leased = await self._backend.leased(self._streams.assignee_ids())
        # What it counts may have come with a claim whose answer is still on its way.
        await self._dispatcher.claimed()
        busy = _busy(streams)
        known |= _tokens(busy)
        unknown = [one for one in leased if one.token not in known]
        if unknown:
            # They are another's if that one has the session by now.
            await self.follow()
        await self._give_back(unknown)
        _compare((stream for stream in busy if stream.end_reason is None), leased, before)
        for stream in doubted:
            stream.in_doubt = False
        self._dispatcher.freed()

    async def _give_back(self, unknown: Iterable[Leased]) -> None:
        lost = [one for one in unknown if self._is_lost(one)]
        await self._completer.submit(
            [undelivered(one.job_id, one.namespace, one.token) for one in lost]
        )

    def _is_lost(self, one: Leased) -> bool:
        """It was claimed here, and the answer was lost. Jobs that the assignee has elsewhere, that
        its worker says it runs, or that an earlier stream here had given to it, are not.
        """
        if self._streams.was_left(one.token):
            return False
        streams = self._streams.of(one.assignee_id)
        return any(stream.could_have(one) for stream in streams) and not any(
            stream.knows(one.token) for stream in streams
        )


def _busy(streams: Iterable[JobStream]) -> list[JobStream]:
    return [stream for stream in streams if stream.slots.busy]


def _tokens(streams: Iterable[JobStream]) -> set[str]:
    return {slot.token for stream in streams for _, slot in stream.slots.items()}


def _compare(streams: Iterable[JobStream], leased: Sequence[Leased], before: int) -> None:
    counted: defaultdict[str, dict[JobKey, str]] = defaultdict(dict)
    for one in leased:
        counted[one.assignee_id][one.namespace, one.job_id] = one.token
    for stream in streams:
        stream.compare(counted[stream.spec.assignee_id], before)
