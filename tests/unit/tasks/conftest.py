"""SQLiteBackend for the shipped suite, and for the tests of its own."""

import sqlite3
from pathlib import Path

import pytest

pytest.register_assert_rewrite("queue_operator.testing.tasks")

from queue_operator.tasks import SQLiteBackend  # noqa: E402
from queue_operator.testing.tasks import TaskClock  # noqa: E402


class SQLiteStore:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = TaskClock()

    def open(self, busy_timeout_s: float = 30.0) -> SQLiteBackend:
        return SQLiteBackend(self.path, clock=self.clock, busy_timeout_s=busy_timeout_s)

    def ask(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        """Over a connection that the backend knows nothing of."""
        connection = sqlite3.connect(self.path)
        try:
            with connection:
                return connection.execute(statement, parameters).fetchall()
        finally:
            connection.close()


@pytest.fixture
def task_store(tmp_path: Path) -> SQLiteStore:
    return SQLiteStore(tmp_path / "tasks.db")
