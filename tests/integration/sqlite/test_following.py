"""Whoever follows a file hears of what any process does to it, and notices when the file is what it
was before.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from shutil import copyfile
from typing import Final

import pytest
from tests.integration.sqlite.processes import running
from tests.programs import finish, kill, line

from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.errors import PositionExpired
from queue_operator.domain.job import Job
from queue_operator.queue.followers import Wish
from queue_operator.queue.hub import EventHub
from queue_operator.testing.backend.following import of, told
from queue_operator.testing.sqlite import SqliteStore

ALL: Final = Wish(namespace="default")
WRITERS: Final = "abc"
JOBS: Final = 15
WORK: Final = """
async def main():
    backend = await SqliteBackend.open(PATH, busy_timeout_s=60.0)
    name = sys.argv[2]
    say("ready")
    wait()
    for n in range(int(sys.argv[3])):
        job = Job(id=f"{name}-{n}", type=name)
        await backend.enqueue_job(job)
        demand = Demand(assignee_id=ME, limit=1, types=frozenset({name}))
        [taken] = await backend.claim([demand], lease_ttl_s=600.0)
        [answer] = await backend.settle([Outcome(job.id, Event.COMPLETE, token=taken.token)])
        assert answer.error is None, answer
        say(job.id)
    await backend.close()

asyncio.run(main())
"""


@asynccontextmanager
async def hub_of(backend: SqliteBackend) -> AsyncIterator[EventHub]:
    hub = EventHub(backend.followed)
    yield hub
    await hub.close()


async def expired(hub: EventHub, position: str) -> bool:
    try:
        async with hub.follow(ALL, caller="a", after=position):
            return False
    except PositionExpired:
        return True


async def position_of(backend: SqliteBackend) -> str:
    """Where the log ends."""
    async with hub_of(backend) as hub, hub.follow(ALL, caller="a") as follower:
        return hub.position_of(follower)


async def test_what_several_processes_do_is_told_once(
    path: Path, backend: SqliteBackend, store: SqliteStore
) -> None:
    """Also to whoever comes back, from any place, when they are all gone."""
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(hub_of(backend))
        follower = await stack.enter_async_context(hub.follow(ALL, caller="a"))
        processes = [
            await stack.enter_async_context(running(path, WORK, name, str(JOBS)))
            for name in WRITERS
        ]
        for one in processes:
            assert await line(one) == "ready"
        await asyncio.gather(*map(finish, processes))
        await backend.enqueue_job(Job(id="last", type="t"))
        news = await told(follower, of("last", "SUBMIT"))
    heard = [(one.job_id, one.event) for one in news]
    ids = [f"{name}-{n}" for name in WRITERS for n in range(JOBS)]
    events = ("SUBMIT", "CLAIM", "COMPLETE")
    assert Counter(heard) == Counter((i, e) for i in ids for e in events) + Counter(heard[-1:])
    for job_id in ids:
        assert [event for name, event in heard if name == job_id] == list(events)
    async with hub_of(await store.open()) as again:
        for place in (0, 1, len(news) // 2, len(news) - 2):
            async with again.follow(ALL, caller="a", after=news[place].id) as follower:
                rest = await told(follower, of("last", "SUBMIT"))
            assert [(one.job_id, one.event) for one in rest] == heard[place + 1 :]


async def test_of_a_process_that_is_killed_each_commit_is_told_once(
    path: Path, backend: SqliteBackend
) -> None:
    async with hub_of(backend) as hub, hub.follow(ALL, caller="a") as follower:
        async with running(path, WORK, "a", "100000") as process:
            assert await line(process) == "ready"
            assert process.stdin is not None
            process.stdin.write(b"\n")
            done = [await line(process) for _ in range(5)]
            await kill(process)
        await backend.enqueue_job(Job(id="last", type="t"))
        news = await told(follower, of("last", "SUBMIT"))
    heard = Counter((one.job_id, one.event) for one in news)
    assert set(heard.values()) == {1}
    assert {(job_id, "COMPLETE") for job_id in done} <= set(heard)
    stored = await backend.read_events(limit=10_000)
    assert len(stored) == len(news)


async def test_a_file_that_is_what_it_was_before_is_noticed(
    path: Path, backend: SqliteBackend, store: SqliteStore, tmp_path: Path
) -> None:
    """A backup was copied over it, and as much happened since as before."""
    backup = tmp_path / "backup.db"
    await backend.enqueue_job(Job(id="old", type="t"))
    early = await position_of(backend)
    await backend.enqueue_job(Job(id="kept", type="t"))
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    kept = await position_of(backend)
    await backend.enqueue_job(Job(id="lost", type="t"))
    late = await position_of(backend)
    await backend.enqueue_job(Job(id="lost-too", type="t"))
    latest = await position_of(backend)
    await backend.close()
    copyfile(backup, path)
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    again = await store.open()
    async with hub_of(again) as hub:
        assert await expired(hub, late)
        assert await expired(hub, latest)
        for n in range(3):
            await again.enqueue_job(Job(id=f"new-{n}", type="t"))
        assert await expired(hub, late)
        assert await expired(hub, latest)
        for after, missed in ((early, ["kept"]), (kept, [])):
            async with hub.follow(ALL, caller="a", after=after) as follower:
                news = await told(follower, of("new-2", "SUBMIT"))
            assert [one.job_id for one in news] == [*missed, "new-0", "new-1", "new-2"]


async def test_a_log_whose_beginning_was_deleted_is_not_read_from_there(
    backend: SqliteBackend, other: sqlite3.Connection
) -> None:
    begun = await position_of(backend)
    await backend.enqueue_job(Job(id="a", type="t"))
    after = await position_of(backend)
    await backend.enqueue_job(Job(id="b", type="t"))
    async with hub_of(backend) as hub:
        assert [await expired(hub, one) for one in (begun, after)] == [False, False]
        other.execute("DELETE FROM event WHERE seq = 1")
        assert [await expired(hub, one) for one in (begun, after)] == [True, True]
        with pytest.raises(PositionExpired, match="begin anew"):
            async with hub.follow(ALL, caller="a", after=begun):
                pass
