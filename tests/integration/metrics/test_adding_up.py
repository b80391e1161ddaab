"""Counters are what the store says, whatever happened to jobs and to replicas meanwhile."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.metrics.fleet import Fleet, stored
from tests.unit.metrics.exposition import key
from tests.waiting import until

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import SpawnRequest
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState

NAMESPACES = ("red", "blue")
JOBS = 20


@pytest.fixture
def fleet(database: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(database, tmp_path)
    yield fleet
    fleet.close()


class Mix:
    """A worker and its users, through the library."""

    def __init__(self, store: PostgresBackend) -> None:
        self._store = store
        self._round = 0

    async def run(self, namespace: str) -> None:
        """A job for each way to end, of a type each."""
        self._round += 1
        number, store = self._round, self._store
        kinds = ("done", "once", "never", "stop", "gone", "obey", "slow", "lost", "deaf", "back")
        await store.enqueue_jobs(
            [
                Job(
                    id=f"{kind}-{number}-{n}",
                    type=kind,
                    namespace=namespace,
                    max_attempts=2,
                    timeout_s=0.05 if kind == "slow" else None,
                )
                for kind in kinds
                for n in range(JOBS if kind == "done" else 2)
            ]
        )
        waiting = await self._ids(namespace, "gone", number)
        await store.cancel_jobs([], waiting, namespace=namespace)
        failed, broken = ErrorInfo("no"), ErrorInfo("no", ErrorCategory.PERMANENT)
        await self._end(namespace, "once", Event.FAIL, error=failed, retry_after_s=0.0)
        await self._end(namespace, "once", Event.COMPLETE)
        await self._end(namespace, "never", Event.FAIL, error=broken)
        await self._end(namespace, "stop", Event.STOP)
        await self._end(namespace, "back", Event.HAND_BACK)
        await self._end(namespace, "back", Event.RELEASE)
        await self._spawn(namespace, number)
        await self._end(namespace, "done", Event.COMPLETE)
        await self._end(namespace, "back", Event.COMPLETE)
        obeying = await self._claim(namespace, "obey")
        deaf = await self._claim(namespace, "deaf")
        ids = [one.job_id for one in (*obeying, *deaf)]
        await store.cancel_jobs([], ids, namespace=namespace)
        await self._settle(namespace, obeying, Event.ACK_EXECUTING)
        # The sweepers of the replicas take these: the lease runs out, the time to run, the time to
        # obey; and then again, until no attempt is left.
        await self._claim(namespace, "lost", ttl_s=0.05)
        await self._claim(namespace, "slow")

    async def finish(self) -> None:
        """Takes what the sweepers sent back, until all has ended."""

        async def all_ended() -> bool:
            for namespace in NAMESPACES:
                await self._claim(namespace, "lost", ttl_s=0.05)
                await self._claim(namespace, "slow")
            depth = await self._store.queue_depth()
            return not any(
                n
                for (_, _, state), n in depth.jobs.items()
                if state in (JobState.INITIAL_PENDING, JobState.RUNNING, JobState.CANCELLING)
                or state in (JobState.FAILED_RETRY, JobState.UNKNOWN_RETRY)
            )

        await until(all_ended)

    async def _ids(self, namespace: str, kind: str, number: int) -> list[str]:
        return [f"{kind}-{number}-{n}" for n in range(2)]

    async def _spawn(self, namespace: str, number: int) -> None:
        taken = await self._claim(namespace, "done", limit=1)
        for parent in taken:
            child = Job(id="", type="done", namespace=namespace)
            request = SpawnRequest(
                parent_id=parent.job_id,
                namespace=namespace,
                token=parent.token,
                key=str(number),
                job=child,
            )
            for _ in range(2):
                [answer] = await self._store.spawn([request])
                assert answer.error is None
        await self._settle(namespace, taken, Event.COMPLETE)

    async def _claim(
        self, namespace: str, kind: str, limit: int = 1000, ttl_s: float = 600.0
    ) -> list[Assignment]:
        demand = Demand(
            assignee_id="worker", limit=limit, namespace=namespace, types=frozenset({kind})
        )
        return await self._store.claim([demand], lease_ttl_s=ttl_s)

    async def _end(
        self,
        namespace: str,
        kind: str,
        event: Event,
        error: ErrorInfo | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        taken = await self._claim(namespace, kind)
        assert taken
        await self._settle(namespace, taken, event, error, retry_after_s)

    async def _settle(
        self,
        namespace: str,
        taken: list[Assignment],
        event: Event,
        error: ErrorInfo | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        outcomes = [
            Outcome(
                one.job_id,
                event,
                namespace=namespace,
                token=one.token,
                error=error,
                retry_after_s=retry_after_s,
                result=b"" if event is Event.COMPLETE else None,
            )
            for one in taken
        ]
        for answer in await self._store.settle(outcomes):
            assert answer.error is None


async def test_counters_add_up_over_restarts_and_replicas(
    fleet: Fleet, store: PostgresBackend, database: str
) -> None:
    mix = Mix(store)

    async def both() -> None:
        for namespace in NAMESPACES:
            await mix.run(namespace)

    for _ in range(2):
        await asyncio.to_thread(fleet.start)
    await both()
    await asyncio.gather(asyncio.to_thread(fleet.roll), both())
    await asyncio.to_thread(fleet.start)
    await asyncio.gather(asyncio.to_thread(fleet.roll), both())
    leader = await asyncio.to_thread(fleet.leader)
    for replica in [leader, next(one for one in fleet.up if one is not leader)]:
        await asyncio.gather(asyncio.to_thread(fleet.end, replica), both())
    await mix.finish()
    await asyncio.to_thread(fleet.settle)
    expected = stored(database)
    ended = {outcome: 0 for _, _, _, outcome, _ in attempts(expected)}
    for _, _, _, outcome, _ in attempts(expected):
        ended[outcome] += 1
    outcomes = ("completed", "failed", "stopped", "unknown", "released", "handed_back", "lost")
    assert ended.keys() == set(outcomes)
    assert {"timeout", "permanent", "temporary", ""} <= {each[4] for each in attempts(expected)}


def attempts(totals: "dict[tuple[str, ...], int]") -> list[tuple[str, ...]]:
    return [each for each in totals if each[0] == "queueoperator_job_attempts_total"]


async def test_a_leader_that_is_killed_is_followed_by_another(
    fleet: Fleet, store: PostgresBackend
) -> None:
    for _ in range(2):
        await asyncio.to_thread(fleet.start)
    mix = Mix(store)
    await mix.run("red")
    await mix.finish()
    await asyncio.to_thread(fleet.settle)
    leader = await asyncio.to_thread(fleet.leader)
    await asyncio.to_thread(fleet.kill, leader)
    # Nobody counts for a while, and nothing of that time is lost.
    await mix.run("blue")
    follower = await asyncio.to_thread(fleet.leader)
    lag = key("queueoperator_event_log_lag_seconds")
    await asyncio.to_thread(fleet.until, lambda: lag in follower.last, "it has looked")
    await mix.finish()
    await asyncio.to_thread(fleet.settle)
