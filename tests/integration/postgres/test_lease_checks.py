"""What is due is found whoever renews, sweeps or commits late meanwhile, and nothing else is."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from tests.integration.postgres import calls
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.proxy import Proxy, proxied
from tests.integration.postgres.watching import watched

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres import sweeping as parts
from queue_operator.backends.sql import load
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.lease import Held, LeaseStatus
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState

# So short that the sweeper finds the lease expired.
EXPIRED_S = 0.000001
# A sweep that comes later than this after the one before takes it for an outage.
TTL_S = 600.0
JOBS = 6
WAITING = [f"w-{n}" for n in range(2000)]
# For so long, halved, a sweep waits for that of another replica.
IMPATIENT_S = 0.5


@pytest.fixture
def dsn(own_dsn: str) -> str:
    """A sweep takes what is due in all of it."""
    return own_dsn


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[tuple[Proxy, PostgresBackend]]:
    """A backend whose calls can be stopped in the middle."""
    async with proxied(dsn) as (proxy, address):
        backend = await PostgresBackend.open(address)
        yield proxy, backend
        await backend.close()


async def taken(backend: PostgresBackend, ttl_s: float) -> list[Assignment]:
    await backend.enqueue_jobs([Job(id=f"{n}", type="t") for n in range(JOBS)])
    claimed = await backend.claim([Demand(assignee_id="w", limit=JOBS)], lease_ttl_s=ttl_s)
    assert len(claimed) == JOBS
    return claimed


async def swept(backend: PostgresBackend) -> set[str]:
    return {one.job_id for one in await backend.expire_leases(lease_ttl_s=TTL_S)}


def held(claimed: list[Assignment]) -> list[Held]:
    return [Held(one.job_id, one.token) for one in claimed]


async def renew(
    somebody: psycopg.AsyncConnection[tuple[Any, ...]], claimed: list[Assignment]
) -> None:
    """As a heartbeat, whose transaction stays open."""
    parameters = {
        "namespaces": [1] * len(claimed),
        "ids": [one.job_id for one in claimed],
        "tokens": [one.token for one in claimed],
        "ttl_s": TTL_S,
    }
    statement = load("queue_operator.backends.postgres", "lease_extend")
    renewed = await (await somebody.execute(statement, parameters)).fetchall()
    assert len(renewed) == len(claimed)


# Renewals


async def test_a_renewal_answered_between_look_and_lock_keeps_the_lease(
    line: tuple[Proxy, PostgresBackend], backend: PostgresBackend
) -> None:
    proxy, sweeper = line
    claimed = await taken(backend, EXPIRED_S)
    proxy.stop_after(b"-- Takes what is due")
    sweeping = asyncio.create_task(swept(sweeper))
    await proxy.until_stopped()
    answers = await backend.extend_leases(held(claimed[:2]), lease_ttl_s=TTL_S)
    assert {one.status for one in answers} == {LeaseStatus.CURRENT}
    proxy.go_on()
    assert await sweeping == {one.job_id for one in claimed[2:]}
    assert await swept(backend) == set()
    assert (await backend.get_job("0")).state is JobState.RUNNING


@pytest.mark.parametrize("goes_through", [True, False])
async def test_a_renewal_under_way_is_waited_for_by_the_next_sweep(
    backend: PostgresBackend,
    somebody: psycopg.AsyncConnection[tuple[Any, ...]],
    goes_through: bool,
) -> None:
    claimed = await taken(backend, EXPIRED_S)
    renewing, rest = claimed[:2], {one.job_id for one in claimed[2:]}
    await renew(somebody, renewing)
    assert await swept(backend) == rest
    await (somebody.commit() if goes_through else somebody.rollback())
    lost = set() if goes_through else {one.job_id for one in renewing}
    assert await swept(backend) == lost


async def test_a_renewal_that_began_before_the_look_and_is_answered_before_the_lock_counts(
    line: tuple[Proxy, PostgresBackend],
    backend: PostgresBackend,
    somebody: psycopg.AsyncConnection[tuple[Any, ...]],
) -> None:
    proxy, sweeper = line
    claimed = await taken(backend, EXPIRED_S)
    await renew(somebody, claimed[:2])
    # A younger transaction has ended by then.
    await backend.enqueue_job(Job(id="younger", type="other"))
    proxy.stop_after(b"-- Takes what is due")
    sweeping = asyncio.create_task(swept(sweeper))
    await proxy.until_stopped()
    await somebody.commit()
    proxy.go_on()
    assert await sweeping == {one.job_id for one in claimed[2:]}
    assert await swept(backend) == set()
    assert (await backend.get_job("0")).state is JobState.RUNNING


async def test_only_what_a_heartbeat_names_is_renewed(backend: PostgresBackend) -> None:
    claimed = await taken(backend, EXPIRED_S)
    await backend.extend_leases(held(claimed[::2]), lease_ttl_s=TTL_S)
    assert await swept(backend) == {one.job_id for one in claimed[1::2]}


# What came late


@pytest.mark.parametrize("wrote_before", [True, False])
async def test_what_commits_after_the_sweep_has_passed_by_is_found(
    backend: PostgresBackend,
    somebody: psycopg.AsyncConnection[tuple[Any, ...]],
    wrote_before: bool,
) -> None:
    """Its time is that of the beginning of its transaction, which the mark is beyond by then."""
    await taken(backend, TTL_S)
    moved = "INSERT INTO lease_check (kind, look_at, leases) SELECT 'CLAIM', now(), leases FROM"
    await somebody.execute("SELECT now()")
    if wrote_before:
        await somebody.execute(f"WITH gone AS (DELETE FROM lease_check RETURNING *) {moved} gone")
    assert await swept(backend) == set()
    if not wrote_before:
        await somebody.execute(f"WITH gone AS (DELETE FROM lease_check RETURNING *) {moved} gone")
    assert await swept(backend) == set()
    await somebody.commit()
    assert len(await swept(backend)) == JOBS
    assert await backend.leased(["w"]) == []


async def test_a_clock_that_was_put_back_hides_no_lease(
    backend: PostgresBackend, somebody: psycopg.AsyncConnection[tuple[Any, ...]]
) -> None:
    assert await swept(backend) == set()
    ahead = "UPDATE sweep SET marks = ARRAY(SELECT m + interval '1 hour' FROM unnest(marks) AS m)"
    await somebody.execute(ahead)
    await somebody.commit()
    claimed = await taken(backend, TTL_S)
    assert len(await backend.leased(["w"])) == JOBS
    await backend.extend_leases(held(claimed[:3]), lease_ttl_s=EXPIRED_S)
    assert await swept(backend) == {one.job_id for one in claimed[:3]}
    await backend.extend_leases(held(claimed[3:]), lease_ttl_s=EXPIRED_S)
    assert len(await swept(backend)) == 3


async def test_a_clock_that_was_ahead_keeps_no_lease_running(
    backend: PostgresBackend, somebody: psycopg.AsyncConnection[tuple[Any, ...]]
) -> None:
    assert await swept(backend) == set()
    ahead = (
        "UPDATE sweep SET swept_at = now() + interval '1 h', resumed_at = now() + interval '1 h'"
    )
    await somebody.execute(ahead)
    await somebody.commit()
    await taken(backend, EXPIRED_S)
    # Workers have one TTL from the first sweep on.
    assert await swept(backend) == set()
    reading = await somebody.execute("SELECT resumed_at <= now() FROM sweep")
    assert await reading.fetchall() == [(True,)]
    await somebody.execute("UPDATE sweep SET resumed_at = resumed_at - interval '1 h'")
    await somebody.commit()
    assert len(await swept(backend)) == JOBS


async def test_a_restored_copy_looks_at_everything(
    backend: PostgresBackend, somebody: psycopg.AsyncConnection[tuple[Any, ...]]
) -> None:
    """Its sweeper's snapshot counts transactions of another database."""
    await taken(backend, EXPIRED_S)
    await somebody.execute(
        "UPDATE sweep SET kinds = '{CLAIM}', marks = ARRAY[now() + interval '1 hour'],"
        " seen = '99999999:99999999:', seen_at = now()"
    )
    await somebody.commit()
    assert len(await swept(backend)) == JOBS


async def test_after_a_long_time_without_sweeps_what_came_late_is_still_found(
    backend: PostgresBackend, somebody: psycopg.AsyncConnection[tuple[Any, ...]]
) -> None:
    assert await swept(backend) == set()
    await taken(backend, EXPIRED_S)
    # As if the claim had begun before the last sweep, which is long ago.
    await somebody.execute(
        "UPDATE sweep SET seen_at = now() - interval '2 minutes',"
        " marks = ARRAY(SELECT now() + interval '1 minute' FROM unnest(marks))"
    )
    await somebody.commit()
    assert len(await swept(backend)) == JOBS


async def test_what_is_due_at_one_time_is_found_however_little_a_look_takes(
    backend: PostgresBackend, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_MAX_ROWS", 2)
    await backend.enqueue_jobs([Job(id=f"{n}", type="t") for n in range(JOBS)])
    for _ in range(JOBS):
        await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=TTL_S)
    await ask("UPDATE lease_check SET look_at = now()")
    assert len(await swept(backend)) == JOBS


# For one TTL after an outage no lease may be taken as expired.

# The sweep after an outage has taken what had ended before; those of the next TTL take nothing.
_JUST_RESUMED = "UPDATE sweep SET resumed_at = now()"
_MARK = "SELECT marks[array_position(kinds, 'CLAIM')] FROM sweep"
_OVER = "UPDATE sweep SET resumed_at = resumed_at - interval '1 hour'"


async def test_what_runs_out_while_no_lease_may_expire_is_found_afterwards(
    backend: PostgresBackend, ask: Ask
) -> None:
    await taken(backend, TTL_S)
    assert await swept(backend) == set()
    await ask("UPDATE lease_check SET look_at = now()")
    await ask(_JUST_RESUMED)
    [(mark,)] = await ask(_MARK)
    assert await swept(backend) == set()
    # What was looked through is not looked through again.
    assert await ask(_MARK) == [(mark,)]
    assert mark is not None
    await ask(_OVER)
    assert len(await swept(backend)) == JOBS


async def test_what_commits_late_while_no_lease_may_expire_is_found_afterwards(
    backend: PostgresBackend, somebody: psycopg.AsyncConnection[tuple[Any, ...]], ask: Ask
) -> None:
    """Though a sweep that looked for other things has seen it."""
    await taken(backend, TTL_S)
    await somebody.execute(
        "WITH gone AS (DELETE FROM lease_check RETURNING *)"
        " INSERT INTO lease_check (kind, look_at, leases)"
        " SELECT 'CLAIM', now(), leases FROM gone"
    )
    assert await swept(backend) == set()
    await ask(_JUST_RESUMED)
    await somebody.commit()
    await ask("INSERT INTO lease_check (kind, look_at, leases) VALUES ('HELD', now(), '{1}')")
    assert await swept(backend) == set()
    assert await ask("SELECT kind FROM lease_check") == [("CLAIM",)]
    await ask(_OVER)
    assert len(await swept(backend)) == JOBS


# Several sweepers


async def test_sweepers_wait_for_a_slow_one_and_leave_the_rest_to_it(
    dsn: str, line: tuple[Proxy, PostgresBackend], backend: PostgresBackend
) -> None:
    proxy, slow = line
    claimed = await taken(backend, EXPIRED_S)
    others = [
        await PostgresBackend.open(dsn, statement_timeout_s=IMPATIENT_S, pool_size=1)
        for _ in range(3)
    ]
    proxy.stop_after(b"-- Takes what is due")
    sweeping = asyncio.create_task(swept(slow))
    await proxy.until_stopped()
    # None of them fails, and nobody who claims, renews or completes waits for any.
    waiting = [asyncio.create_task(swept(one)) for one in others]
    await backend.extend_leases(held(claimed[:1]), lease_ttl_s=TTL_S)
    done = Outcome(claimed[0].job_id, Event.COMPLETE, token=claimed[0].token, result=b"r")
    assert [one.error for one in await backend.settle([done])] == [None]
    assert await asyncio.gather(*waiting) == [set()] * 3
    proxy.go_on()
    assert await sweeping == {one.job_id for one in claimed[1:]}
    assert await asyncio.gather(*map(swept, others)) == [set()] * 3
    for one in others:
        await one.close()


async def notes(ask: psycopg.AsyncConnection[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    rows = await (await ask.execute("SELECT number, swept_at FROM sweep")).fetchall()
    await ask.commit()
    return rows


async def test_with_nothing_due_a_sweep_is_one_statement_and_is_noted(
    dsn: str, somebody: psycopg.AsyncConnection[tuple[Any, ...]]
) -> None:
    async with watched(dsn, plans="auto") as (backend, seen):
        claimed = await taken(backend, TTL_S)
        assert await swept(backend) == set()
        [(before, swept_at)] = await notes(somebody)
        seen.clear()
        assert await swept(backend) == set()
        # A sweep folds counts, too.
        assert len([one for one in seen.plans if "lease_check" in one.text]) == 1, str(seen)
        [(number, later)] = await notes(somebody)
        assert (number, later > swept_at) == (before + 1, True)
        await backend.extend_leases(held(claimed), lease_ttl_s=EXPIRED_S)
        assert len(await swept(backend)) == JOBS


async def test_a_sweep_noted_while_another_looks_is_not_noted_over(
    dsn: str,
    backend: PostgresBackend,
    somebody: psycopg.AsyncConnection[tuple[Any, ...]],
) -> None:
    """The second statement begins with what was so before the first has ended."""
    assert await swept(backend) == set()
    [(before, _)] = await notes(somebody)
    claimed = await taken(backend, TTL_S)
    await somebody.execute("UPDATE sweep SET number = number + 1, marks = '{}', kinds = '{}'")
    sweeping = asyncio.create_task(swept(backend))
    await until_waiting(dsn, 1)
    await somebody.commit()
    assert await sweeping == set()
    assert [number for number, _ in await notes(somebody)] == [before + 2]
    assert len(await backend.extend_leases(held(claimed), lease_ttl_s=EXPIRED_S)) == JOBS
    assert len(await swept(backend)) == JOBS


# Nothing is left behind


async def test_what_is_over_is_in_no_row(
    backend: PostgresBackend, somebody: psycopg.AsyncConnection[tuple[Any, ...]]
) -> None:
    claimed = await taken(backend, EXPIRED_S)
    await backend.settle(
        [Outcome(one.job_id, Event.COMPLETE, token=one.token, result=b"r") for one in claimed]
    )
    assert await swept(backend) == set()
    [left] = await (await somebody.execute("SELECT count(*) FROM lease_check")).fetchall()
    [notes] = await (await somebody.execute("SELECT count(*) FROM sweep")).fetchall()
    assert (left, notes) == ((0,), (1,))


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_waiting_jobs_are_looked_up_by_number_only(
    dsn: str, somebody: psycopg.AsyncConnection[tuple[Any, ...]], plans: str
) -> None:
    """Their other indexes would be walked whole, with all that is dead in them. A plan that was
    made when hardly any job waited takes them all for as good.
    """
    async with watched(dsn, plans=plans) as (backend, seen):
        await backend.enqueue_jobs([Job(id=one, type="w") for one in WAITING])
        await somebody.execute("ANALYZE ready")
        await backend.delete_jobs([], (await backend.cancel_jobs([], WAITING)).cancelled_job_ids)
        await somebody.execute("ANALYZE ready")
        await somebody.commit()
        for _ in range(2):
            await calls.sweep(backend)
    told = ("-- Takes what is due", "-- Of lost jobs")
    nodes = [n for plan in seen.plans if plan.text.startswith(told) for n in plan.nodes]
    used = {n["Index Name"] for n in nodes if n.get("Relation Name") == "ready"}
    assert used == {"ready_pkey"}, str(seen)
