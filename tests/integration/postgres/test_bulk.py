"""Bulk operations on the same jobs, all at once: nobody is told of a deadlock, and the books
balance when all is quiet.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import psycopg
import pytest
from tests.contract.store import PostgresStore
from tests.integration.postgres.conftest import Ask
from tests.integration.postgres.lengths import rounds

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidTransition, JobNotFound, StaleLease
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.lease import Held
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event, JobState

SHARED = 500
CANCELLERS = 20
# So short that the sweeper finds every lease expired.
TTL_S = 0.000001
# A sweep that comes later than this after the one before takes it for an outage.
SWEEP_S = 600.0

Faults = Callable[[], Awaitable[list[str]]]


@pytest.fixture
async def replicas(dsn: str) -> AsyncIterator[list[PostgresBackend]]:
    opened = [
        await PostgresBackend.open(dsn, pool_size=7, statement_timeout_s=60.0) for _ in range(4)
    ]
    yield opened
    for backend in opened:
        await backend.close()


@pytest.fixture
async def faults(dsn: str) -> AsyncIterator[Faults]:
    """Jobs that are not in exactly one place, and counts that differ from a recount."""
    async with await psycopg.AsyncConnection.connect(
        dsn, autocommit=True, options="-c search_path=queue_operator"
    ) as admin:
        yield PostgresStore(dsn, admin).faults


async def test_cancels_outcomes_sweeps_staging_and_retention_never_deadlock(
    replicas: list[PostgresBackend],
    namespace: str,
    faults: Faults,
    no_deadlock: Callable[[], None],
) -> None:
    for n in range(rounds(short=6, long=1000)):
        ids = [f"{n}-{k}" for k in range(SHARED)]
        claimed = await _under_way(replicas[0], namespace, ids)
        await asyncio.gather(
            *(
                replicas[k % 4].cancel_jobs(
                    [], random.sample(ids, SHARED), namespace=namespace, force=bool(k % 2)
                )
                for k in range(CANCELLERS)
            ),
            *(_settle(r, namespace, claimed) for r in replicas),
            *(r.extend_leases(_held(namespace, claimed), lease_ttl_s=TTL_S) for r in replicas),
            *(r.expire_leases(lease_ttl_s=SWEEP_S) for r in replicas),
            *(r._staging.stage() for r in replicas),
            *(r.cleanup_expired_jobs(1e-6, namespace=namespace) for r in replicas),
            *(_submit_again(r, namespace, ids) for r in replicas[:2]),
        )
        no_deadlock()
        await _bring_to_rest(replicas[0], namespace, ids)
    assert await faults() == []


async def _under_way(backend: PostgresBackend, namespace: str, ids: list[str]) -> list[Assignment]:
    """A third of the jobs run, a third waits, and a third is about to be due."""
    third = len(ids) // 3
    soon = [Job(id=i, type="t", namespace=namespace, delay_s=0.05) for i in ids[:third]]
    now = [Job(id=i, type="t", namespace=namespace) for i in ids[third:]]
    await backend.enqueue_jobs([*soon, *now])
    demand = Demand(assignee_id="w", limit=third, namespace=namespace)
    return await backend.claim([demand], lease_ttl_s=TTL_S)


def _held(namespace: str, claimed: list[Assignment]) -> list[Held]:
    return [Held(a.job_id, a.token, namespace) for a in random.sample(claimed, len(claimed))]


async def _settle(
    backend: PostgresBackend, namespace: str, claimed: list[Assignment]
) -> list[Settled]:
    outcomes = [
        Outcome(
            a.job_id,
            random.sample([Event.COMPLETE, Event.FAIL, Event.STOP, Event.LOSE], 1)[0],
            namespace=namespace,
            token=a.token,
            error=ErrorInfo("x"),
        )
        for a in random.sample(claimed, len(claimed) // 2)
    ]
    answers = await backend.settle(outcomes)
    # Another may have ended it, claimed it, or deleted it.
    for error in (answer.error for answer in answers if answer.error):
        assert isinstance(error, InvalidTransition | StaleLease | JobNotFound)
    return answers


async def _submit_again(backend: PostgresBackend, namespace: str, ids: list[str]) -> None:
    """The same ids in another order each time; those that were deleted meanwhile are new."""
    jobs = [Job(id=i, type="t", namespace=namespace) for i in random.sample(ids, SHARED // 2)]
    await backend.submit(jobs, atomic=False)


async def _bring_to_rest(backend: PostgresBackend, namespace: str, ids: list[str]) -> None:
    await backend.cancel_jobs([], ids, namespace=namespace)
    await backend.settle([Outcome(i, Event.STOP, namespace=namespace) for i in ids])
    states = (await backend.get_job_stats([], namespace=namespace)).by_state
    assert states[JobState.RUNNING] + states[JobState.CANCELLING] == 0


# At rest


class Load:
    """Random calls by many callers, and the slots that each worker should have in use."""

    def __init__(self, replicas: list[PostgresBackend], namespace: str, seed: int) -> None:
        self.replicas = replicas
        self.namespace = namespace
        self.random = random.Random(seed)  # noqa: S311 (not for secrets)
        self.ids: list[str] = []
        self.claimed: list[Assignment] = []
        self.used: Counter[str] = Counter()

    async def run(self, caller: int, steps: int) -> None:
        backend = self.replicas[caller % len(self.replicas)]
        calls = [
            self.submit,
            self.claim,
            self.claim,
            self.settle,
            self.settle,
            self.cancel,
            self.retry,
            self.update,
            self.sweep,
            self.lose,
            self.delete,
        ]
        for _ in range(steps):
            await self.random.choice(calls)(backend)

    def some(self, most: int) -> list[str]:
        return self.random.sample(self.ids, min(len(self.ids), most))

    def free(self, answers: list[Settled]) -> None:
        for answer in answers:
            if answer.freed_assignee_id:
                self.used[answer.freed_assignee_id] -= 1

    async def submit(self, backend: PostgresBackend) -> None:
        jobs = [
            Job(
                id=f"{self.random.random()}",
                type="t",
                namespace=self.namespace,
                max_attempts=self.random.choice([None, 1, 2]),
                idempotency_key=self.random.choice(["", "", f"key-{self.random.randrange(40)}"]),
                depends_on=tuple(self.some(self.random.choice([0, 0, 2]))),
                dependency_mode=self.random.choice(list(DependencyMode)),
                delay_s=self.random.choice([None, None, 0.01]),
            )
            for _ in range(8)
        ]
        answers = await backend.submit(jobs, atomic=False)
        self.ids += [a.job_id for a in answers if a.error is None and not a.duplicate]

    async def claim(self, backend: PostgresBackend) -> None:
        await backend._staging.stage()
        demand = Demand(
            assignee_id=f"w{self.random.randrange(3)}", limit=10, namespace=self.namespace
        )
        ttl_s = self.random.choice([TTL_S, 600.0])
        claimed = await backend.claim([demand], lease_ttl_s=ttl_s)
        self.used[demand.assignee_id] += len(claimed)
        self.claimed += claimed

    async def settle(self, backend: PostgresBackend) -> None:
        chosen = self.random.sample(self.claimed, min(len(self.claimed), 12))
        # Not ACK_UNKNOWN: a slot comes back from it by the worker's word, not by the store's.
        events = [Event.COMPLETE, Event.COMPLETE, Event.FAIL, Event.EXHAUST, Event.STOP]
        events += [Event.STOP_WITH_RETRY, Event.RELEASE, Event.HAND_BACK, Event.ACK_EXECUTING]
        outcomes = [
            Outcome(
                a.job_id,
                self.random.choice(events),
                namespace=self.namespace,
                token=a.token,
                error=ErrorInfo("x", self.random.choice(list(ErrorCategory))),
                worker_plane=self.random.random() < 0.5,
            )
            for a in chosen
        ]
        self.free(await backend.settle(outcomes))

    async def cancel(self, backend: PostgresBackend) -> None:
        force = self.random.random() < 0.5
        if ids := self.some(4):
            await backend.cancel_jobs([], ids, namespace=self.namespace, force=force)

    async def retry(self, backend: PostgresBackend) -> None:
        outcomes = [
            Outcome(
                job_id,
                Event.RETRY_NOW,
                namespace=self.namespace,
                priority=self.random.choice([None, *Priority]),
                reset_attempts=self.random.random() < 0.5,
            )
            for job_id in self.some(8)
        ]
        self.free(await backend.settle(outcomes))

    async def update(self, backend: PostgresBackend) -> None:
        # Not what does not end a job, for the same reason as ACK_UNKNOWN.
        states = sorted(set(JobState) - {JobState.FAILED_RETRY, JobState.UNKNOWN_RETRY})
        for job_id in self.some(1):
            status = self.random.choice(states)
            try:
                freed = await backend.update_job_status(
                    job_id, status, b"r", "x", namespace=self.namespace
                )
            except (InvalidTransition, JobNotFound):
                continue
            self.used.subtract(freed)

    async def sweep(self, backend: PostgresBackend) -> None:
        for lost in await backend.expire_leases(lease_ttl_s=SWEEP_S):
            if lost.namespace == self.namespace:
                self.used[lost.assignee_id] -= 1

    async def lose(self, backend: PostgresBackend) -> None:
        self.used.subtract(await backend.mark_worker_unresponsive(f"w{self.random.randrange(3)}"))

    async def delete(self, backend: PostgresBackend) -> None:
        for job_id in self.some(2):
            try:
                await backend.delete_jobs([], [job_id], namespace=self.namespace)
            except InvalidTransition:
                continue


async def test_when_all_is_quiet_no_slot_is_in_use_and_the_counts_are_right(
    replicas: list[PostgresBackend],
    namespace: str,
    ask: Ask,
    faults: Faults,
    no_deadlock: Callable[[], None],
) -> None:
    for n in range(rounds(short=4, long=300)):
        load = Load(replicas, f"{namespace}-{n}", seed=n)
        await asyncio.gather(*(load.run(caller, 25) for caller in range(12)))
        no_deadlock()
        running = await ask(
            "SELECT assignee_id, count(*) FROM lease JOIN lane ON lane.id = lane_id"
            " JOIN namespace ON namespace.id = namespace_id WHERE name = %s GROUP BY 1",
            load.namespace,
        )
        assert {worker: used for worker, used in load.used.items() if used} == dict(running)
        freed = await replicas[0].reset_running_jobs(namespace=load.namespace)
        assert freed == dict(running)
        await replicas[0].cancel_jobs([], load.ids, namespace=load.namespace)
        depth = await replicas[0].queue_depth()
        left = {
            state: jobs
            for (space, _, state), jobs in depth.jobs.items()
            if space == load.namespace and jobs
        }
        assert set(left) & {JobState.RUNNING, JobState.CANCELLING} == set()
        assert await faults() == []
    await _aged(ask, timedelta(hours=1))
    while await replicas[0].expire_leases(lease_ttl_s=SWEEP_S):
        pass
    assert await faults() == []


async def _aged(ask: Ask, age: timedelta) -> None:
    await ask("UPDATE ready SET eligible_at = eligible_at - %s", age)
