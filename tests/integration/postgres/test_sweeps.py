"""Sweeps that are held up, raced with, or come after an outage."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from tests.contract.store import PostgresStore
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.lengths import rounds
from tests.integration.postgres.locking import until_waiting
from tests.integration.postgres.proxy import Proxy, proxied
from tests.waiting import DEADLINE_S, STATEMENT_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.sweeping import SWEEPERS_LOCK
from queue_operator.domain.errors import InvalidTransition, Unavailable
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.lease import Held, LeaseStatus, Lost
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import SLOT_HOLDING, Event, JobState

# So short that the sweeper finds the lease expired.
EXPIRED_S = 0.000001
TTL_S = 5.0
# A sweep that comes later than this after the one before takes it for an outage.
SWEEP_S = 600.0
LONG_TTL_S = 600.0
MARGIN_S = 60.0
"""More than a test takes, on whatever machine: until then no lease ends that is renewed in time."""
JOBS = 8


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
    async with await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, options="-c search_path=queue_operator"
    ) as admin:
        yield PostgresStore(dsn, admin)


@pytest.fixture
async def lines(dsn: str) -> AsyncIterator[tuple[Proxy, list[PostgresBackend]]]:
    """Two backends that reach the server by the same line."""
    async with proxied(dsn) as (proxy, address):
        opened = [
            # What is away is waited for as long as a connection may take.
            await PostgresBackend.open(
                address, connect_timeout_s=3.0, statement_timeout_s=STATEMENT_S
            )
            for _ in range(2)
        ]
        yield proxy, opened
        for backend in opened:
            await backend.close()


async def expired(
    backend: PostgresBackend, namespace: str, prefix: str = "", assignee: str = "w"
) -> list[Assignment]:
    """Claimed jobs whose leases have run out."""
    jobs = [Job(id=f"{prefix}{n}", type="t", namespace=namespace) for n in range(JOBS)]
    await backend.enqueue_jobs(jobs)
    return await take(backend, namespace, JOBS, EXPIRED_S, assignee)


async def take(
    backend: PostgresBackend, namespace: str, count: int, ttl_s: float, assignee: str = "w"
) -> list[Assignment]:
    demand = Demand(assignee_id=assignee, limit=count, namespace=namespace)
    claimed = await backend.claim([demand], lease_ttl_s=ttl_s)
    assert len(claimed) == count
    return claimed


async def swept(backend: PostgresBackend, namespace: str, ttl_s: float) -> list[Lost]:
    """What a sweep found in this namespace."""
    lost = await backend.expire_leases(lease_ttl_s=ttl_s)
    return [one for one in lost if one.namespace == namespace]


def an_outcome(one: Assignment, event: Event) -> Outcome:
    return Outcome(one.job_id, event, namespace=one.namespace, token=one.token, result=b"r")


async def terminal_rows(ask: Ask, namespace: str) -> dict[str, tuple[Any, ...]]:
    """All that is kept of jobs that have ended, by id."""
    rows = await ask(
        "SELECT job.id, final.* FROM final JOIN job USING (job_no)"
        " JOIN namespace ON namespace.id = job.namespace_id WHERE namespace.name = %s",
        namespace,
    )
    return {row[0]: row[1:] for row in rows}


async def test_a_sweep_passes_by_a_job_that_somebody_else_has_in_hand(
    replicas: list[PostgresBackend], namespace: str, ask: Ask, dsn: str
) -> None:
    claimed = await expired(replicas[0], namespace)
    held = claimed[0]
    await ask("BEGIN")
    await ask("SELECT FROM lease WHERE token = %s FOR UPDATE", held.token)
    completing = asyncio.create_task(replicas[1].settle([an_outcome(held, Event.COMPLETE)]))
    await until_waiting(dsn, 1)
    lost = await swept(replicas[2], namespace, SWEEP_S)
    assert {one.job_id for one in lost} == {one.job_id for one in claimed[1:]}
    await ask("COMMIT")
    [answer] = await completing
    assert (answer.state, answer.freed_assignee_id) == (JobState.COMPLETED, "w")
    ended = await terminal_rows(ask, namespace)
    assert await swept(replicas[2], namespace, SWEEP_S) == []
    assert await terminal_rows(ask, namespace) == ended


async def test_what_was_lost_is_told_though_what_follows_fails(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([([Lost("a", "default", "w")], True)])

    async def sweep(ttl_s: float, limit: int) -> tuple[list[Lost], bool]:
        for one in found:
            return one
        raise Unavailable("the server is away")

    monkeypatch.setattr(backend._leases, "_sweep", sweep)
    assert await backend.expire_leases(lease_ttl_s=TTL_S) == [Lost("a", "default", "w")]
    with pytest.raises(Unavailable):
        await backend.expire_leases(lease_ttl_s=TTL_S)


async def test_a_sweep_stopped_between_reading_and_writing_overwrites_nothing(
    lines: tuple[Proxy, list[PostgresBackend]],
    replicas: list[PostgresBackend],
    namespace: str,
    ask: Ask,
    dsn: str,
) -> None:
    """Others then wait for what the sweep has in hand, and see what it made of it."""
    proxy, [stopped, _] = lines
    first, second, _ = replicas
    claimed = await expired(first, namespace)
    ids = [one.job_id for one in claimed]
    proxy.stop_after(b"THEN 'timeout'")
    sweeping = asyncio.create_task(swept(stopped, namespace, SWEEP_S))
    await proxy.until_stopped()
    # What is new is not in the list that the sweep has read.
    newer = await expired(second, namespace, prefix="new-")
    await first.settle([an_outcome(one, Event.COMPLETE) for one in newer[:4]])
    await first.cancel_jobs([], [one.job_id for one in newer[4:]], namespace=namespace)
    before = await terminal_rows(ask, namespace)
    waiting = [
        asyncio.create_task(
            second.settle([an_outcome(one, Event.COMPLETE) for one in claimed[:4]])
        ),
        asyncio.create_task(first.cancel_jobs([], ids[4:], namespace=namespace)),
    ]
    await until_waiting(dsn, 2)
    proxy.go_on()
    assert {one.job_id for one in await sweeping} == set(ids)
    await asyncio.gather(*waiting)
    after = await terminal_rows(ask, namespace)
    assert {job_id: after[job_id] for job_id in before} == before
    states = [(await first.get_job(job_id, namespace=namespace)).state for job_id in ids]
    assert states == [JobState.COMPLETED] * 4 + [JobState.STOPPED] * 4


@pytest.mark.parametrize("held_at", ["read", "write"])
async def test_what_completes_or_is_cancelled_while_a_sweep_is_held_up_stays_so(
    replicas: list[PostgresBackend], namespace: str, ask: Ask, dsn: str, held_at: str
) -> None:
    """The sweep stands before it reads which leases are over, or before it writes that down."""
    first, second, third = replicas
    claimed = await expired(first, namespace)
    done, cancelled, left = claimed[:3], claimed[3:6], claimed[6:]
    await ask("BEGIN")
    if held_at == "read":
        await ask("SELECT pg_advisory_xact_lock(%s)", SWEEPERS_LOCK)
    else:
        await ask("LOCK count_delta IN SHARE MODE")
    sweeping = asyncio.create_task(swept(third, namespace, SWEEP_S))
    await until_waiting(dsn, 1)
    outcomes = [an_outcome(one, Event.COMPLETE) for one in done]
    ids = [one.job_id for one in cancelled]
    settling = asyncio.create_task(second.settle(outcomes))
    cancelling = asyncio.create_task(first.cancel_jobs([], ids, namespace=namespace))
    if held_at == "read":
        await asyncio.wait([settling, cancelling])
    else:
        await until_waiting(dsn, 3)
    await ask("COMMIT")
    lost = await sweeping
    answers, cancels = await settling, await cancelling
    assert [answer.error for answer in answers] == [None] * 3
    assert set(cancels.cancelled_job_ids) == {one.job_id for one in cancelled}
    freed = len(lost) + sum(1 for answer in answers if answer.freed_assignee_id)
    for one in done:
        job = await first.get_job(one.job_id, namespace=namespace)
        assert (job.state, job.result) == (JobState.COMPLETED, b"r")
    states = [(await first.get_job(one.job_id, namespace=namespace)).state for one in claimed]
    assert freed == JOBS - sum(state in SLOT_HOLDING for state in states)
    # Swept before the cancel came, they waited for another claim and have stopped; asked to
    # stop before the sweep came, they are given up.
    assert set(states[3:6]) <= {JobState.STOPPED, JobState.UNKNOWN_STOPPED, JobState.CANCELLING}
    assert set(states[6:]) == {JobState.UNKNOWN_RETRY}
    assert {one.job_id for one in lost} >= {one.job_id for one in left}


async def test_no_timing_of_sweeps_outcomes_and_cancels_changes_what_has_ended(
    replicas: list[PostgresBackend], namespace: str, ask: Ask, store: PostgresStore
) -> None:
    for n in range(rounds(short=40, long=1000)):
        worker = f"w{n}-{namespace}"
        claimed = await expired(replicas[0], namespace, f"{n}-", worker)
        done = set(random.sample(claimed, 4))
        calls = [
            *(partial(_complete, replicas[k % 3], [one]) for k, one in enumerate(done)),
            *(
                partial(_cancel, replicas[k], [o.job_id for o in claimed], namespace)
                for k in (0, 1)
            ),
            *(partial(_sweep, replica) for replica in replicas),
            partial(_extend, replicas[2], claimed),
        ]
        random.shuffle(calls)
        freed: Counter[str] = Counter()
        for answer in await asyncio.gather(*(call() for call in calls)):
            freed.update(answer)
        [(held,)] = await ask("SELECT count(*) FROM lease WHERE assignee_id = %s", worker)
        assert freed[worker] == JOBS - held
        ended = await terminal_rows(ask, namespace)
        await asyncio.gather(*(_sweep(replica) for replica in replicas))
        await asyncio.gather(*(_complete(r, list(done)) for r in replicas))
        after = await terminal_rows(ask, namespace)
        # A late success counts; nothing else changes.
        late = {job_id for job_id in ended if after[job_id] != ended[job_id]}
        assert all(after[job_id][2] == JobState.COMPLETED for job_id in late)
        assert late <= {one.job_id for one in done}
        assert await store.faults() == []


async def _complete(backend: PostgresBackend, claimed: list[Assignment]) -> list[str]:
    answers = await backend.settle([an_outcome(one, Event.COMPLETE) for one in claimed])
    assert all(a.error is None or isinstance(a.error, InvalidTransition) for a in answers)
    return [answer.freed_assignee_id for answer in answers if answer.freed_assignee_id]


async def _cancel(backend: PostgresBackend, ids: list[str], namespace: str) -> list[str]:
    await backend.cancel_jobs([], random.sample(ids, 3), namespace=namespace)
    return []


async def _sweep(backend: PostgresBackend) -> list[str]:
    return [one.assignee_id for one in await backend.expire_leases(lease_ttl_s=SWEEP_S)]


async def _extend(backend: PostgresBackend, claimed: list[Assignment]) -> list[str]:
    held = [Held(one.job_id, one.token, one.namespace) for one in claimed]
    await backend.extend_leases(held, lease_ttl_s=EXPIRED_S)
    return []


async def test_two_identical_late_outcomes_at_once_are_one_success_and_one_repeat(
    replicas: list[PostgresBackend], namespace: str
) -> None:
    """Of jobs given up as UNKNOWN_STOPPED, whose row stays where it is."""
    for n in range(rounds(short=30, long=500)):
        await replicas[0].enqueue_job(Job(id=f"{n}", type="t", namespace=namespace))
        [one] = await take(replicas[0], namespace, 1, TTL_S)
        await replicas[0].mark_job_unknown_stopped(one.job_id, "gone", namespace=namespace)
        answers = await asyncio.gather(
            *(replica.settle([an_outcome(one, Event.COMPLETE)]) for replica in replicas)
        )
        told: list[Settled] = [answer for [answer] in answers]
        assert [answer.error for answer in told] == [None] * 3
        assert sorted(answer.repeated for answer in told) == [False, True, True]


async def test_a_worker_given_up_by_hand_loses_no_job_that_another_has_claimed_since(
    lines: tuple[Proxy, list[PostgresBackend]], backend: PostgresBackend, namespace: str
) -> None:
    proxy, [stopped, _] = lines
    old = f"old-{namespace}"
    await backend.enqueue_job(Job(id="a", type="t", namespace=namespace))
    await take(backend, namespace, 1, TTL_S, old)
    proxy.stop_after(b"SELECT held.job_no")
    giving_up = asyncio.create_task(stopped.mark_worker_unresponsive(old))
    await proxy.until_stopped()
    await backend.fail_job("a", "x", namespace=namespace)
    await take(backend, namespace, 1, TTL_S, "new")
    proxy.go_on()
    assert await giving_up == {}
    job = await backend.get_job("a", namespace=namespace)
    assert (job.state, job.assignee_id, job.attempt) == (JobState.RUNNING, "new", 2)


# Outages


@pytest.mark.parametrize("outage", [timedelta(seconds=3 * LONG_TTL_S), timedelta(days=1)])
async def test_after_an_outage_longer_than_the_lease_no_worker_that_stayed_loses_a_job(
    lines: tuple[Proxy, list[PostgresBackend]],
    namespace: str,
    store: PostgresStore,
    outage: timedelta,
) -> None:
    proxy, backends = lines
    jobs = [Job(id=f"{n}", type="t", namespace=namespace) for n in range(500)]
    await backends[0].enqueue_jobs(jobs)
    alive = await take(backends[0], namespace, 400, LONG_TTL_S, "alive")
    dead = await take(backends[1], namespace, 100, LONG_TTL_S, "dead")
    await backends[0].expire_leases(lease_ttl_s=LONG_TTL_S)

    await proxy.go_down()
    for backend in backends:
        with pytest.raises(Unavailable):
            await backend.expire_leases(lease_ttl_s=LONG_TTL_S)
    await store.age(outage.total_seconds(), outage=True)
    proxy.come_back()
    await asyncio.gather(*map(reachable, backends))

    # The sweeper may be back before the workers are.
    assert [await swept(b, namespace, LONG_TTL_S) for b in backends] == [[], []]
    held = [Held(one.job_id, one.token, namespace) for one in alive]
    answers = await backends[1].extend_leases(held, lease_ttl_s=LONG_TTL_S)
    assert {answer.status for answer in answers} == {LeaseStatus.CURRENT}
    await store.age(LONG_TTL_S - MARGIN_S)
    assert [await swept(b, namespace, LONG_TTL_S) for b in backends] == [[], []]
    await backends[0].extend_leases(held, lease_ttl_s=LONG_TTL_S)
    await store.age(MARGIN_S)

    lost = [one for b in backends for one in await swept(b, namespace, LONG_TTL_S)]
    assert {one.job_id for one in lost} == {one.job_id for one in dead}
    assert len(lost) == 100
    again = await take(backends[0], namespace, 100, LONG_TTL_S, "alive")
    assert {one.job_id for one in again} == {one.job_id for one in dead}
    settled = await backends[0].settle(
        [an_outcome(one, Event.COMPLETE) for one in [*alive, *again]]
    )
    assert [answer.error for answer in settled] == [None] * 500
    attempts = [
        (await backends[0].get_job(one.job_id, namespace=namespace)).attempt for one in alive
    ]
    assert set(attempts) == {1}


async def reachable(backend: PostgresBackend) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await backend.ping()
            except Unavailable:
                continue
