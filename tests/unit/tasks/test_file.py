"""The file itself: its table, its mode, who holds it."""

import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.tasks.conftest import SQLiteStore

from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidArgument, Unavailable
from queue_operator.tasks import SQLiteBackend, TaskBackend, TaskStatus
from queue_operator.testing.clauses import proves
from queue_operator.testing.tasks.store import NOON, connected, enqueue, ids

COLUMNS = {
    "seq": "INTEGER",
    "task_id": "TEXT",
    "status": "TEXT",
    "payload": "BLOB",
    "available_at": "TEXT",
    "enqueued_at": "TEXT",
    "started_at": "TEXT",
    "finished_at": "TEXT",
    "value": "BLOB",
    "error": "TEXT",
    "traceback": "TEXT",
}


def open_files(path: Path) -> int:
    """How many descriptors this process holds on the database file."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(os.path.realpath(link) == str(path.resolve()) for link in links)


def threads() -> int:
    return sum(t.name.startswith("queue-operator-tasks") for t in threading.enumerate())


@proves("backend-sqlite.CreateTables.pre.1", "backend-sqlite.CreateTables.then.1")
async def test_connecting_makes_the_file_and_its_table(task_store: SQLiteStore) -> None:
    assert not task_store.path.exists()
    async with connected(task_store):
        columns = task_store.ask("SELECT name, type FROM pragma_table_info('tasks')")
    assert columns == list(COLUMNS.items())


@proves("backend-sqlite.CreateTables.pre.1", "backend-sqlite.CreateTables.then.1")
async def test_other_tables_of_the_file_stay(task_store: SQLiteStore) -> None:
    task_store.ask("CREATE TABLE notes (text TEXT)")
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
    tables = task_store.ask("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    assert tables == [("notes",), ("tasks",)]


@proves("backend-sqlite.Storage.rule.1", "backend-sqlite.CreateTables.then.1")
async def test_reopening_keeps_tasks_and_results(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "good", "bad", "running")
        await backend.reserve(3, NOON)
        await enqueue(backend, "waiting", payload=[1])
        await backend.mark_success("good", b"\x00")
        await backend.mark_failure("bad", "no route", "trace")
        results = [await backend.get_result(name) for name in ("good", "bad")]
    async with connected(task_store) as backend:
        assert [await backend.get_result(name) for name in ("good", "bad")] == results
        assert ids(await backend.reserve(5, NOON)) == ["waiting"]
        await backend.mark_success("running", None)


@proves(
    "backend-sqlite.EnqueueTask.then.1",
    "backend-sqlite.ReserveTasks.then.2",
    "backend-sqlite.PersistResults.then.1",
)
async def test_a_row_goes_through_the_statuses(task_store: SQLiteStore) -> None:
    def rows() -> list[tuple[object, ...]]:
        return task_store.ask(
            "SELECT status, started_at, finished_at, value, error, traceback"
            " FROM tasks ORDER BY seq"
        )

    noon = "2026-01-01T12:00:00.000000+00:00"
    async with connected(task_store) as backend:
        await enqueue(backend, "good", "bad")
        assert rows() == [(TaskStatus.PENDING, None, None, None, None, None)] * 2
        await backend.reserve(2, NOON)
        assert rows() == [(TaskStatus.IN_PROGRESS, noon, None, None, None, None)] * 2
        await backend.mark_success("good", None)
        await backend.mark_failure("bad", "no", "trace")
    assert rows() == [
        (TaskStatus.SUCCESS, noon, noon, "null", None, None),
        (TaskStatus.FAILURE, noon, noon, None, "no", "trace"),
    ]


@proves("backend-sqlite.EnableWal.pre.1", "backend-sqlite.EnableWal.then.1")
async def test_the_file_is_in_wal_mode(task_store: SQLiteStore) -> None:
    async with connected(task_store):
        assert task_store.ask("PRAGMA journal_mode") == [("wal",)]
        assert task_store.path.with_name("tasks.db-wal").exists()


@proves("backend-sqlite.Connect.then.1", "backend-sqlite.Connect.then.2")
async def test_there_is_one_connection_however_often_connected(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        assert open_files(task_store.path) == 1
        for _ in range(3):
            await backend.connect()
        assert (open_files(task_store.path), threads()) == (1, 1)


@proves("backend-sqlite.Close.pre.1", "backend-sqlite.Close.then.1")
async def test_closing_leaves_the_file_and_nothing_else(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        [thread] = [t for t in threading.enumerate() if t.name.startswith("queue-operator-tasks")]
    thread.join(timeout=10)
    assert (open_files(task_store.path), threads()) == (0, 0)
    assert list(task_store.path.parent.iterdir()) == [task_store.path]


async def test_a_folder_that_does_not_exist_is_unavailable(tmp_path: Path) -> None:
    backend = SQLiteBackend(tmp_path / "missing" / "tasks.db")
    with pytest.raises(Unavailable, match="unable to open"):
        await backend.connect()
    (tmp_path / "missing").mkdir()
    await backend.connect()
    await enqueue(backend, "one")
    await backend.close()


async def test_a_file_of_another_kind_is_refused_and_kept(task_store: SQLiteStore) -> None:
    task_store.path.write_bytes(b"no database at all" * 100)
    backend = task_store.open()
    with pytest.raises(InvalidArgument, match="not a database") as refused:
        await backend.connect()
    assert refused.value.field == "path"
    assert open_files(task_store.path) == 0
    await backend.close()
    assert task_store.path.read_bytes().startswith(b"no database at all")


async def test_a_table_of_another_shape_is_refused_and_kept(task_store: SQLiteStore) -> None:
    task_store.ask("CREATE TABLE tasks (task_id TEXT, status TEXT)")
    backend = task_store.open()
    with pytest.raises(InvalidArgument, match=r"'tasks' is another one, without available_at"):
        await backend.connect()
    await backend.close()
    assert task_store.ask("SELECT sql FROM sqlite_master") == [
        ("CREATE TABLE tasks (task_id TEXT, status TEXT)",)
    ]


@pytest.mark.parametrize("path", ["", ".", ":memory:", "a\x00.db", b"tasks.db", None])
def test_the_path_must_name_a_file(path: str) -> None:
    with pytest.raises(InvalidArgument, match="path"):
        SQLiteBackend(path)


async def test_a_clock_without_a_zone_is_refused(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        task_store.clock.now = NOON.replace(tzinfo=None)
        with pytest.raises(InvalidArgument, match="clock"):
            await enqueue(backend, "one")
        task_store.clock.now = NOON
        assert await backend.reserve(1, NOON) == []


async def test_other_tools_cannot_break_the_rules_of_a_row(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "one")
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            task_store.ask("UPDATE tasks SET status = 'done'")
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            task_store.ask("UPDATE tasks SET status = ?", TaskStatus.SUCCESS)


async def test_reserving_reads_the_index_in_its_order(task_store: SQLiteStore) -> None:
    async with connected(task_store):
        statement = load("queue_operator.tasks", "reserve_find")
        connection = sqlite3.connect(task_store.path)
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN {statement}", {"now": "2026", "max_items": 5}
        ).fetchall()
        connection.close()
    assert [step[3] for step in plan] == ["SEARCH tasks USING INDEX tasks_pending (available_at<?)"]


Call = Callable[[TaskBackend], Awaitable[object]]
EVERY: dict[str, Call] = {
    "connect": lambda b: b.connect(),
    "enqueue": lambda b: b.enqueue("new", None, NOON),
    "reserve": lambda b: b.reserve(1, NOON),
    "mark_success": lambda b: b.mark_success("running", 1),
    "mark_failure": lambda b: b.mark_failure("running", "e", ""),
    "get_result": lambda b: b.get_result("ended"),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_every_call_notices_that_the_file_is_gone(
    task_store: SQLiteStore, name: str, suffix: str
) -> None:
    path = task_store.path.with_name(f"tasks.db{suffix}")
    aside = task_store.path.with_name("aside")
    async with connected(task_store) as backend:
        await enqueue(backend, "ended", "running", "waiting")
        await backend.reserve(2, NOON)
        await backend.mark_success("ended", 7)
        path.rename(aside)
        with pytest.raises(Unavailable, match="gone") as refused:
            await EVERY[name](backend)
        assert str(path) in str(refused.value)
        assert "open it again" in str(refused.value)
        # Put back it is as it was, and the backend goes on with it.
        aside.rename(path)
        assert task_store.ask("SELECT status FROM tasks ORDER BY seq") == [
            ("success",),
            ("in_progress",),
            ("pending",),
        ]
        await EVERY[name](backend)


async def test_a_file_that_was_replaced_is_not_worked_on(task_store: SQLiteStore) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "lost")
        for suffix in ("", "-wal", "-shm"):
            task_store.path.with_name(f"tasks.db{suffix}").unlink()
        async with connected(task_store) as other:
            await enqueue(other, "kept")
            with pytest.raises(Unavailable, match="replaced"):
                await enqueue(backend, "nowhere")
            with pytest.raises(Unavailable, match="replaced"):
                await backend.reserve(5, NOON)
        await backend.close()
        await backend.connect()
        assert ids(await backend.reserve(5, NOON)) == ["kept"]


async def test_closed_and_connected_again_a_file_that_is_gone_is_made_anew(
    task_store: SQLiteStore,
) -> None:
    async with connected(task_store) as backend:
        await enqueue(backend, "lost")
        task_store.path.unlink()
        with pytest.raises(Unavailable, match="gone"):
            await enqueue(backend, "nowhere")
        await backend.close()
        await backend.connect()
        await enqueue(backend, "new")
        assert task_store.ask("SELECT task_id FROM tasks") == [("new",)]


async def test_a_relative_path_is_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backend = SQLiteBackend("tasks.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await backend.connect()
    await enqueue(backend, "one")
    monkeypatch.chdir(tmp_path.parent)
    assert ids(await backend.reserve(5, datetime.now(UTC))) == ["one"]
    await backend.close()
    assert (tmp_path / "tasks.db").exists()
