"""What the specification expects of effort and of an end, on a file."""

import os
import sqlite3
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.testing.clauses import proves
from queue_operator.testing.sqlite import SqliteStore

BATCH = 50


async def _commits(backend: SqliteBackend, call: Awaitable[object]) -> int:
    """How many transactions that write a call takes: each waits for the disk."""
    said: list[str] = []
    await backend._file.read(lambda connection: connection.set_trace_callback(said.append))
    await call
    await backend._file.read(lambda connection: connection.set_trace_callback(None))
    return said.count("BEGIN IMMEDIATE")


@proves(
    "backend-api.EnqueueJobs.must.3",
    "backend-api.CancelJobs.must.6",
    "backend-api.DeleteJobs.must.6",
    "backend-api.ImplementationGuidelines.must.2",
    "backend-api.ImplementationGuidelines.must.16",
)
async def test_a_batch_is_one_transaction(backend: SqliteBackend) -> None:
    jobs = [Job(id=f"{n}", type="t") for n in range(BATCH)]
    names = [job.id for job in jobs]
    for call in (
        backend.enqueue_jobs(jobs),
        backend.cancel_jobs([], names),
        backend.delete_jobs([], names),
    ):
        assert await _commits(backend, call) == 1


def _open_files(path: Path) -> int:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(os.path.realpath(link).startswith(str(path.resolve())) for link in links)


def _threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("queue-operator-sqlite")]


@proves("backend-api.Close.must.1")
async def test_a_closed_backend_holds_neither_the_file_nor_a_thread(
    backend: SqliteBackend, store: SqliteStore
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    [thread] = _threads()
    assert _open_files(store.path) > 0
    await backend.close()
    thread.join(timeout=10)
    assert (_open_files(store.path), _threads()) == (0, [])


class Unwilling:
    """A connection whose end goes wrong."""

    def __init__(self, kept: sqlite3.Connection) -> None:
        self._kept = kept

    def close(self) -> None:
        self._kept.close()
        raise sqlite3.OperationalError("disk I/O error")


@proves("backend-api.Close.must.3")
async def test_a_file_that_cannot_be_closed_is_told(backend: SqliteBackend) -> None:
    kept = backend._file._connection
    assert kept is not None
    backend._file._connection = Unwilling(kept)  # type: ignore[assignment]
    with pytest.raises(Unavailable, match="disk I/O error"):
        await backend.close()
    # Closing again is no failure: nothing is left to be closed.
    await backend.close()
