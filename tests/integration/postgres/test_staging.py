"""Jobs become due whatever lies before them that cannot."""

import asyncio
from contextlib import suppress
from typing import LiteralString

import psycopg
import pytest
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.test_old_snapshot import pinned
from tests.integration.postgres.watching import watched

from queue_operator.backends.postgres import PostgresBackend, staging
from queue_operator.backends.postgres.driver_errors import TookTooLong
from queue_operator.backends.postgres.pulse import PULSE_S
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import Event, JobState

__all__ = ["pinned"]

# More than are made due at once.
MANY = 1200
TTL_S = 600.0
# So short that the sweeper finds the lease expired.
EXPIRED_S = 0.000001


@pytest.fixture
def dsn(own_dsn: str) -> str:
    return own_dsn


async def delayed(backend: PostgresBackend, prefix: str, count: int, delay_s: float) -> None:
    jobs = [Job(id=f"{prefix}{n}", type=prefix, delay_s=delay_s) for n in range(count)]
    await backend.enqueue_jobs(jobs)


async def lost_on_their_last_attempt(backend: PostgresBackend, count: int) -> None:
    """They wait for a late outcome, and then for a sweep."""
    jobs = [Job(id=f"lost{n}", type="lost", max_attempts=1) for n in range(count)]
    await backend.enqueue_jobs(jobs)
    demand = Demand(assignee_id="w", limit=count)
    assert len(await backend.claim([demand], lease_ttl_s=EXPIRED_S)) == count
    assert len(await backend.expire_leases(lease_ttl_s=TTL_S, limit=count)) == count


async def hour_later(ask: Ask) -> None:
    """As an hour later, for whoever looks for the first time then."""
    for statement in _HOUR_LATER:
        await ask(statement)


_HOUR_LATER: tuple[LiteralString, ...] = (
    "UPDATE ready SET eligible_at = eligible_at - interval '1 hour' WHERE NOT due",
    "UPDATE lease_check SET look_at = look_at - interval '1 hour'",
)


# As a cancel of many that is not over.
_LOCK: LiteralString = (
    "SELECT FROM ready JOIN job USING (job_no) WHERE id LIKE 'held%' FOR UPDATE OF ready"
)


async def claimed(backend: PostgresBackend, kind: str, limit: int = 10) -> list[str]:
    demand = Demand(assignee_id="w", limit=limit, types=frozenset({kind}))
    backend._arrivals.hint()
    return [one.job_id for one in await backend.claim([demand], lease_ttl_s=TTL_S)]


async def test_jobs_without_an_attempt_left_hold_up_nobody(
    backend: PostgresBackend, ask: Ask
) -> None:
    await lost_on_their_last_attempt(backend, MANY)
    await delayed(backend, "later", 1, TTL_S + 60)
    await hour_later(ask)
    # The sweep has looked before.
    backend._staging.look_everywhere()
    assert len(await backend._staging.stage()) == 1
    assert await claimed(backend, "later") == ["later0"]


async def test_jobs_without_an_attempt_left_are_passed_by_once(
    dsn: str, backend: PostgresBackend, ask: Ask
) -> None:
    await lost_on_their_last_attempt(backend, MANY)
    await hour_later(ask)
    async with watched(dsn, plans="auto") as (looking, seen):
        assert await looking._staging.stage() == []
        assert seen.rows >= MANY, str(seen)
        for _ in range(3):
            seen.clear()
            assert await looking._staging.stage() == []
            assert seen.rows <= 10, str(seen)


async def test_jobs_without_an_attempt_left_are_given_up_by_the_next_sweep(
    backend: PostgresBackend, ask: Ask
) -> None:
    """All of them, though they are more than fit into one transaction."""
    await lost_on_their_last_attempt(backend, 2 * MANY)
    await hour_later(ask)
    await delayed(backend, "later", 1, 60)
    assert await backend.expire_leases(lease_ttl_s=TTL_S) == []
    assert await ask("SELECT state FROM ready") == [("INITIAL_PENDING",)]
    assert await ask("SELECT DISTINCT state FROM final") == [("DEAD_LETTER",)]


async def test_a_job_that_got_another_attempt_runs_though_it_was_passed_by(
    dsn: str, backend: PostgresBackend, ask: Ask
) -> None:
    await lost_on_their_last_attempt(backend, 1)
    await hour_later(ask)
    looking = await PostgresBackend.open(dsn)
    assert await looking._staging.stage() == []
    await backend.expire_leases(lease_ttl_s=TTL_S)
    [settled] = await backend.settle([Outcome("lost0", Event.RETRY_NOW)])
    assert settled.state is JobState.FAILED_RETRY
    assert await claimed(looking, "lost") == ["lost0"]
    await looking.close()


async def test_jobs_that_somebody_has_locked_hold_up_nobody(
    backend: PostgresBackend, somebody: psycopg.AsyncConnection, ask: Ask
) -> None:
    await delayed(backend, "held", MANY, 60)
    await delayed(backend, "later", 3, 61)
    await hour_later(ask)
    await somebody.execute(_LOCK)
    assert len(await backend._staging.stage()) == 3
    assert sorted(await claimed(backend, "later")) == ["later0", "later1", "later2"]


async def test_jobs_that_were_locked_become_due_when_the_lock_is_gone(
    backend: PostgresBackend, somebody: psycopg.AsyncConnection, ask: Ask
) -> None:
    await delayed(backend, "held", 2, 60)
    await delayed(backend, "later", MANY, 61)
    await hour_later(ask)
    await somebody.execute(_LOCK)
    staged = [len(await backend._staging.stage()) for _ in range(3)]
    assert staged == [1000, MANY - 1000, 0]
    await somebody.rollback()
    assert len(await backend._staging.stage()) == 2
    assert sorted(await claimed(backend, "held")) == ["held0", "held1"]


async def test_as_many_as_can_be_made_due_at_once_leave_none_behind(
    backend: PostgresBackend, ask: Ask
) -> None:
    """Of one time all, of which the look may stop in the middle."""
    await delayed(backend, "later", 2 * MANY, 60)
    await hour_later(ask)
    staged = [len(await backend._staging.stage()) for _ in range(4)]
    assert staged == [1000, 1000, 400, 0]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_look_that_is_over_after_all_is_looked_through_anew_leaves_nothing_out(
    backend: PostgresBackend, other: PostgresBackend, ask: Ask, fails: bool
) -> None:
    """It went on from where the one before it ended: what is due before is not in it."""
    staging = backend._staging
    assert await staging.stage() == []
    await delayed(other, "missed", 1, 60)
    await hour_later(ask)
    look = staging.ask()
    staging.look_everywhere()
    staging.leave(look, None if fails else look.parameters["since"])
    assert not staging.is_behind
    assert len(await staging.stage()) == 1


async def test_what_is_told_of_while_a_look_is_under_way_is_looked_for_again(
    backend: PostgresBackend, other: PostgresBackend, ask: Ask
) -> None:
    """Its transaction ended after the look had begun, and its time is over by then."""
    await backend._arrivals.catch_up()
    staging = backend._staging
    look = staging.ask()
    await delayed(other, "meanwhile", 1, EXPIRED_S)
    await backend._arrivals.catch_up(thorough=True)
    [[now]] = await ask("SELECT clock_timestamp()")
    staging.leave(look, now)
    assert len(await staging.stage()) == 1


async def test_of_jobs_that_come_back_together_the_first_that_is_due_is_told_of(
    dsn: str,
    backend: PostgresBackend,
    other: PostgresBackend,
    somebody: psycopg.AsyncConnection,
    ask: Ask,
) -> None:
    """Their transaction ends when another process has looked beyond its time."""
    await other._arrivals.catch_up()
    delays = {"soon": EXPIRED_S, "later": 3600.0}
    await backend.enqueue_jobs(
        [
            Job(id=name, type="t", backoff=Backoff(BackoffStrategy.CONSTANT, initial_delay_s=s))
            for name, s in delays.items()
        ]
    )
    held = await backend.claim([Demand(assignee_id="w", limit=2)], lease_ttl_s=TTL_S)
    failed = [
        Outcome(one.job_id, Event.FAIL, token=one.token, error=ErrorInfo("no")) for one in held
    ]
    # A settlement writes to it, and staging does not.
    await somebody.execute("LOCK TABLE job_event IN SHARE MODE")
    settling = asyncio.create_task(backend.settle(failed))
    await until_waiting(dsn, 1)
    assert await other._staging.stage() == []
    await somebody.commit()
    assert {one.state for one in await settling} == {JobState.FAILED_RETRY}
    await other._arrivals.catch_up(thorough=True)
    assert len(await other._staging.stage()) == 1
    assert await claimed(other, "t") == ["soon"]


async def test_a_beat_that_made_as_many_due_as_it_may_is_followed_by_another_at_once(
    backend: PostgresBackend, ask: Ask
) -> None:
    await delayed(backend, "later", MANY, 60)
    await hour_later(ask)
    assert await backend._pulse._turn() == 0.0
    assert await backend._pulse._turn() == PULSE_S
    assert len(await claimed(backend, "later", MANY)) == MANY


async def test_what_somebody_has_locked_is_not_asked_for_without_a_pause(
    backend: PostgresBackend, somebody: psycopg.AsyncConnection, ask: Ask
) -> None:
    await delayed(backend, "held", 1, 60)
    await hour_later(ask)
    await somebody.execute(_LOCK)
    assert await backend._pulse._turn() == PULSE_S


async def test_the_last_of_many_looks_reads_no_more_than_the_first(pinned: str) -> None:
    """Though what was made due before it lies there for ever."""
    pages: list[int] = []
    async with watched(pinned, plans="auto") as (backend, seen):
        for n in range(30):
            # Over when the next statement begins.
            await delayed(backend, f"t{n}-", 300, 0.000001)
            seen.clear()
            assert len(await backend._staging.stage()) == 300
            pages.append(seen.pages)
        seen.clear()
        assert await backend._staging.stage() == []
        idle = seen.pages
    assert idle <= 20, str(seen)
    assert pages[-1] <= pages[2] * 1.2, pages


async def test_staging_looks_in_pieces_where_more_is_dead_than_it_has_the_time_for(
    dsn: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.enqueue_job(Job(id="j", type="t", delay_s=0.001))
    where = "WHERE NOT due AND NOT blocked AND eligible_at >= %(since)s"
    sleep = "SELECT pg_sleep(9) WHERE %(until)s - %(since)s > interval '9 h' AND %(until)s > now()"
    assert where in staging._STAGE
    slow = staging._STAGE.replace(where, f"{where} AND (SELECT count(*) FROM ({sleep}) s) >= 0")
    monkeypatch.setattr(staging, "_STAGE", slow)
    fresh = await PostgresBackend.open(dsn, statement_timeout_s=0.2)
    staged, tries = list[int](), 0
    while not staged and tries < 30:
        tries += 1
        with suppress(Unavailable):
            staged = await fresh._staging.stage()
    assert len(staged) == 1
    assert tries > 2
    await fresh.close()


async def test_staging_that_takes_too_long_is_no_error_of_a_claim(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind an old snapshot, in a process that does not listen."""

    async def too_slow() -> list[int]:
        raise TookTooLong("too slow")

    monkeypatch.setattr(backend._staging, "stage", too_slow)
    assert await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=60.0) == []
    await backend.enqueue_job(Job(id="a", type="t"))
    assert [job.id for job in await backend.dequeue_jobs("w", [], 2)] == ["a"]
