"""The contract of a task store: tasks wait, are reserved once, and end with a result.

There are no leases, retries or priorities here; a reserved task ends by `mark_success` or
`mark_failure`, and by nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

Value = None | bool | int | float | str | bytes | Sequence["Value"] | Mapping[str, "Value"]
"""What a payload or a result value may be: bytes, or any JSON value made of the other types
(with lists and dicts). It comes back equal to what was given.
"""


class TaskStatus(StrEnum):
    """PENDING → IN_PROGRESS (reserved) → SUCCESS or FAILURE, and never back."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedTask:
    """A task that is now the caller's to run. All times are UTC."""

    task_id: str
    payload: Value
    available_at: datetime
    enqueued_at: datetime
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a task ended. `value` belongs to SUCCESS; `error` and `traceback` belong to FAILURE
    and are None otherwise. All times are UTC.
    """

    task_id: str
    status: TaskStatus
    value: Value = None
    error: str | None = None
    traceback: str | None = None
    enqueued_at: datetime
    started_at: datetime
    finished_at: datetime


@runtime_checkable
class TaskBackend(Protocol):
    """All methods are safe to call concurrently, from as many processes as like.

    A wrong argument raises InvalidArgument naming the field and writes nothing; a store that
    cannot be reached raises Unavailable. All but `connect` and `close` raise NotConnected
    outside of the two.
    """

    async def connect(self) -> None:
        """Opens the store and makes its tables where they are missing. Again: does nothing."""
        ...

    async def close(self) -> None:
        """Gives the connection back after what runs on it. Again: does nothing."""
        ...

    async def enqueue(self, task_id: str, payload: Value, available_at: datetime) -> None:
        """Stores a PENDING task that nobody reserves before `available_at`.

        Raises DuplicateTask, and PayloadTooLarge for a payload over the limit.
        """
        ...

    async def reserve(self, max_items: int, now: datetime) -> list[ReservedTask]:
        """Takes up to `max_items` PENDING tasks that were available at `now` and makes them
        IN_PROGRESS, each for one caller only. In order of `available_at`, then of `enqueued_at`,
        then of their coming.
        """
        ...

    async def mark_success(self, task_id: str, value: Value) -> None:
        """Ends an IN_PROGRESS task with SUCCESS. Raises NotInProgress, TaskNotFound, and
        PayloadTooLarge for a value over the limit: the task is then still in progress.
        """
        ...

    async def mark_failure(self, task_id: str, error: str, traceback: str) -> None:
        """Ends an IN_PROGRESS task with FAILURE. Raises NotInProgress and TaskNotFound."""
        ...

    async def get_result(self, task_id: str) -> Result | None:
        """None for a task that has not ended, and for one that does not exist."""
        ...
