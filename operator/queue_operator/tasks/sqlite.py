"""TaskBackend on one local SQLite file, for any number of processes of one machine."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TypeVar

from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.storable import clean_error
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    Limits,
    check_limit,
    check_positive,
    check_text,
)
from queue_operator.tasks.database import Database
from queue_operator.tasks.errors import DuplicateTask, NotConnected, NotInProgress, TaskNotFound
from queue_operator.tasks.protocol import ReservedTask, Result, TaskStatus, Value
from queue_operator.tasks.values import decode, decode_time, encode, encode_time

T = TypeVar("T")


@cache
def _sql(name: str) -> str:
    return load("queue_operator.tasks", name)


def utc_now() -> datetime:
    return datetime.now(UTC)


class SQLiteBackend:
    """`clock` gives `enqueued_at`, `started_at` and `finished_at`; it is read while the file is
    locked, so these times are in the order of what happened. `busy_timeout_s` is how long a
    call waits for other processes before it raises Unavailable. Threads with loops of their own
    may share a backend.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], datetime] = utc_now,
        busy_timeout_s: float = 5.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if not isinstance(path, str | Path):
            raise InvalidArgument("path", f"must be a str or a Path, not {type(path).__name__}")
        if str(path) in {"", ".", ":memory:"}:
            # Each connection would get a database of its own, gone with it.
            raise InvalidArgument("path", "must name a file")
        if "\x00" in str(path):
            raise InvalidArgument("path", "must not contain NUL characters")
        check_positive("busy_timeout_s", busy_timeout_s)
        # Whoever changes the current folder must not change the file.
        self._path = Path(path).absolute()
        self._clock = clock
        self._busy_timeout_s = busy_timeout_s
        self._limits = limits
        self._database: Database | None = None
        self._reserving: set[Future[None]] = set()
        self._lock = Lock()

    async def connect(self) -> None:
        with self._lock:
            if self._database is None:
                self._database = Database(self._path, self._busy_timeout_s)
            opening = self._database.open()
        await asyncio.wrap_future(opening)

    async def close(self) -> None:
        with self._lock:
            database, self._database = self._database, None
        if database is None:
            return
        try:
            # One that is cancelled right now still has tasks to put back.
            if reserving := tuple(self._reserving):
                await asyncio.wait(map(asyncio.wrap_future, reserving))
        finally:
            await asyncio.wrap_future(database.close())

    async def enqueue(self, task_id: str, payload: Value, available_at: datetime) -> None:
        self._check_id(task_id)
        row = {
            "task_id": task_id,
            "payload": encode("payload", payload, self._limits.payload_bytes),
            "available_at": encode_time("available_at", available_at),
        }
        await self._run(partial(self._enqueue, row))

    async def reserve(self, max_items: int, now: datetime) -> list[ReservedTask]:
        check_limit("max_items", max_items)
        latest = encode_time("now", now)
        over: Future[None] = Future()
        with self._lock:
            database = self._connected()
            reserving = database.start(partial(self._reserve, max_items, latest))
            self._reserving.add(over)
        try:
            return await asyncio.wrap_future(reserving)
        except asyncio.CancelledError:
            # Nobody would ever run what it took.
            database.start(partial(_undo, reserving))
            raise
        finally:
            self._reserving.discard(over)
            over.set_result(None)

    async def mark_success(self, task_id: str, value: Value) -> None:
        self._check_id(task_id)
        stored = encode("value", value, self._limits.result_bytes)
        await self._run(partial(self._mark, "mark_success", {"task_id": task_id, "value": stored}))

    async def mark_failure(self, task_id: str, error: str, traceback: str) -> None:
        self._check_id(task_id)
        _check_string("error", error)
        _check_string("traceback", traceback)
        # What is too long or has no place in a text is no reason to leave a task running.
        clean = clean_error(ErrorInfo(error, stack_trace=traceback), self._limits)
        row = {"task_id": task_id, "error": clean.message, "traceback": clean.stack_trace}
        await self._run(partial(self._mark, "mark_failure", row))

    async def get_result(self, task_id: str) -> Result | None:
        self._check_id(task_id)
        with self._lock:
            reading = self._connected().read(partial(_read, task_id))
        row = await asyncio.wrap_future(reading)
        return None if row is None or row["finished_at"] is None else _result(row)

    def _connected(self) -> Database:
        if self._database is None:
            raise NotConnected
        return self._database

    async def _run(self, transaction: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            running = self._connected().start(transaction)
        return await asyncio.wrap_future(running)

    def _check_id(self, task_id: object) -> None:
        check_text("task_id", task_id, self._limits.id_characters)

    def _now(self) -> str:
        return encode_time("clock", self._clock())

    # What follows runs on the connection's thread, inside a transaction.

    def _enqueue(self, row: Mapping[str, str | bytes], connection: sqlite3.Connection) -> None:
        stored = connection.execute(_sql("enqueue"), {**row, "enqueued_at": self._now()})
        if not stored.rowcount:
            raise DuplicateTask(str(row["task_id"]))

    def _reserve(
        self, max_items: int, latest: str, connection: sqlite3.Connection
    ) -> list[ReservedTask]:
        started_at = self._now()
        limits = {"now": latest, "max_items": max_items}
        rows = connection.execute(_sql("reserve_find"), limits).fetchall()
        taken = [{"seq": row["seq"], "started_at": started_at} for row in rows]
        connection.executemany(_sql("reserve_take"), taken)
        return [_reserved(row, started_at) for row in rows]

    def _mark(
        self, call: str, row: Mapping[str, str | bytes], connection: sqlite3.Connection
    ) -> None:
        marked = connection.execute(_sql(call), {**row, "finished_at": self._now()})
        if marked.rowcount:
            return
        task_id = str(row["task_id"])
        found = _read(task_id, connection)
        if found is None:
            raise TaskNotFound(task_id)
        raise NotInProgress(task_id, found["status"], call)


def _undo(reserving: Future[list[ReservedTask]], connection: sqlite3.Connection) -> None:
    if reserving.cancelled() or reserving.exception():
        return
    rows = [
        {"task_id": task.task_id, "started_at": encode_time("started_at", task.started_at)}
        for task in reserving.result()
    ]
    connection.executemany(_sql("reserve_undo"), rows)


def _read(task_id: str, connection: sqlite3.Connection) -> sqlite3.Row | None:
    found: sqlite3.Row | None = connection.execute(
        _sql("read_task"), {"task_id": task_id}
    ).fetchone()
    return found


def _reserved(row: sqlite3.Row, started_at: str) -> ReservedTask:
    return ReservedTask(
        task_id=row["task_id"],
        payload=decode(row["payload"]),
        available_at=decode_time(row["available_at"]),
        enqueued_at=decode_time(row["enqueued_at"]),
        started_at=decode_time(started_at),
    )


def _result(row: sqlite3.Row) -> Result:
    return Result(
        task_id=row["task_id"],
        status=TaskStatus(row["status"]),
        value=decode(row["value"]),
        error=row["error"],
        traceback=row["traceback"],
        enqueued_at=decode_time(row["enqueued_at"]),
        started_at=decode_time(row["started_at"]),
        finished_at=decode_time(row["finished_at"]),
    )


def _check_string(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidArgument(field, f"must be a string, not {type(value).__name__}")
