"""What may be wrong with a file, and what a file keeps."""

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.integration.sqlite.conftest import Ask

from queue_operator.backends.protocol import JobSearch
from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.errors import InvalidArgument, Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.sqlite import SqliteStore
from queue_operator.testing.store import TTL_S

NOBODY = 65534


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _read(path: Path) -> str:
    return path.read_text()


def _rename(path: Path, name: Path) -> None:
    path.rename(name)


async def test_a_file_that_stays_busy_is_unavailable(
    path: Path, other: sqlite3.Connection, store: SqliteStore
) -> None:
    hasty = await SqliteBackend.open(path, busy_timeout_s=0.01)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked") as refused:
        await hasty.enqueue_job(Job(id="a", type="t"))
    assert refused.value.retryable
    assert str(path) in str(refused.value)
    with pytest.raises(Unavailable, match="locked"):
        await hasty.ping()
    with pytest.raises(Unavailable, match="locked"):
        await SqliteBackend.open(path, busy_timeout_s=0.01)
    other.execute("ROLLBACK")
    await hasty.enqueue_job(Job(id="a", type="t"))
    await hasty.close()
    assert await store.faults() == []


async def test_a_writer_waits_for_the_file_and_a_reader_does_not(
    backend: SqliteBackend, other: sqlite3.Connection
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM job")
    assert (await backend.get_job("a")).state is JobState.INITIAL_PENDING
    assert (await backend.search_jobs(JobSearch())).total_count == 1
    writing = asyncio.create_task(backend.enqueue_job(Job(id="b", type="t")))
    done, _ = await asyncio.wait([writing], timeout=0.05)
    assert not done
    other.execute("ROLLBACK")
    assert await writing == "b"
    assert (await backend.get_job_stats([])).total_jobs == 2


async def test_a_file_that_is_no_database(path: Path) -> None:
    text = "these are notes, and they are longer than a header of a database " * 10
    _write(path, text)
    with pytest.raises(Unavailable, match="not a database"):
        await SqliteBackend.open(path)
    assert _read(path) == text


async def test_a_database_of_another_program(path: Path, ask: Ask) -> None:
    ask("CREATE TABLE job (notes TEXT)")
    with pytest.raises(Unavailable, match="another program"):
        await SqliteBackend.open(path)
    assert ask("SELECT name FROM sqlite_schema") == [("job",)]


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    _write(path, "")
    backend = await SqliteBackend.open(path)
    assert await backend.enqueue_job(Job(id="a", type="t")) == "a"
    await backend.close()


async def test_opening_waits_for_who_holds_a_new_file(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE unfinished (notes TEXT)")
    opening = asyncio.create_task(SqliteBackend.open(path))
    done, _ = await asyncio.wait([opening], timeout=0.05)
    assert not done
    other.execute("ROLLBACK")
    other.close()
    backend = await opening
    assert await backend.enqueue_job(Job(id="a", type="t")) == "a"
    await backend.close()


@pytest.mark.parametrize("name", ["", "missing/jobs.db"])
async def test_a_path_that_can_hold_no_file(path: Path, name: str) -> None:
    # A folder, or in a folder that is not there.
    with pytest.raises(Unavailable, match="unable to open"):
        await SqliteBackend.open(path.parent / name)


async def test_a_path_that_names_no_file() -> None:
    with pytest.raises(InvalidArgument, match="path: must not contain NUL"):
        await SqliteBackend.open("jobs\x00.db")


async def test_a_read_only_file(store: SqliteStore, backend: SqliteBackend) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    await backend.close()
    store.path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    store.folder.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    with _as_nobody(), pytest.raises(Unavailable, match="readonly"):
        await SqliteBackend.open(store.path)
    store.path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    again = await store.open()
    assert (await again.get_job("a")).id == "a"


@contextmanager
def _as_nobody() -> Iterator[None]:
    """The superuser may write what is read-only."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(mine)


async def test_a_newer_schema_is_refused_and_left_alone(
    store: SqliteStore, backend: SqliteBackend, ask: Ask
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    await backend.close()
    [[version]] = ask("PRAGMA user_version")
    ask(f"PRAGMA user_version = {version + 1}")
    with pytest.raises(Unavailable, match=f"version {version + 1}.*knows up to {version}"):
        await store.open()
    assert ask("PRAGMA user_version") == [(version + 1,)]
    ask(f"PRAGMA user_version = {version}")
    assert (await (await store.open()).get_job("a")).id == "a"


async def test_who_has_a_file_open_that_is_upgraded_stops_using_it(
    backend: SqliteBackend, ask: Ask
) -> None:
    ask("PRAGMA user_version = 99")
    with pytest.raises(Unavailable, match="upgraded"):
        await backend.enqueue_job(Job(id="a", type="t"))
    with pytest.raises(Unavailable, match="upgraded"):
        await backend.get_job("a")
    assert ask("SELECT count(*) FROM job") == [(0,)]


async def test_a_file_that_was_replaced_is_noticed(
    path: Path, backend: SqliteBackend, store: SqliteStore
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    _rename(path, path.with_suffix(".old"))
    with pytest.raises(Unavailable, match="gone"):
        await backend.enqueue_job(Job(id="b", type="t"))
    _write(path, "")
    with pytest.raises(Unavailable, match="replaced"):
        await backend.enqueue_job(Job(id="b", type="t"))
    _rename(path.with_suffix(".old"), path)
    assert (await backend.get_job("a")).id == "a"
    assert (await backend.get_job_stats([])).total_jobs == 1


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
async def test_what_lies_beside_the_file_is_missed_too(
    path: Path, backend: SqliteBackend, suffix: str
) -> None:
    """What was stored last is nowhere else; and without the index others see other things."""
    await backend.enqueue_job(Job(id="a", type="t"))
    beside = path.with_name(path.name + suffix)
    _rename(beside, path.with_suffix(".old"))
    with pytest.raises(Unavailable, match=f"{suffix} is gone"):
        await backend.enqueue_job(Job(id="b", type="t"))
    _write(beside, "")
    with pytest.raises(Unavailable, match=f"{suffix} was replaced"):
        await backend.get_job("a")
    _rename(path.with_suffix(".old"), beside)
    assert (await backend.get_job("a")).id == "a"
    assert (await backend.get_job_stats([])).total_jobs == 1


async def test_a_full_disk_is_unavailable_and_half_writes_nothing(
    backend: SqliteBackend, store: SqliteStore
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    [[pages]] = await backend._file.read(lambda c: c.execute("PRAGMA page_count").fetchall())
    await backend._file.read(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 20}"))
    with pytest.raises(Unavailable, match="full"):
        await backend.enqueue_jobs(
            [Job(id=f"b-{n}", type="t", payload=bytes(100_000)) for n in range(50)]
        )
    assert (await backend.get_job_stats([])).total_jobs == 1
    assert await backend.enqueue_job(Job(id="c", type="t")) == "c"
    assert await store.faults() == []


async def test_a_cleanup_that_fails_half_way_deletes_nothing(
    store: SqliteStore, backend: SqliteBackend, ask: Ask
) -> None:
    await backend.enqueue_jobs([Job(id=f"j-{n}", type="t") for n in range(5)])
    for job in await backend.dequeue_jobs("w", [], 5):
        await backend.complete_job(job.id, b"r")
    await store.age(100)
    before = await backend.read_events()
    ask(
        "CREATE TRIGGER refuse BEFORE DELETE ON job WHEN old.id = 'j-3'"
        " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    )
    with pytest.raises(Unavailable, match="not this one"):
        await backend.cleanup_expired_jobs(50)
    assert (await backend.get_job_stats([])).completed_jobs == 5
    assert await backend.read_events() == before
    ask("DROP TRIGGER refuse")
    assert await backend.cleanup_expired_jobs(50) == 5


async def test_all_is_there_after_reopening(store: SqliteStore, backend: SqliteBackend) -> None:
    await backend.enqueue_jobs(
        [
            Job(id="parent", type="t", payload=b"\x00\xff", tags=frozenset({"x"}), timeout_s=0.1),
            Job(id="child", type="t", depends_on=("parent",), idempotency_key="k"),
            Job(id="later", type="t", delay_s=3600.5, correlation_id="Ω"),
        ]
    )
    [taken] = await backend.claim([Demand(assignee_id="w", limit=5)], lease_ttl_s=TTL_S)
    before = [await _everything(backend, name) for name in ("parent", "child", "later")]
    events = await backend.read_events()
    await backend.close()

    again = await store.open()
    assert [await _everything(again, name) for name in ("parent", "child", "later")] == before
    assert await again.read_events() == events
    done = Outcome("parent", Event.COMPLETE, token=taken.token, result=b"\x01")
    [answer] = await again.settle([done])
    assert (answer.state, answer.freed_assignee_id) == (JobState.COMPLETED, "w")
    [child] = await again.claim([Demand(assignee_id="w", limit=5)], lease_ttl_s=TTL_S)
    assert child.job_id == "child"
    repeat = Job(id="other", type="t", depends_on=("parent",), idempotency_key="k")
    assert (await again.submit([repeat]))[0].job_id == "child"


async def _everything(backend: SqliteBackend, name: str) -> object:
    return await backend.get_job(name), await backend.get_history(name)


async def test_numbers_are_not_given_twice(store: SqliteStore, backend: SqliteBackend) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    await backend.cancel_jobs([], ["a"])
    await backend.delete_jobs([], ["a"])
    await backend.close()
    again = await store.open()
    await again.enqueue_job(Job(id="a", type="t"))
    numbers = {number for event in await again.read_events() for number in event.job_nos}
    assert len(numbers) == 2


class Gate:
    """A clock that stops whoever reads it, once it is armed, until it is opened."""

    def __init__(self) -> None:
        self.armed = False
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> datetime:
        if self.armed:
            self.reached.set()
            self.opened.wait(timeout=60)
        return datetime.now(UTC)


async def test_a_cancelled_claim_gives_jobs_to_nobody(path: Path) -> None:
    gate = Gate()
    backend = await SqliteBackend.open(path, clock=gate)
    await backend.enqueue_job(Job(id="a", type="t"))
    gate.armed = True
    # Its lease would never expire.
    claiming = asyncio.create_task(backend.dequeue_jobs("w", [], 1))
    await asyncio.to_thread(gate.reached.wait, 60)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    gate.opened.set()
    job = await backend.get_job("a")
    assert (job.state, job.attempt) == (JobState.INITIAL_PENDING, 0)
    await backend.close()


async def test_closing_waits_for_the_call_that_runs(path: Path, store: SqliteStore) -> None:
    gate = Gate()
    backend = await SqliteBackend.open(path, clock=gate)
    gate.armed = True
    storing = asyncio.create_task(backend.enqueue_job(Job(id="a", type="t")))
    await asyncio.to_thread(gate.reached.wait, 60)
    closing = asyncio.create_task(backend.close())
    done, _ = await asyncio.wait([closing], timeout=0.05)
    assert not done
    gate.opened.set()
    await closing
    assert await storing == "a"
    await backend.close()
    with pytest.raises(Unavailable, match="closed"):
        await backend.ping()
    assert (await (await store.open()).get_job("a")).id == "a"


async def test_jobs_of_a_file_from_before_traces_belong_to_none(
    backend: SqliteBackend, other: sqlite3.Connection
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    other.execute(
        "UPDATE job SET record = json_remove(record, '$.job.traceparent', '$.job.tracestate')"
    )
    job = await backend.get_job("a")
    assert (job.traceparent, job.tracestate) == ("", "")
    [claimed] = await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=TTL_S)
    assert claimed.traceparent == ""
