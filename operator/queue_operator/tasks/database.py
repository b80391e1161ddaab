"""One SQLite connection on a thread of its own: one transaction at a time, in order of arrival.

A caller that is cancelled leaves no transaction half done, since the thread ends it.
"""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from queue_operator.backends.forks import Birthplace
from queue_operator.backends.sql import load
from queue_operator.backends.sqlite_connection import (
    Files,
    check_files,
    connect,
    files_of,
    transaction,
)
from queue_operator.domain.errors import InvalidArgument, Unavailable
from queue_operator.tasks.errors import NotConnected

T = TypeVar("T")
P = ParamSpec("P")

_PACKAGE: Final = "queue_operator.tasks"
_COLUMNS: Final = {
    "seq",
    "task_id",
    "status",
    "payload",
    "available_at",
    "enqueued_at",
    "started_at",
    "finished_at",
    "value",
    "error",
    "traceback",
}


class Database:
    """`open` comes first and may be repeated. `start` may be called from any thread. All but
    `close` raise WrongProcess in a fork.
    """

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = path
        self._birthplace = Birthplace(f"the backend of {path}")
        self._busy_timeout_s = busy_timeout_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="queue-operator-tasks")
        self._connection: sqlite3.Connection | None = None
        self._files: Files = {}

    def open(self) -> Future[None]:
        return self._submit(self._open)

    def start(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Runs it as one transaction that holds the file's write lock from its beginning."""
        return self._submit(self._run, work)

    def read(self, query: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Runs one SELECT, which in WAL mode waits for nobody."""
        return self._submit(self._read, query)

    def close(self) -> Future[None]:
        if self._birthplace.is_elsewhere:
            left_alone: Future[None] = Future()
            left_alone.set_result(None)
            return left_alone
        closing = self._thread.submit(self._close)
        self._thread.shutdown(wait=False)
        return closing

    def _submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        # Its thread is not there: a call would wait for ever.
        self._birthplace.check()
        return self._thread.submit(call, *args, **kwargs)

    def _open(self) -> None:
        if self._connection is not None:
            check_files(self._files)
            return
        with _typed_errors(self._path):
            connection = connect(self._path, self._busy_timeout_s)
        try:
            with _typed_errors(self._path):
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._files = files_of(self._path)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        with transaction(connection):
            connection.execute(load(_PACKAGE, "create_tasks"))
            found = {row[1] for row in connection.execute("PRAGMA table_info(tasks)")}
            if missing := _COLUMNS - found:
                raise InvalidArgument(
                    "path",
                    f"its table 'tasks' is another one, without {', '.join(sorted(missing))}",
                )
            connection.execute(load(_PACKAGE, "create_index"))

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._opened()
        with _typed_errors(self._path), transaction(connection):
            check_files(self._files)
            return work(connection)

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        with _typed_errors(self._path):
            connection = self._opened()
            check_files(self._files)
            return query(connection)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise NotConnected
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with _typed_errors(self._path):
                connection.close()


@contextmanager
def _typed_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise Unavailable(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        if type(error) is not sqlite3.DatabaseError:
            raise
        raise InvalidArgument("path", f"{path}: {error}") from error
