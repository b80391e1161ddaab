"""Submissions whose idempotency key somebody else is taking: each waits alone, but for those that
want the same key.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from queue_operator.domain.job import Job

_Key = tuple[str, str]


class Turns:
    """One at a time for each key; the tasks in which they wait are remembered until they end."""

    def __init__(self) -> None:
        self._locks: dict[_Key, asyncio.Lock] = {}
        self._wanted: Counter[_Key] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def is_known(self, job: Job) -> bool:
        """Whether somebody waits for the key of this job: who joins in need not find out anew."""
        return _key(job) in self._wanted

    @property
    def waiting(self) -> int:
        """How many wait, or are being served."""
        return self._wanted.total()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """In a task of its own."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def turn(self, job: Job) -> AsyncIterator[None]:
        """Inside, nobody else of this process asks for the job's key."""
        key = _key(job)
        self._wanted[key] += 1
        try:
            async with self._locks.setdefault(key, asyncio.Lock()):
                yield
        finally:
            self._wanted[key] -= 1
            if not self._wanted[key]:
                del self._wanted[key], self._locks[key]

    async def ended(self) -> None:
        """Returns once nobody waits any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)


def _key(job: Job) -> _Key:
    return job.namespace, job.idempotency_key
