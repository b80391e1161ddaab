"""Suspended jobs beside claims, retries and ends of parents, and how little they cost others."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.integration.postgres.watching import at_most, watched

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import StatsWindow
from queue_operator.domain.job import Demand, Job, ResourceRef
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import Event, JobState

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]

TTL_S = 60.0
_MANY = 10_000
_AT_ONCE = Backoff(BackoffStrategy.CONSTANT, initial_delay_s=0.0)


async def stored(backend: PostgresBackend, namespace: str, *names: str, **fields: Any) -> list[str]:
    jobs = [Job(id=name, type="mail", namespace=namespace, **fields) for name in names]
    return await backend.enqueue_jobs(jobs)


async def claimed(backend: PostgresBackend, namespace: str, number: int) -> dict[str, str]:
    """Tokens by id, of whatever was claimable before the call, whichever process made it so."""
    await backend._arrivals.catch_up(thorough=True)
    demand = Demand(assignee_id="worker", limit=number, namespace=namespace)
    return {one.job_id: one.token for one in await backend.claim([demand], lease_ttl_s=TTL_S)}


def names_of(namespace: str, names: list[str], on: bool) -> dict[tuple[str, str], bool]:
    return {(namespace, name): on for name in names}


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_a_claim_does_not_look_at_what_is_suspended(own_dsn: str, plans: str) -> None:
    """Nor does what makes delayed jobs due. Of those that were suspended before the first claim no
    index of a claim has an entry but a dead one.
    """
    names = [f"held-{n:05d}" for n in range(_MANY)]
    async with watched(own_dsn, plans=plans) as (backend, seen):
        await stored(backend, "default", *names, suspended=True)
        await stored(backend, "default", "free")
        await backend._arrivals.catch_up()
        with at_most(seen, rows=200, pages=400):
            assert not await backend._staging.stage()
            assert list(await claimed(backend, "default", 10)) == ["free"]
            assert await claimed(backend, "default", 10) == {}
            assert await backend.eligible_for([Demand(assignee_id="w", limit=1)]) == [False]


async def test_what_was_suspended_while_it_waited_is_in_no_index_of_claims(
    backend: PostgresBackend, namespace: str, ask: Ask
) -> None:
    names = await stored(backend, namespace, "due")
    names += await stored(backend, namespace, "later", delay_s=3600.0)
    await backend.set_suspended(names_of(namespace, names, True))
    rows = await ask(
        "SELECT due, blocked FROM ready JOIN job USING (job_no)"
        " JOIN namespace ON namespace.id = job.namespace_id WHERE namespace.name = %s",
        namespace,
    )
    # What becomes due is looked for among those that are NOT blocked.
    assert rows == [(False, None)] * 2
    window = await backend.window_stats(StatsWindow(namespace=namespace))
    assert (window.scheduled, window.delayed, window.pending) == (1, 1, 0)


@pytest.mark.parametrize("round_", range(5))
async def test_beside_a_claim_a_job_is_claimed_or_held(
    backend: PostgresBackend, other: PostgresBackend, namespace: str, round_: int
) -> None:
    names = [uuid.uuid4().hex for _ in range(200)]
    await stored(backend, namespace, *names)
    held = names[::2]

    async def claim_all() -> dict[str, str]:
        found: dict[str, str] = {}
        while some := await claimed(other, namespace, 20):
            found |= some
        return found

    left, found = await asyncio.gather(
        backend.set_suspended(names_of(namespace, held, True)), claim_all()
    )
    assert left == set()
    found |= await claim_all()
    waiting = set(names) - found.keys()
    assert waiting <= set(held)
    # Those that were claimed before wait once they are given back.
    runs = [name for name in held if name in found]
    for name in runs:
        job = await backend.get_job(name, namespace=namespace)
        assert (job.state, job.suspended) == (JobState.RUNNING, True)
    await backend.settle(
        [Outcome(n, Event.RELEASE, namespace=namespace, token=found[n]) for n in found]
    )
    again = await claim_all()
    assert sorted(again) == sorted(set(names) - set(held))
    assert not await backend.set_suspended(names_of(namespace, held, False))
    assert sorted(await claim_all()) == sorted(held)


@pytest.mark.parametrize("round_", range(5))
async def test_beside_a_failure_the_next_attempt_waits(
    backend: PostgresBackend, other: PostgresBackend, namespace: str, round_: int
) -> None:
    names = [uuid.uuid4().hex for _ in range(50)]
    await stored(backend, namespace, *names, max_attempts=9, backoff=_AT_ONCE)
    tokens = await claimed(backend, namespace, 50)
    outcomes = [
        Outcome(name, Event.FAIL, namespace=namespace, token=token, error=ErrorInfo("no"))
        for name, token in tokens.items()
    ]
    await asyncio.gather(
        *(backend.set_suspended(names_of(namespace, [name], True)) for name in names),
        *(other.settle([outcome]) for outcome in outcomes),
    )
    assert await claimed(other, namespace, 100) == {}
    assert not await backend.set_suspended(names_of(namespace, names, False))
    assert sorted(await claimed(other, namespace, 100)) == sorted(names)


@pytest.mark.parametrize("round_", range(5))
async def test_beside_the_end_of_a_parent_the_child_waits(
    backend: PostgresBackend, other: PostgresBackend, namespace: str, round_: int
) -> None:
    parents = await stored(backend, namespace, *(f"parent-{n}" for n in range(20)))
    children = [f"child-{n}" for n in range(20)]
    for parent, child in zip(parents, children, strict=True):
        await stored(backend, namespace, child, depends_on=(parent,))
    tokens = await claimed(backend, namespace, 20)
    await asyncio.gather(
        *(backend.set_suspended(names_of(namespace, [child], True)) for child in children),
        *(
            other.complete_job(parent, b"", namespace=namespace, token=tokens[parent])
            for parent in parents
        ),
    )
    assert await claimed(other, namespace, 100) == {}
    assert not await backend.set_suspended(names_of(namespace, children, False))
    assert sorted(await claimed(other, namespace, 100)) == sorted(children)


async def test_a_job_of_a_resource_tells_of_its_suspension(
    backend: PostgresBackend, namespace: str
) -> None:
    uid = uuid.uuid4().hex
    resource = ResourceRef("cluster", uid, "mine")
    await backend.take_in([Job(id=uid, type="mail", namespace=namespace, resource=resource)])

    async def shown() -> list[tuple[bool, bool]]:
        entries = await backend.pending_mirrors()
        await backend.acknowledge_mirrors([one.sequence for one in entries])
        jobs = [one.job for one in entries]
        return [(job.suspended, job.suspension_at is not None) for job in jobs if job.id == uid]

    assert await shown() == [(False, False)]
    await backend.set_suspended({(namespace, uid): True})
    assert await shown() == [(True, True)]
    await backend.set_suspended({(namespace, uid): True})
    assert await shown() == []
    await backend.set_suspended({(namespace, uid): False})
    assert await shown() == [(False, True)]
