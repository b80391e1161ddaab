"""Everything through a real PgBouncer in transaction mode, with fewer connections to the server
than there are clients, so that each transaction may meet another session.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, Final

import psycopg
import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.every_call import EVERY
from tests.integration.postgres.pooler import SERVER_CONNECTIONS, pooled
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.migrate import migrations
from queue_operator.backends.protocol import FailureSearch, JobSearch, News, Topic
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import QueueError, Unavailable
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.lease import Held, LeaseStatus
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState

TTL_S: Final = 60.0
# As often as the driver would need to prepare a statement, and more.
ROUNDS: Final = 8


@pytest.fixture(scope="module")
def pooler(dsn: str) -> Iterator[str]:
    with pooled(dsn) as address:
        yield address


@pytest.fixture
async def backends(pooler: str) -> AsyncIterator[list[PostgresBackend]]:
    """Three, with four connections each to the pooler, which has three to the server."""
    opened = [await PostgresBackend.open(pooler, pool_size=4, pooler=True) for _ in range(3)]
    yield opened
    await asyncio.gather(*(backend.close() for backend in opened))


async def test_left_unsaid_a_pooler_in_transaction_mode_is_refused(pooler: str) -> None:
    with pytest.raises(Unavailable, match=r"set database\.pooler to true"):
        await PostgresBackend.open(pooler)


async def test_a_pooler_in_session_mode_is_as_good_as_none(
    dsn: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "queue_operator")
    with pooled(dsn, mode="session") as address:
        backend = await PostgresBackend.open(address, pool_size=2)
        assert "unless it works in session mode" in caplog.text
        for n in range(ROUNDS):
            await backend.enqueue_job(Job(id=f"{n}", type="t", namespace=namespace))
        await backend.close()


async def test_several_backends_share_few_sessions_and_no_job_is_lost_or_run_twice(
    backends: list[PostgresBackend], namespace: str, ask: Ask
) -> None:
    ids = [[f"{b}-{n}" for n in range(100)] for b in range(len(backends))]

    async def submit(backend: PostgresBackend, mine: list[str]) -> None:
        jobs = [Job(id=i, type="t", namespace=namespace) for i in mine]
        await backend.enqueue_jobs(jobs[:60])
        await asyncio.gather(*(backend.enqueue_job(job) for job in jobs[60:]))

    done: list[str] = []

    async def work(backend: PostgresBackend, worker: str) -> None:
        demand = Demand(assignee_id=worker, limit=7, namespace=namespace)
        while claimed := await backend.claim([demand], lease_ttl_s=TTL_S):
            outcomes = [
                Outcome(a.job_id, Event.COMPLETE, namespace=namespace, token=a.token, result=b"r")
                for a in claimed
            ]
            answers = await backend.settle(outcomes)
            assert [answer.error for answer in answers] == [None] * len(claimed)
            done.extend(a.job_id for a in claimed)

    await asyncio.gather(*(submit(b, mine) for b, mine in zip(backends, ids, strict=True)))
    workers = [(b, f"w-{n}") for n, b in enumerate([*backends, *backends])]
    await asyncio.gather(*(work(backend, name) for backend, name in workers))
    assert sorted(done) == sorted(i for mine in ids for i in mine)
    stats = await backends[0].get_job_stats([], namespace=namespace)
    assert (stats.total_jobs, stats.completed_jobs) == (300, 300)
    assert len(await _sessions(ask)) <= SERVER_CONNECTIONS


async def _sessions(ask: Ask) -> list[Any]:
    return await ask(
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'queue-operator'"
    )


async def test_a_whole_life_through_the_pooler(
    backends: list[PostgresBackend], namespace: str
) -> None:
    one, two, three = backends

    async def take(backend: PostgresBackend) -> Held:
        demand = Demand(assignee_id="w", limit=1, namespace=namespace)
        [claimed] = await backend.claim([demand], lease_ttl_s=TTL_S)
        return Held(claimed.job_id, claimed.token, namespace)

    def a_job(job_id: str, **fields: Any) -> Job:
        return Job(id=job_id, type="t", namespace=namespace, **fields)

    for n in range(ROUNDS):
        key = f"key-{n}"
        job_id = await one.enqueue_job(a_job(f"a-{n}", idempotency_key=key))
        assert await two.enqueue_job(a_job(f"b-{n}", idempotency_key=key)) == job_id
        child = a_job(f"child-{n}", depends_on=(job_id,), dependency_mode=DependencyMode.CHAIN)
        await three.enqueue_job(child)
        held = await take(two)
        [lease] = await three.extend_leases([held], lease_ttl_s=TTL_S)
        assert lease.status is LeaseStatus.CURRENT
        await one.complete_job(job_id, b"r", namespace=namespace, token=held.token)
        freed = await take(three)
        assert freed.job_id == child.id
        failed = Outcome(
            child.id, Event.FAIL, namespace=namespace, token=freed.token, error=ErrorInfo("boom")
        )
        [answer] = await two.settle([failed])
        assert answer.state is JobState.FAILED_RETRY
        cancelled = await one.cancel_jobs([], [child.id], namespace=namespace)
        assert cancelled.cancelled_job_ids == (child.id,)
        await two.expire_leases(lease_ttl_s=TTL_S)
        found = await three.search_jobs(JobSearch(namespace=namespace, types=frozenset({"t"})))
        assert found.total_count == 2 * (n + 1)
        await three.search_failures(FailureSearch(namespace=namespace))
        history = await one.get_history(child.id, namespace=namespace)
        assert [record.after for record in history.transitions][-1] is JobState.STOPPED


async def test_every_call_leaves_the_sessions_as_they_were(
    pooler: str, backends: list[PostgresBackend]
) -> None:
    for n in range(ROUNDS):
        for name, call in EVERY.items():
            try:
                await call(backends[n % 3], f"{name}-{n}-{uuid.uuid4().hex}")
            except Unavailable:
                raise
            except QueueError:
                continue
    for prepared, path, scan, held in await _look_at_all_sessions(pooler):
        assert (prepared, path, scan, held) == (0, '"$user", public', "on", 0)


_LOOK: Final = """
SELECT (SELECT count(*) FROM pg_prepared_statements), current_setting('search_path'),
       current_setting('enable_seqscan'),
       (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')
"""


async def _look_at_all_sessions(pooler: str) -> list[tuple[Any, ...]]:
    """What a stranger finds on each of the server's sessions."""
    together = asyncio.Barrier(SERVER_CONNECTIONS)

    async def look() -> tuple[Any, ...]:
        connection = await psycopg.AsyncConnection.connect(pooler, prepare_threshold=None)
        async with connection, connection.transaction():
            row = await (await connection.execute(_LOOK)).fetchone()
            # Each waits in its transaction, so that the next gets another session.
            await together.wait()
        assert row is not None
        return row

    return await asyncio.gather(*(look() for _ in range(SERVER_CONNECTIONS)))


def listening_to(backend: PostgresBackend) -> AsyncGenerator[News, None]:
    topics = backend.listen()
    assert isinstance(topics, AsyncGenerator)
    return topics


_LINES: Final = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'queue-operator-listen'"
)


@pytest.mark.parametrize("direct", [True, False], ids=["notified", "polling"])
async def test_who_waits_is_woken_with_a_line_of_its_own_and_without(
    dsn: str, pooler: str, namespace: str, ask: Ask, direct: bool
) -> None:
    waiter = await PostgresBackend.open(pooler, pooler=True, listen_dsn=dsn if direct else None)
    submitter = await PostgresBackend.open(pooler, pooler=True)
    demand = Demand(assignee_id="w", limit=1, namespace=namespace)
    async with aclosing(listening_to(waiter)) as topics:
        assert Topic.READY in await anext(topics)
        while len(await ask(_LINES)) < int(direct):
            await anext(topics)
        await submitter.enqueue_job(Job(id="a", type="t", namespace=namespace))
        claimed: list[Assignment] = []
        while not claimed:
            if Topic.READY in await anext(topics):
                claimed = await waiter.claim([demand], lease_ttl_s=TTL_S)
        assert [one.job_id for one in claimed] == ["a"]
        assert len(await ask(_LINES)) == int(direct)
    await waiter.close()
    await submitter.close()


async def test_the_notification_itself_passes_the_pooler(
    dsn: str, backends: list[PostgresBackend], namespace: str
) -> None:
    """Polling would wake whoever waits too, a quarter of a second later."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as line:
        await line.execute("LISTEN queue_operator")
        await backends[0].enqueue_job(Job(id="a", type="t", namespace=namespace))
        async for notice in line.notifies(timeout=DEADLINE_S, stop_after=1):
            assert "ready" in notice.payload
            return
    pytest.fail("nothing was heard")


async def test_migrations_run_through_the_pooler(new_database: Callable[[], str]) -> None:
    names = [migration.name for migration in migrations()]
    with pooled(new_database()) as address:
        done = await asyncio.gather(*(migrate(address) for _ in range(3)))
        assert sorted(name for applied in done for name in applied) == names
        assert await migrate(address) == []
        backend = await PostgresBackend.open(address, pooler=True)
        await backend.ping()
        await backend.close()
