"""Several processes on one file, and some that die."""

import asyncio
import sqlite3
import sys
import threading
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from itertools import count

import pytest
from tests.programs import Process, finish, line, started
from tests.unit.tasks.conftest import SQLiteStore

from queue_operator.domain.errors import Unavailable
from queue_operator.tasks import SQLiteBackend
from queue_operator.testing.clauses import proves
from queue_operator.testing.tasks.store import NOON, connected, enqueue, ids
from queue_operator.testing.walking import walk

PRELUDE = """
import asyncio, sys
from datetime import UTC, datetime
from queue_operator.tasks import SQLiteBackend

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PATH = sys.argv[1]

def say(text):
    print(text, flush=True)
"""
DRAIN = """
async def main():
    backend = SQLiteBackend(PATH, busy_timeout_s=30.0)
    await backend.connect()
    tasks = await backend.reserve(2, NOW)
    say("ready")
    sys.stdin.readline()
    while tasks:
        for task in tasks:
            say(task.task_id)
            await backend.mark_success(task.task_id, PATH)
        tasks = await backend.reserve(2, NOW)
    await backend.close()

asyncio.run(main())
"""
RESERVE_AND_HANG = """
async def main():
    backend = SQLiteBackend(PATH)
    await backend.connect()
    [task] = await backend.reserve(1, NOW)
    say(task.task_id)
    await asyncio.Event().wait()

asyncio.run(main())
"""
# The clock is read in the middle of the transaction.
HANG_IN_RESERVE = """
def clock():
    say("in the transaction")
    sys.stdin.readline()

async def main():
    backend = SQLiteBackend(PATH, clock=clock)
    await backend.connect()
    await backend.reserve(5, NOW)

asyncio.run(main())
"""
CONNECT = """
async def main():
    say("ready")
    sys.stdin.readline()
    backend = SQLiteBackend(PATH, busy_timeout_s=30.0)
    await backend.connect()
    await backend.enqueue(sys.argv[2], None, NOW)
    await backend.close()

asyncio.run(main())
"""


def running(
    store: SQLiteStore, script: str, *arguments: str
) -> AbstractAsyncContextManager[Process]:
    return started(sys.executable, "-c", PRELUDE + script, store.path, *arguments)


@proves("backend-sqlite.Concurrency.rule.1", "backend-sqlite.ReserveTasks.then.1")
async def test_two_processes_never_reserve_the_same_task(task_store: SQLiteStore) -> None:
    names = [f"task-{n}" for n in range(150)]
    async with connected(task_store) as backend:
        await enqueue(backend, *names)
    async with (
        connected(task_store) as backend,
        running(task_store, DRAIN) as one,
        running(task_store, DRAIN) as other,
    ):
        assert [await line(one), await line(other)] == ["ready", "ready"]
        shares = [said.split() for said in await asyncio.gather(finish(one), finish(other))]
        results = [await backend.get_result(name) for name in names]
    assert all(shares)
    assert sorted(shares[0] + shares[1]) == sorted(names)
    assert all(results)


@proves("backend-sqlite.CreateTables.then.1", "backend-sqlite.Concurrency.rule.1")
async def test_many_processes_may_be_the_first(task_store: SQLiteStore) -> None:
    names = [f"task-{n}" for n in range(6)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(_connect_and_enqueue(task_store, name))
    async with connected(task_store) as backend:
        assert sorted(ids(await backend.reserve(10, NOON))) == names


async def _connect_and_enqueue(task_store: SQLiteStore, name: str) -> None:
    async with running(task_store, CONNECT, name) as process:
        assert await line(process) == "ready"
        await finish(process)


async def test_a_killed_reserver_leaves_its_task_in_progress(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "first", "second")
        async with running(task_store, RESERVE_AND_HANG) as reserver:
            assert await line(reserver) == "first"
            reserver.kill()
            await reserver.wait()
        assert ids(await backend.reserve(5, NOON)) == ["second"]
        await backend.mark_failure("first", "its process died", "")
        assert await backend.get_result("first") is not None


async def test_a_reserver_killed_in_its_transaction_took_nothing(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "first", "second")
    async with running(task_store, HANG_IN_RESERVE) as reserver:
        assert await line(reserver) == "in the transaction"
        reserver.kill()
        await reserver.wait()
    async with connected(task_store) as backend:
        assert ids(await backend.reserve(5, NOON)) == ["first", "second"]
    assert task_store.ask("PRAGMA integrity_check") == [("ok",)]


async def test_a_file_that_stays_locked_is_unavailable(task_store: SQLiteStore) -> None:
    async with connected(task_store):
        other = sqlite3.connect(task_store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        hasty = task_store.open(busy_timeout_s=0.01)
        with pytest.raises(Unavailable, match="locked") as refused:
            await hasty.connect()
        assert refused.value.retryable
        other.execute("ROLLBACK")
        await hasty.connect()
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            await enqueue(hasty, "one")
        other.close()
        await enqueue(hasty, "one")
        await hasty.close()


async def test_a_call_waits_for_the_lock(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        other = sqlite3.connect(task_store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        enqueueing = asyncio.create_task(enqueue(backend, "one"))
        done, _ = await asyncio.wait([enqueueing], timeout=0.05)
        assert not done
        other.execute("ROLLBACK")
        await enqueueing
        other.close()


@proves("backend-sqlite.EnableWal.then.1")
async def test_connecting_waits_for_the_lock(task_store: SQLiteStore) -> None:
    other = sqlite3.connect(task_store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE notes (text TEXT)")
    backend = task_store.open()
    connecting = asyncio.create_task(backend.connect())
    done, _ = await asyncio.wait([connecting], timeout=0.05)
    assert not done
    other.execute("COMMIT")
    other.close()
    await connecting
    await backend.close()
    assert task_store.ask("PRAGMA journal_mode") == [("wal",)]


@proves("backend-sqlite.EnableWal.then.1")
async def test_a_result_is_read_while_somebody_writes(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        await backend.reserve(1, NOON)
        await backend.mark_success("one", 7)
        other = sqlite3.connect(task_store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM tasks")
        result = await asyncio.wait_for(backend.get_result("one"), timeout=10)
        assert result is not None
        assert result.value == 7
        other.close()


class Gate:
    """A clock that stops whoever reads it, until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> datetime:
        self.reached.set()
        self.opened.wait(timeout=60)
        return NOON


async def cancel_at(gate: Gate, backend: SQLiteBackend) -> "asyncio.Task[object]":
    """Begins a reservation and cancels it in the middle of its transaction."""
    reserving = asyncio.create_task(backend.reserve(2, NOON))
    await asyncio.to_thread(gate.reached.wait, 60)
    reserving.cancel()
    return reserving


async def test_any_patience_is_one(task_store: SQLiteStore) -> None:
    async with connected(task_store):
        patient = task_store.open(busy_timeout_s=1e300)
        await patient.connect()
        other = sqlite3.connect(task_store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(enqueue(patient, "one"))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        other.execute("ROLLBACK")
        other.close()
        await waiting
        await patient.close()


async def test_what_a_cancelled_caller_reserved_waits_again(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one", "two", "three")
    gate = Gate()
    backend = SQLiteBackend(task_store.path, clock=gate)
    await backend.connect()
    reserving = await cancel_at(gate, backend)
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await reserving
    assert ids(await backend.reserve(3, NOON)) == ["one", "two", "three"]
    await backend.close()


async def test_a_reservation_cancelled_anywhere_is_told_or_waits_again(
    task_store: SQLiteStore,
) -> None:
    names = count()

    async with connected(task_store) as backend:

        async def bring() -> str:
            name = f"task {next(names)}"
            await enqueue(backend, name)
            return name

        async def call(name: str) -> list[str]:
            reserved = ids(await backend.reserve(100, NOON))
            assert name in reserved
            return reserved

        calls = [one async for one in walk(bring, call)]
        told = [name for one in calls for answer in one.answers for name in answer]
        left = ids(await backend.reserve(1000, NOON))
    assert sorted(told + left) == sorted(one.subject for one in calls)


async def test_closing_waits_for_the_cancelled_to_give_back(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one", "two")
    gate = Gate()
    backend = SQLiteBackend(task_store.path, clock=gate)
    await backend.connect()
    reserving = await cancel_at(gate, backend)
    gate.opened.set()
    # It runs before the other task hears that it was cancelled.
    await backend.close()
    assert reserving.cancelled()
    async with connected(task_store) as after:
        assert ids(await after.reserve(3, NOON)) == ["one", "two"]
