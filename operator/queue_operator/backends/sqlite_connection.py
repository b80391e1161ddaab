"""A connection to a SQLite file that several processes use, a transaction on it, and whether the
file is still the one that was opened.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from queue_operator.domain.errors import Unavailable

_PAUSE_S: Final = 0.005
_LONGEST_S: Final = 1_000_000.0
"""SQLite counts its patience in milliseconds, in 32 bits."""
_PRIMARY: Final = 0xFF
"""The part of SQLite's error codes that says what kind of error it is."""
_BESIDE: Final = ("", "-wal", "-shm")
"""The file itself, the log of what was committed last, and the index of that, which tells other
processes of it.
"""

Files = dict[Path, tuple[int, int]]
"""Device and inode by name."""


def connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """Commits are on the disk when they return, and readers wait for nobody. Where the file
    system cannot do the latter, the file's mode stays what it was and all else still works.
    """
    patience_s = min(busy_timeout_s, _LONGEST_S)
    connection = sqlite3.connect(path, timeout=patience_s, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        _write_ahead(connection, busy_timeout_s)
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Waits by hand: it is the one statement that does not do so by itself, and of many that
    open a new file at once all but one would be told that it is locked.
    """
    deadline = monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & _PRIMARY == sqlite3.SQLITE_BUSY
            if not busy or monotonic() > deadline:
                raise
            sleep(_PAUSE_S)
        else:
            return


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """What writes never begins DEFERRED: two that read first and write later can only end by
    one failing.
    """
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # Some errors, as a full disk, have ended it already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def files_of(path: Path) -> Files:
    """What lies there under the names that SQLite uses for the database at `path`."""
    named = (path.with_name(path.name + suffix) for suffix in _BESIDE)
    return {name: found for name in named if (found := _find(name)) is not None}


def check_files(opened: Files) -> None:
    """Raises Unavailable when one of the files is no longer where it was opened. SQLite itself
    would go on with files that nobody finds any more, and all that it stores would be lost.
    """
    for name, before in opened.items():
        now = _find(name)
        if now != before:
            what = "is gone" if now is None else "was replaced by another file"
            raise Unavailable(f"{name} {what}: close the store, and open it again")


def _find(name: Path) -> tuple[int, int] | None:
    try:
        found = name.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
