"""What a store does by the way: nobody waits for it, and no part of it for another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.integration.postgres.locking import until_waiting

from queue_operator.backends.postgres import PostgresBackend, counts, exploring
from queue_operator.backends.protocol import WorkerSession
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.lease import Lost

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]
Somebody = psycopg.AsyncConnection[tuple[Any, ...]]
HELD_UP = "LOCK TABLE session_beat IN ACCESS EXCLUSIVE MODE"
"""Sessions cannot be pruned; sweeps do not read it."""
PARTS: dict[str, Callable[[PostgresBackend], tuple[object, str]]] = {
    "fold": lambda backend: (backend._counts, "fold_some"),
    "look": lambda backend: (backend._housekeeping.overlooked, "look_in_time"),
    "sessions": lambda backend: (backend._sessions, "prune_sessions"),
    "arrivals": lambda backend: (backend._arrivals, "prune"),
    "lanes": lambda backend: (backend._claims._explorer, "revisit"),
    "names": lambda backend: (backend._housekeeping.tidying, "tidy"),
}


@pytest.fixture
def dsn(own_dsn: str) -> str:
    return own_dsn


async def test_what_a_sweep_found_does_not_wait_for_pruning(
    backend: PostgresBackend, somebody: Somebody, dsn: str, ask: Ask
) -> None:
    await backend.enqueue_job(Job(id="a", type="t"))
    await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=0.000001)
    await somebody.execute(HELD_UP)
    assert await backend.expire_leases(lease_ttl_s=3600) == [Lost("a", "default", "w")]
    await until_waiting(dsn, 1)
    # The next sweep neither waits for it nor begins another.
    at_it = backend._housekeeping._pruning
    backend._housekeeping._prune_at_s = float("-inf")
    assert await backend.expire_leases(lease_ttl_s=3600) == []
    assert backend._housekeeping._pruning is at_it
    await somebody.commit()
    await backend._housekeeping.settled()
    # When it is over the next one may begin.
    await backend.open_session(WorkerSession(session_id="s", namespace="n", worker_name="w"))
    await ask("UPDATE worker_session SET connected_at = now() - interval '2 hours'")
    await backend.expire_leases(lease_ttl_s=3600)
    await backend._housekeeping.settled()
    assert await backend.list_sessions() == []


async def test_what_a_sweep_found_does_not_wait_for_many_counts(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "_STEP", 10)
    for n in range(30):
        await backend.enqueue_job(Job(id=f"{n}", type="t"))
    folding, fold_all = backend._counts, backend._counts.fold_all
    may_go_on = asyncio.Event()

    async def later() -> None:
        await may_go_on.wait()
        await fold_all()

    monkeypatch.setattr(folding, "fold_all", later)
    await backend.expire_leases(lease_ttl_s=3600)
    # The next sweep begins no other.
    await backend.expire_leases(lease_ttl_s=3600)
    assert [one.get_name() for one in asyncio.all_tasks()].count("folding counts") == 1
    may_go_on.set()
    await backend._housekeeping.settled()
    assert await folding.fold() == 0


@pytest.mark.parametrize("error", [Unavailable("away"), RuntimeError("a fault of ours")], ids=repr)
@pytest.mark.parametrize("failing", PARTS)
async def test_a_part_that_fails_keeps_no_other_from_being_done(
    backend: PostgresBackend,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failing: str,
    error: Exception,
) -> None:
    done: list[str] = []

    def replaced(name: str) -> Callable[..., Awaitable[int]]:
        async def call(*_: object, **__: object) -> int:
            if name == failing:
                raise error
            done.append(name)
            return 0

        return call

    for name, find in PARTS.items():
        monkeypatch.setattr(*find(backend), replaced(name))
    with caplog.at_level(logging.WARNING):
        assert await backend.expire_leases(lease_ttl_s=3600) == []
        await backend._housekeeping.settled()
    assert done == [name for name in PARTS if name != failing]
    [record] = [one for one in caplog.records if str(error) in f"{one.getMessage()}{one.exc_text}"]
    # A store that is away is no fault; of another error it is told where it was.
    assert (record.levelno == logging.ERROR) == isinstance(error, RuntimeError)


async def test_many_lanes_that_others_emptied_are_forgotten_before_the_minute_is_over(
    backend: PostgresBackend, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "_MANY", 100)
    await backend.expire_leases(lease_ttl_s=3600)
    await backend._housekeeping.settled()
    other = await PostgresBackend.open(dsn)
    for count, left in ((100, 100), (1, 0)):
        jobs = [Job(id=f"{count}-{n}", type="t", tags=frozenset({f"{n}"})) for n in range(count)]
        await other.enqueue_jobs([replace(job, namespace=f"of-{count}") for job in jobs])
        demand = Demand(assignee_id="w", limit=100, namespace=f"of-{count}")
        assert len(await other.claim([demand], lease_ttl_s=600)) == count
        await backend._arrivals.catch_up(thorough=True)
        await backend.expire_leases(lease_ttl_s=3600)
        await backend._housekeeping.settled()
        assert len(backend._arrivals.fronts) == left
    await other.close()


async def test_many_lanes_in_which_jobs_wait_are_looked_into_once_a_minute(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploring, "_MANY", 10)
    explorer = backend._claims._explorer
    jobs = [Job(id=f"{n}", type="t", tags=frozenset({f"{n}"})) for n in range(20)]
    await backend.enqueue_jobs(jobs)
    await backend._arrivals.catch_up()
    looks, look = 0, explorer.first_jobs

    async def counted(*asked: Any) -> dict[int, Any]:
        nonlocal looks
        looks += 1
        return await look(*asked)

    monkeypatch.setattr(explorer, "first_jobs", counted)
    for _ in range(3):
        await backend.expire_leases(lease_ttl_s=3600)
        await backend._housekeeping.settled()
    assert looks == 1


async def test_a_backend_that_is_closed_leaves_no_pruning_behind(
    somebody: Somebody, dsn: str
) -> None:
    backend = await PostgresBackend.open(dsn)
    await somebody.execute(HELD_UP)
    await backend.expire_leases(lease_ttl_s=3600)
    await until_waiting(dsn, 1)
    [pruning] = [one for one in asyncio.all_tasks() if one.get_name() == "pruning the store"]
    await backend.close()
    assert pruning.cancelled()
    await until_waiting(dsn, 0)
