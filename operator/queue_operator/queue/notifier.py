"""News from other processes: jobs that may be ready, cancels for workers connected here."""

import random
from collections.abc import Callable

from queue_operator.backends.protocol import Backend, CancelInbox, Signals, Topic
from queue_operator.domain.clock import Clock
from queue_operator.queue.dispatcher import Dispatcher
from queue_operator.queue.lifecycle import Loops
from queue_operator.queue.registry import StreamRegistry


class Notifier:
    """Listens where the store can tell; elsewhere polls and heartbeats are enough."""

    def __init__(
        self,
        backend: Backend,
        streams: StreamRegistry,
        dispatcher: Dispatcher,
        sessions_changed: Callable[[], None],
        clock: Clock,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._backend = backend
        self._streams = streams
        self._dispatcher = dispatcher
        self._sessions_changed = sessions_changed
        self._loops = Loops(clock, rng)

    async def start(self) -> None:
        if isinstance(self._backend, Signals):
            self._loops.run("listening for signals", self._listen)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _listen(self) -> None:
        if not isinstance(self._backend, Signals):
            return
        async for news in self._backend.listen():
            if Topic.READY in news:
                self._dispatcher.news(news[Topic.READY])
            if Topic.SESSION in news:
                self._sessions_changed()
            if Topic.CANCEL in news:
                await self.fetch_cancels()

    async def fetch_cancels(self) -> None:
        """Pushes what the workers connected here were asked to stop."""
        busy = {s.spec.assignee_id for s in self._streams.all() if s.slots.busy}
        if busy and isinstance(self._backend, CancelInbox):
            pending = await self._backend.pending_cancels(busy)
            self._streams.cancel(pending.requests)
