"""A server that is not there, or goes away."""

import asyncio
import time
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.postgres.connection import borrowed, open_pool
from queue_operator.domain.errors import AccessRefused, MissingPrivilege, Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState

PROMPT_S = 3.0


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        ({"port": "1"}, Unavailable, "refused"),
        ({"dbname": "no_such_database"}, AccessRefused, "no_such_database"),
        ({"password": "wrong"}, AccessRefused, "password authentication failed"),
        ({"user": "nobody_knows"}, AccessRefused, "authentication failed"),
    ],
)
async def test_opening_says_at_once_why_the_server_does_not_answer(
    dsn: str, change: dict[str, str], kind: type[Unavailable], reason: str
) -> None:
    address = make_conninfo(**{**conninfo_to_dict(dsn), **change})  # type: ignore[arg-type]
    for attempt in (PostgresBackend.open, migrate):
        started = time.monotonic()
        with pytest.raises(Unavailable, match=reason) as raised:
            await attempt(address)
        assert type(raised.value) is kind
        assert time.monotonic() - started < PROMPT_S


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("CONNECTION LIMIT 0", "no connection left for this user: .*too many connections for role"),
        (
            "SET default_transaction_read_only = on",
            "takes no writes: .*session is read-only.*if default_transaction_read_only is on",
        ),
    ],
    ids=["none left", "read-only"],
)
async def test_opening_says_what_the_server_does_not_let_this_user_have(
    own_dsn: str, change: LiteralString, reason: str
) -> None:
    with psycopg.connect(own_dsn, autocommit=True) as admin:
        admin.execute("CREATE ROLE queue_limited LOGIN PASSWORD 'p'")
        try:
            await migrate(own_dsn, grant_to="queue_limited")
            address = make_conninfo(own_dsn, user="queue_limited", password="p")
            await (await PostgresBackend.open(address)).close()
            admin.execute(sql.SQL("ALTER ROLE queue_limited {}").format(sql.SQL(change)))
            for attempt in (PostgresBackend.open, migrate):
                with pytest.raises(Unavailable, match=reason):
                    await attempt(address)
        finally:
            admin.execute("DROP OWNED BY queue_limited; DROP ROLE queue_limited")


async def test_a_connection_that_cannot_be_used_says_why(own_dsn: str) -> None:
    """It is there, and what is asked of each new one first is refused."""
    with psycopg.connect(own_dsn, autocommit=True) as admin:
        admin.execute("CREATE ROLE queue_unsettled LOGIN PASSWORD 'p'")
        try:
            await migrate(own_dsn, grant_to="queue_unsettled")
            address = make_conninfo(own_dsn, user="queue_unsettled", password="p")
            backend = await PostgresBackend.open(address, connect_timeout_s=1.0)
            admin.execute("REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn FROM PUBLIC")
            await backend._pool.drain()
            with pytest.raises(MissingPrivilege, match="permission denied for function"):
                await backend.ping()
            admin.execute("GRANT EXECUTE ON FUNCTION pg_current_wal_lsn TO PUBLIC")
            await backend.close()
        finally:
            admin.execute("DROP OWNED BY queue_unsettled; DROP ROLE queue_unsettled")


async def test_a_call_during_an_outage_says_why_there_is_no_connection(dsn: str) -> None:
    backend = await PostgresBackend.open(dsn, connect_timeout_s=1.0)
    # As after a server that went away: the address leads to nobody.
    backend._pool.conninfo = make_conninfo(dsn, port="1")
    await backend._pool.drain()
    with pytest.raises(Unavailable, match=r"cannot be reached: .*refused"):
        await backend.ping()
    backend._pool.conninfo = dsn
    await backend.close()


async def test_a_call_that_waits_for_others_says_so(dsn: str) -> None:
    pool = await open_pool(dsn, size=1, connect_timeout_s=0.1, statement_timeout_s=5)

    async def second() -> None:
        async with borrowed(pool):
            pass

    async with borrowed(pool):
        with pytest.raises(Unavailable, match="all 1 were in use, or it does"):
            await second()
    await pool.close()


def _terminate_all(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as admin:
        return len(
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
        )


async def test_calls_work_again_after_every_connection_was_cut(
    dsn: str, backend: PostgresBackend, namespace: str
) -> None:
    for round_ in range(3):
        # Several connections of the pool are open, and all of them are cut.
        await asyncio.gather(*(backend.ping() for _ in range(5)))
        assert await asyncio.to_thread(_terminate_all, dsn) > 0
        job = Job(id=f"after-{round_}", type="t", namespace=namespace)
        try:
            await backend.enqueue_job(job)
        except Unavailable:
            await backend.enqueue_job(job)
        [claimed] = await backend.dequeue_jobs("w", [], 1, namespace=namespace)
        assert claimed.id == job.id
        assert await backend.complete_job(job.id, b"", namespace=namespace) == {"w": 1}


async def test_a_connection_cut_within_a_call_is_reported_and_leaves_nothing_half_done(
    dsn: str, backend: PostgresBackend, namespace: str
) -> None:
    await backend.enqueue_job(Job(id="a", type="t", namespace=namespace))
    await backend.dequeue_jobs("w", [], 1, namespace=namespace)
    with psycopg.connect(dsn) as holder:
        # The outcome waits for this lock when its connection is cut.
        holder.execute("SET search_path = queue_operator")
        holder.execute("SELECT 1 FROM lease FOR UPDATE")
        stop = Outcome("a", Event.STOP, namespace=namespace)
        settling = asyncio.create_task(backend.settle([stop]))
        await asyncio.to_thread(_terminate_waiting, dsn)
        with pytest.raises(Unavailable, match="terminating connection"):
            await settling
    assert (await backend.get_job("a", namespace=namespace)).state is JobState.RUNNING
    [answer] = await backend.settle([stop])
    assert answer.state is JobState.STOPPED


def _terminate_waiting(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        while not admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchall():
            pass
