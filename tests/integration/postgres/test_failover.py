"""A primary that goes away, or stays and takes no writes any more, and a standby that takes over.
Nobody is told: the address names both servers, and the backend finds the right one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import pytest
from psycopg.conninfo import make_conninfo
from tests.integration.postgres.pair import Pair, pair

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.domain.errors import DuplicateJob, JobNotFound, Unavailable
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState

T = TypeVar("T")

RECOVERY_S: Final = 15.0
TTL_S: Final = 60.0
ENOUGH: Final = 40


@pytest.fixture
def servers() -> Iterator[Pair]:
    with pair() as made:
        yield made


@pytest.fixture
async def backend(servers: Pair) -> AsyncIterator[PostgresBackend]:
    backend = await PostgresBackend.open(servers.dsn, pool_size=4, connect_timeout_s=2.0)
    yield backend
    await backend.close()


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Asks again for as long as the store is away."""
    async with asyncio.timeout(4 * RECOVERY_S):
        while True:
            try:
                return await call()
            except Unavailable:
                continue


@dataclass
class Traffic:
    """Jobs that are submitted and completed one after the other, whatever the servers do; what
    was acknowledged must never be missing.
    """

    backend: PostgresBackend
    submitted: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    refused: int = 0
    _more: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def go_on(self) -> None:
        while True:
            await self._submit(f"job-{len(self.submitted)}")
            for assignment in await self._until(self._claim):
                if await self._until(partial(self._complete, assignment)):
                    self.completed.append(assignment.job_id)
            async with self._more:
                self._more.notify_all()

    async def until_completed(self, count: int) -> None:
        async with self._more:
            await self._more.wait_for(lambda: len(self.completed) >= count)

    async def _submit(self, job_id: str) -> None:
        # A duplicate was stored by a call whose answer was lost.
        with suppress(DuplicateJob):
            await self._until(lambda: self.backend.enqueue_job(Job(id=job_id, type="t")))
        self.submitted.append(job_id)

    async def _claim(self) -> list[Assignment]:
        demand = Demand(assignee_id="w", limit=1)
        return await self.backend.claim([demand], lease_ttl_s=TTL_S)

    async def _complete(self, assignment: Assignment) -> bool:
        """False for a claim that is not known any more: it was never acknowledged by a standby."""
        done = Outcome(assignment.job_id, Event.COMPLETE, token=assignment.token, result=b"r")
        [answer] = await self.backend.settle([done])
        return answer.error is None

    async def _until(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except Unavailable:
                self.refused += 1


async def check_nothing_is_lost(traffic: Traffic) -> None:
    lost = [job_id for job_id in traffic.submitted if await state(traffic.backend, job_id) is None]
    undone = [
        job_id
        for job_id in traffic.completed
        if await state(traffic.backend, job_id) is not JobState.COMPLETED
    ]
    assert (lost, undone) == ([], [])


async def state(backend: PostgresBackend, job_id: str) -> JobState | None:
    try:
        return (await backend.get_job(job_id)).state
    except JobNotFound:
        return None


async def ports(pool: Pool) -> set[int]:
    """Where each connection of the pool leads; all are held until the last is."""
    together = asyncio.Barrier(pool.max_size)

    async def hold() -> int:
        async with borrowed(pool) as connection:
            await together.wait()
            return connection.info.port

    return set(await asyncio.gather(*(hold() for _ in range(pool.max_size))))


async def test_a_killed_primary_is_replaced_without_losing_an_acknowledged_job(
    servers: Pair, backend: PostgresBackend
) -> None:
    traffic = Traffic(backend)
    topics = backend.listen()
    assert await anext(topics)
    async with asyncio.TaskGroup() as group:
        going = group.create_task(traffic.go_on())
        await traffic.until_completed(ENOUGH)
        await asyncio.to_thread(servers.first.kill)
        before = len(traffic.completed)
        # Nobody takes writes, and nobody pretends to.
        with pytest.raises(Unavailable):
            await backend.ping()
        await asyncio.to_thread(servers.promote)
        promoted = time.monotonic()
        await insist(backend.ping)
        await traffic.until_completed(before + ENOUGH)
        assert time.monotonic() - promoted < RECOVERY_S
        going.cancel()
    assert traffic.refused > 0
    assert await ports(backend._pool) == {servers.second.port}
    await check_nothing_is_lost(traffic)
    # Who listens hears of new jobs from the new primary.
    await backend.enqueue_job(Job(id="after", type="t"))
    assert await anext(topics)


@pytest.mark.parametrize("count", [40, 80], ids=["inserted", "copied"])
async def test_names_that_a_failover_lost_are_not_mixed_up_with_others(
    servers: Pair, backend: PostgresBackend, count: int
) -> None:
    """The standby, which never heard of them, gives their numbers to somebody else's."""
    await asyncio.to_thread(servers.lose_the_standby)
    await backend.enqueue_jobs(named("ours", "lost", count))
    await asyncio.to_thread(servers.go_on_without_what_it_missed)
    newer = await PostgresBackend.open(servers.dsn, connect_timeout_s=2.0)
    await newer.enqueue_jobs(named("theirs", "first", count))
    for n in range(count):
        # Neither is what is theirs shown, nor changed.
        ours = f"ours-{n}"
        with pytest.raises(JobNotFound):
            await insist(partial(backend.get_job, "first", namespace=ours))
        cancelled = await insist(partial(backend.cancel_jobs, [], ["first"], namespace=ours))
        assert cancelled.unknown_job_ids == ("first",)
    await insist(lambda: backend.enqueue_jobs(named("ours", "again", count)))
    for owner, job_id in (("ours", "again"), ("theirs", "first")):
        for n in range(count):
            demand = Demand(assignee_id="w", limit=9, namespace=f"{owner}-{n}")
            [one] = await newer.claim([demand], lease_ttl_s=TTL_S)
            assert (one.job_id, one.tags) == (job_id, frozenset({f"{owner}={n}"}))
            assert (await backend.get_job(job_id, namespace=f"{owner}-{n}")).tags == one.tags
    await newer.close()


def named(owner: str, job_id: str, count: int) -> list[Job]:
    """Each in a namespace and a lane of its own."""
    return [
        Job(id=job_id, type="t", namespace=f"{owner}-{n}", tags=frozenset({f"{owner}={n}"}))
        for n in range(count)
    ]


async def test_a_primary_that_takes_no_writes_any_more_is_left_by_all_connections(
    servers: Pair, backend: PostgresBackend
) -> None:
    await asyncio.gather(*(backend.ping() for _ in range(8)))
    assert await ports(backend._pool) == {servers.first.port}
    await backend.enqueue_job(Job(id="before", type="t"))
    servers.close_first_to_writes()
    with pytest.raises(Unavailable, match="takes no writes"):
        await backend.enqueue_job(Job(id="refused", type="t"))
    # No reads from it either: it no longer knows what happens.
    for call in (lambda: backend.get_job("before"), backend.ping):
        with pytest.raises(Unavailable):
            await call()
    await asyncio.to_thread(servers.promote)
    promoted = time.monotonic()
    await insist(lambda: backend.enqueue_job(Job(id="after", type="t")))
    assert time.monotonic() - promoted < RECOVERY_S
    assert await ports(backend._pool) == {servers.second.port}
    assert await state(backend, "refused") is None
    assert await state(backend, "before") is JobState.INITIAL_PENDING


async def test_a_primary_that_comes_back_as_a_standby_is_not_used_again(
    servers: Pair, backend: PostgresBackend
) -> None:
    traffic = Traffic(backend)
    async with asyncio.TaskGroup() as group:
        going = group.create_task(traffic.go_on())
        await traffic.until_completed(ENOUGH)
        await asyncio.to_thread(servers.first.stop)
        await asyncio.to_thread(servers.demote)
        # The old primary answers at the old address, first in the list.
        await asyncio.to_thread(servers.promote)
        await traffic.until_completed(len(traffic.completed) + ENOUGH)
        going.cancel()
    assert await ports(backend._pool) == {servers.second.port}
    await check_nothing_is_lost(traffic)


async def test_a_standby_that_the_address_asks_for_is_refused_at_once(servers: Pair) -> None:
    for wanted in ("read-write", "any", "prefer-standby"):
        address = make_conninfo(servers.second.dsn, target_session_attrs=wanted)
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"takes no writes: .*read-only; if it is a standby"):
            await PostgresBackend.open(address, connect_timeout_s=RECOVERY_S)
        assert time.monotonic() - began < RECOVERY_S
