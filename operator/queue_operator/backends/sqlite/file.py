"""One SQLite file: a connection on a thread of its own, one transaction at a time, in order of
arrival. Several processes may use the file, and several of these in one process.

A caller that is cancelled leaves nothing behind as long as nothing is committed: its transaction
is undone if it runs, and not begun if it waits. What was given out to nobody is taken back.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TypeVar

from queue_operator.backends.forks import Birthplace
from queue_operator.backends.sqlite_connection import (
    Files,
    check_files,
    connect,
    files_of,
    transaction,
)
from queue_operator.domain.errors import Unavailable

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Undo = Callable[[sqlite3.Connection, T], None]

logger = logging.getLogger(__name__)


class SqliteFile:
    """`open` comes first. Whatever is wrong with the file is told as Unavailable; a fork of the
    process is told WrongProcess.
    """

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        # Whoever changes the current folder must not change the file.
        self._path = path.absolute()
        self._birthplace = Birthplace(f"the backend of {self._path}")
        self._busy_timeout_s = busy_timeout_s
        # A connection belongs to the thread that made it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="queue-operator-sqlite")
        self._connection: sqlite3.Connection | None = None
        self._files: Files = {}
        self._version = 0
        self._closing = False
        self._giving: set[Future[None]] = set()

    async def open(self, prepare: Callable[[sqlite3.Connection], None]) -> None:
        """Makes the file if there is none. `prepare` runs as one transaction."""
        await self._run(lambda: self._open(prepare))

    async def write(self, work: Work[T]) -> T:
        """Runs `work` as one transaction that locks out all other writers from its start."""
        return await self._transact("BEGIN IMMEDIATE", work)

    async def give(self, work: Work[T], undo: Undo[T]) -> T:
        """`write` for what gives something to its caller: where that one is cancelled, `undo` takes
        it back, in a transaction right behind this one.
        """
        over: Future[None] = Future()
        self._giving.add(over)
        try:
            return await self._transact("BEGIN IMMEDIATE", work, undo)
        finally:
            self._giving.discard(over)
            over.set_result(None)

    async def read(self, work: Work[T]) -> T:
        """Runs `work` on the file as it is at the first look; it waits for nobody."""
        return await self._transact("BEGIN", work)

    async def close(self) -> None:
        """After the calls before it; those that come later are refused. May be repeated. What a
        fork has of it is left alone.
        """
        self._closing = True
        if self._birthplace.is_elsewhere:
            return
        # One whose caller is cancelled right now still has something to take back.
        while self._giving:
            await asyncio.wait([asyncio.wrap_future(over) for over in tuple(self._giving)])
        try:
            closing = self._thread.submit(self._close)
        except RuntimeError:
            return
        self._thread.shutdown(wait=False)
        await asyncio.wrap_future(closing)

    async def _transact(self, begin: str, work: Work[T], undo: Undo[T] | None = None) -> T:
        caller_left = Event()

        def wanted(connection: sqlite3.Connection) -> T:
            done = work(connection)
            if caller_left.is_set():
                raise Unavailable("undone: nobody waits for it any more")
            return done

        running = self._submit(lambda: self._in_transaction(begin, wanted))
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            caller_left.set()
            if undo is not None:
                # It may be beyond its commit; on the one thread this comes right after it.
                self._thread.submit(self._undo, running, undo)
            raise

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._submit(call))

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        # Its thread is not there: a call would wait for ever.
        self._birthplace.check()
        try:
            if not self._closing:
                return self._thread.submit(call)
        except RuntimeError:
            # Another thread closes it just now.
            pass
        raise Unavailable(f"{self._path} was closed")

    def _open(self, prepare: Callable[[sqlite3.Connection], None]) -> None:
        with self._named():
            self._connection = connect(self._path, self._busy_timeout_s)
            self._connection.execute("PRAGMA foreign_keys = ON")
            with transaction(self._connection):
                prepare(self._connection)
                self._version = _version(self._connection)
            self._files = files_of(self._path)

    def _in_transaction(self, begin: str, work: Work[T]) -> T:
        if self._connection is None:
            raise Unavailable(f"{self._path} was closed")
        with self._named(), transaction(self._connection, begin):
            self._check(self._connection)
            return work(self._connection)

    def _undo(self, running: Future[T], undo: Undo[T]) -> None:
        if running.cancelled() or running.exception() is not None:
            return
        try:
            self._in_transaction("BEGIN IMMEDIATE", lambda c: undo(c, running.result()))
        except Unavailable as error:
            logger.warning("what was given to a caller that is gone was not taken back: %s", error)

    def _check(self, connection: sqlite3.Connection) -> None:
        check_files(self._files)
        if _version(connection) != self._version:
            raise Unavailable(f"{self._path} was upgraded by another release; open it again")

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise Unavailable(
                f"{self._path} cannot be used: {error}; check the file, and who else uses it"
            ) from error

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with self._named():
                connection.close()


def _version(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
