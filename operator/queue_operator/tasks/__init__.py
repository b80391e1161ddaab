"""A small task store with results: one SQLite file, no server. `docs/guides/tasks.md` shows it."""

from queue_operator.tasks.errors import DuplicateTask, NotConnected, NotInProgress, TaskNotFound
from queue_operator.tasks.protocol import ReservedTask, Result, TaskBackend, TaskStatus, Value
from queue_operator.tasks.sqlite import SQLiteBackend

__all__ = [
    "DuplicateTask",
    "NotConnected",
    "NotInProgress",
    "ReservedTask",
    "Result",
    "SQLiteBackend",
    "TaskBackend",
    "TaskNotFound",
    "TaskStatus",
    "Value",
]
