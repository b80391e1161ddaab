"""What the suite asks of whoever runs it, and what its tests share."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Protocol

from queue_operator.tasks import ReservedTask, TaskBackend, Value

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=1)


class TaskClock:
    """Stands still until it is set."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


class TaskStore(Protocol):
    """An empty store for one test, with the default limits."""

    @property
    def clock(self) -> TaskClock:
        """Gives every backend's times."""
        ...

    def open(self) -> TaskBackend:
        """Another backend on the same tasks, with a connection of its own, not yet connected.
        The test closes it.
        """
        ...


@asynccontextmanager
async def connected(task_store: TaskStore) -> AsyncIterator[TaskBackend]:
    backend = task_store.open()
    await backend.connect()
    try:
        yield backend
    finally:
        await backend.close()


async def enqueue(backend: TaskBackend, *task_ids: str, payload: Value = None) -> None:
    for task_id in task_ids:
        await backend.enqueue(task_id, payload, NOON)


def ids(tasks: Sequence[ReservedTask]) -> list[str]:
    return [task.task_id for task in tasks]
