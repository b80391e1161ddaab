"""One file per test, and backends on it that share a clock."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.testing.sqlite import SqliteStore

Ask = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = SqliteStore()
    yield store
    await store.close()


@pytest.fixture
async def backend(store: SqliteStore) -> SqliteBackend:
    return await store.open()


@pytest.fixture
def path(store: SqliteStore) -> Path:
    return store.path


@pytest.fixture
def ask(path: Path) -> Ask:
    """Runs a statement on a connection of the test's own and gives its rows."""

    def run(statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return connection.execute(statement, parameters).fetchall()

    return run


@pytest.fixture
def other(path: Path, backend: SqliteBackend) -> Iterator[sqlite3.Connection]:
    """Somebody else's connection to the same file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection
