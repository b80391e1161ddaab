"""`spec.priority` of QueueJobs that were edited: it counts from when the job waits."""

import asyncio

from queue_operator.controller.looking import look_while
from queue_operator.controller.ports import ControllerBackend
from queue_operator.domain.clock import Clock
from queue_operator.domain.ordering import Priority


class Priorities:
    """Asks again for jobs that run, until they wait or have ended. Only a cache: after a restart
    the watch shows every edited object that has not finished.
    """

    def __init__(self, backend: ControllerBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._wanted: dict[tuple[str, str], Priority] = {}
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, namespace: str, uid: str, priority: Priority) -> None:
        self._wanted[namespace, uid] = priority
        self._some.set()

    async def run(self) -> None:
        await look_while(self._some, self.once, "priorities", self._clock)

    async def once(self) -> None:
        """Raises Unavailable while the database is away."""
        asked = dict(self._wanted)
        running = await self._backend.set_priorities(asked)
        for name, priority in asked.items():
            # It may have been edited again meanwhile.
            if name not in running and self._wanted.get(name) is priority:
                del self._wanted[name]
        if not self._wanted:
            self._some.clear()
