"""The SQLite backend: one file, for small and test uses.

Each call is one transaction that locks the file from its start, so several processes may use
it at once, one at a time.
"""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final, Self, TypeVar

from queue_operator.backends.engine import Engine
from queue_operator.backends.shelf import Shelf
from queue_operator.backends.sql import render
from queue_operator.backends.sqlite.shelf import SqliteShelf
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits

SCHEMA_VERSION: Final = 1
_T = TypeVar("_T")


class SqliteBackend(Engine):
    """The whole contract in one file. `clock` gives aware times, and every decision uses it.

    A call waits `busy_timeout_s` for others to let go of the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        limits: Limits,
        clock: Callable[[], datetime],
        rng: Callable[[], float],
        cancel_timeout_s: float,
        busy_timeout_s: float,
    ) -> None:
        self._path = path
        self.busy_timeout_s = busy_timeout_s
        # One thread, because a connection belongs to the thread that made it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        self._connection: sqlite3.Connection | None = None
        super().__init__(
            _NOWHERE, limits=limits, clock=clock, rng=rng, cancel_timeout_s=cancel_timeout_s
        )

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: Callable[[], float] = random.random,
        cancel_timeout_s: float = 30.0,
        busy_timeout_s: float = 5.0,
    ) -> Self:
        """Opens the file, and makes it and its tables where they are missing.

        Raises Unavailable when the file cannot be used, or is of a newer version.
        """
        backend = cls(
            Path(path),
            limits=limits,
            clock=clock,
            rng=rng,
            cancel_timeout_s=cancel_timeout_s,
            busy_timeout_s=busy_timeout_s,
        )
        try:
            await asyncio.wrap_future(backend._thread.submit(backend._connect))
        except BaseException:
            await backend.close()
            raise
        return backend

    async def close(self) -> None:
        """Also waits for the call that is running, if one is."""
        if not self._thread._shutdown:
            closing = self._thread.submit(self._disconnect)
            self._thread.shutdown(wait=False)
            await asyncio.wrap_future(closing)

    async def _alone(self, work: Callable[[], _T]) -> _T:
        try:
            running = self._thread.submit(self._transact, work)
        except RuntimeError:
            raise Unavailable(f"the backend of {self._path} was closed") from None
        return await asyncio.wrap_future(running)

    def _transact(self, work: Callable[[], _T]) -> _T:
        with self._unavailable(), self._connected() as connection:
            connection.execute(f"PRAGMA busy_timeout = {int(self.busy_timeout_s * 1000)}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                shelf = self._shelf = SqliteShelf(connection)
                done = work()
                shelf.flush()
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            finally:
                self._shelf = _NOWHERE
            return done

    @contextmanager
    def _unavailable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise Unavailable(
                f"{self._path} cannot be used: {error}; check the file, and who else uses it"
            ) from error

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if self._connection is None:
            raise Unavailable(f"the backend of {self._path} was closed")
        yield self._connection

    def _connect(self) -> None:
        with self._unavailable():
            connection = sqlite3.connect(
                self._path, timeout=self.busy_timeout_s, isolation_level=None
            )
            self._connection = connection
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._migrate(connection)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise

    def _migrate(self, connection: sqlite3.Connection) -> None:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise Unavailable(
                f"{self._path} has schema version {version}, and this release knows up to "
                f"{SCHEMA_VERSION}; install the release that wrote it, or a newer one"
            )
        if version == 0:
            text = render((files(__package__) / "schema.sql").read_text())
            for statement in _statements(text):
                connection.execute(statement)
            swept_at = (self._now - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6
            connection.execute("UPDATE sweep SET swept_at = ?", (int(swept_at),))
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _statements(script: str) -> Iterator[str]:
    """`executescript` would commit what came before it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


class _Nowhere:
    """Between two calls there is no shelf."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked for outside of a transaction")


_NOWHERE: Final[Shelf] = _Nowhere()  # type: ignore[assignment]
