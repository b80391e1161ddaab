"""What was answered is on the disk: a server that is killed in mid-work, by a signal that nobody
can catch, comes back with all of it; and the settings that make it so hold on every connection.
"""

import asyncio
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Final

import psycopg
import pytest
from tests.integration.postgres.pair import HOST, free_ports
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.connection import LONG_S, borrowed, transaction
from queue_operator.devcluster import Postgres
from queue_operator.devcluster.processes import wait_until
from queue_operator.domain.errors import JobNotFound, Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.clauses import proves

TTL_S: Final = 600.0
ENOUGH: Final = 60
CLIENTS: Final = 4
# Left to itself the server would write what nobody waited for soon enough to hide the mistake.
LAZY: Final = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "autovacuum": "off"}
EVENTS: Final = (Event.COMPLETE, Event.FAIL, Event.STOP)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server of this module's own, in a folder that its user can reach."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="queue-operator-durable-"))
    folder.chmod(0o755)
    [port] = free_ports(1)
    made = Postgres(folder / "server", HOST, port, settings=LAZY)
    try:
        made.start()
        asyncio.run(migrate(made.dsn))
        yield made
    finally:
        made.kill()
        shutil.rmtree(folder)


Open = Callable[..., Awaitable[PostgresBackend]]


@pytest.fixture
async def opened(server: Postgres) -> AsyncIterator[Open]:
    made: list[PostgresBackend] = []

    async def opening(*, pooler: bool = False) -> PostgresBackend:
        made.append(await PostgresBackend.open(server.dsn, pool_size=CLIENTS, pooler=pooler))
        return made[-1]

    yield opening
    for backend in made:
        await backend.close()


def kill_at_once(server: Postgres) -> None:
    """SIGKILL to all processes of the server; none gets to write anything any more."""
    first = server.pid()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    for process in server._processes():
        os.kill(process.pid, signal.SIGKILL)
    # As long as its number is in use the next server takes it for one that runs.
    wait_until(lambda: not Path(f"/proc/{first}").exists(), "the server is gone", timeout_s=30)


@dataclass
class Told:
    """What callers were told became of each job, the newest."""

    states: dict[str, JobState] = field(default_factory=dict)
    results: dict[str, bytes] = field(default_factory=dict)
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, job_id: str, state: JobState) -> None:
        self.states[job_id] = state
        if sum(state is JobState.COMPLETED for state in self.states.values()) >= ENOUGH:
            self.more.set()


async def work(backend: PostgresBackend, name: str, told: Told) -> None:
    """Submits, claims and ends jobs, and cancels some, until the server is gone."""
    turn = 0
    try:
        while True:
            turn += 1
            await one_turn(backend, f"{name}-{turn}", told)
    except Unavailable:
        return


async def one_turn(backend: PostgresBackend, name: str, told: Told) -> None:
    names = [f"{name}-{n}" for n in range(6)]
    tags = frozenset({name})
    for job_id in await backend.enqueue_jobs([Job(id=i, type="t", tags=tags) for i in names]):
        told.note(job_id, JobState.INITIAL_PENDING)
    demand = Demand(assignee_id=name, limit=4, tags=tags)
    taken = await backend.claim([demand], lease_ttl_s=TTL_S)
    for one in taken:
        told.note(one.job_id, JobState.RUNNING)
    for one, event in zip(taken, EVENTS, strict=False):
        result = one.job_id.encode() if event is Event.COMPLETE else None
        error = None if event is Event.COMPLETE else ErrorInfo("no")
        outcome = Outcome(one.job_id, event, token=one.token, result=result, error=error)
        [answer] = await backend.settle([outcome])
        assert answer.state is not None
        told.results[one.job_id] = result or b""
        told.note(one.job_id, answer.state)
    cancelled = await backend.cancel_jobs([], names[-1:])
    for job_id in cancelled.cancelled_job_ids:
        told.note(job_id, JobState.UNSCHEDULED)


async def stored(backend: PostgresBackend, job_id: str) -> JobState | None:
    try:
        return (await backend.get_job(job_id)).state
    except JobNotFound:
        return None


def could_follow(told: JobState, found: JobState | None) -> bool:
    """The last call of a client may have been carried out without an answer."""
    later = {
        JobState.INITIAL_PENDING: {JobState.RUNNING, JobState.UNSCHEDULED},
        JobState.RUNNING: {JobState.COMPLETED, JobState.FAILED_RETRY, JobState.STOPPED},
    }
    return found is told or found in later.get(told, set())


@proves(
    "queue-semantics.Durability.rule.1",
    "queue-semantics.Durability.rule.2",
    "backend-api.ImplementationGuidelines.must.3",
    "backend-api.TestingRequirements.must.7",
)
async def test_a_server_killed_in_mid_work_comes_back_with_all_that_was_answered(
    server: Postgres, opened: Open
) -> None:
    told, before = Told(), await opened()
    async with asyncio.TaskGroup() as clients:
        for n in range(CLIENTS):
            clients.create_task(work(before, f"client-{n}", told))
        await told.more.wait()
        kill_at_once(server)
    await asyncio.to_thread(server.start)
    after = await opened()
    found = {job_id: await stored(after, job_id) for job_id in told.states}
    lost = {n: (was, found[n]) for n, was in told.states.items() if not could_follow(was, found[n])}
    assert lost == {}
    # All that a client had nothing under way for is exactly as it was told.
    assert sum(found[n] is not was for n, was in told.states.items()) <= CLIENTS * 6
    done = [n for n, was in told.states.items() if was is JobState.COMPLETED]
    assert [n for n in done if (await after.get_job(n)).result != told.results[n]] == []
    # And its counts are those of its jobs.
    stats = await after.get_job_stats([])
    assert stats.completed_jobs >= ENOUGH
    assert stats.total_jobs >= len(told.states)


@proves("backend-api.TestingRequirements.must.7")
@pytest.mark.parametrize("pooler", [False, True], ids=["direct", "pooler"])
async def test_connections_that_store_jobs_wait_for_the_disk(opened: Open, pooler: bool) -> None:
    backend = await opened(pooler=pooler)
    pool = backend._pool
    await backend.enqueue_job(Job(id=f"first-{pooler}", type="t"))
    settings: list[tuple[object, ...]] = []
    for making in (borrowed(pool), transaction(pool), transaction(pool, LONG_S)):
        async with making as connection:
            for name in ("synchronous_commit", "fsync", "full_page_writes"):
                cursor = await connection.execute("SELECT current_setting(%s)", (name,))
                settings += await cursor.fetchall()
    assert settings == [("on",)] * 9


def test_only_announcements_and_notes_on_messages_do_not_wait_for_the_disk() -> None:
    """What is lost of the latter in a crash is that a message was due, claimed or told: it is sent
    once more under its id.
    """
    package = Path(str(files("queue_operator.backends.postgres")))
    sources = [path for kind in ("*.py", "*.sql") for path in package.rglob(kind)]
    words = ("synchronous_commit", "fsync", "full_page_writes", "UNLOGGED")
    saying = {path.name for path in sources if any(word in path.read_text() for word in words)}
    assert saying == {"signal_announce.sql", "webhook_soon.sql"}


async def test_an_announcement_leaves_the_connection_as_it_was(opened: Open) -> None:
    backend = await opened()
    news = backend.listen()
    await anext(news)
    async with borrowed(backend._pool) as connection:
        [[before]] = await (await connection.execute("SELECT pg_backend_pid()")).fetchall()
    await backend.enqueue_job(Job(id="told", type="t"))
    await anext(news)
    together = asyncio.Barrier(CLIENTS)
    left = dict(await asyncio.gather(*(_held(backend, together) for _ in range(CLIENTS))))
    assert before in left
    assert set(left.values()) == {"on"}


async def _held(backend: PostgresBackend, together: asyncio.Barrier) -> tuple[int, str]:
    """One of the pool's connections and what holds on it, while others hold the rest."""
    async with borrowed(backend._pool) as connection:
        await together.wait()
        query = "SELECT pg_backend_pid(), current_setting('synchronous_commit')"
        [(pid, setting)] = await (await connection.execute(query)).fetchall()
    return pid, setting


async def test_after_a_crash_within_the_server_it_is_another_history(
    opened: Open, server: Postgres
) -> None:
    """Its first process lives on, and gives numbers of transactions a second time."""
    backend = await opened()
    await backend.enqueue_job(Job(id=uuid.uuid4().hex, type="t"))
    await backend._arrivals.catch_up(thorough=True)
    before = backend._arrivals._read
    assert before is not None
    first = server.pid()
    with psycopg.connect(server.dsn) as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
    origin = before.history
    async with asyncio.timeout(DEADLINE_S):
        while origin == before.history:
            with suppress(Unavailable):
                await backend._arrivals.catch_up(thorough=True)
                origin = backend._arrivals._read.history if backend._arrivals._read else origin
    assert server.pid() == first
