"""Jobs as a site has them: one at a time, some delayed, some failing first; claimed in small
batches, or, to fill the tables, in large ones.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.programs.ledger import Ledger
from bench.programs.stores import JOB_TYPE, TAGS, job_id, number_of
from bench.programs.timings import Timings
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.errors import DuplicateJob
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event

LEASE_TTL_S: Final = 5.0
SMALL: Final = 20
"""Jobs per claim of the steady traffic."""
LARGE: Final = 1_000
_BURNERS: Final = 2
_FAILING: Final = 50
_DELAYED: Final = 20
_ATTEMPTS: Final = 20
_NOTHING_THERE_S: Final = 0.005
_MOST_OPEN: Final = 200


def fails(number: int) -> bool:
    """One in fifty, in its first attempt."""
    return number % _FAILING == 0


def is_delayed(number: int) -> bool:
    return number % _DELAYED == 7


@dataclass(slots=True)
class Pace:
    """By how much time is compressed, and up to how long jobs wait for a time."""

    compressed: float = 1.0
    delay_s: float = 30.0

    @property
    def delays_up_to_s(self) -> float:
        return self.delay_s * self.compressed


class Traffic:
    """Submits, claims and settles until it is told otherwise. What is unavailable is called again,
    and a job's claims are told apart by its attempt.
    """

    def __init__(
        self, backend: PostgresBackend, ledger: Ledger, timings: Timings, pace: Pace, payload: bytes
    ) -> None:
        self._backend = backend
        self._ledger = ledger
        self._timings = timings
        self._pace = pace
        self._payload = payload
        self._rng = random.Random(1)  # noqa: S311  (no secret, and the same jobs in each run)
        self._demand = Demand(assignee_id="bench", limit=SMALL, types=frozenset({JOB_TYPE}))
        self._open = asyncio.Semaphore(_MOST_OPEN)

    async def steady(self, rate: float, until_s: float) -> None:
        """Single submissions at random times, `rate` a second on average."""
        async with asyncio.TaskGroup() as group:
            working = group.create_task(self._work(until_s))
            due_s = time.perf_counter()
            while due_s < until_s:
                await asyncio.sleep(max(due_s - time.perf_counter(), 0.0))
                await self._open.acquire()
                group.create_task(self._submit_one())
                due_s += self._rng.expovariate(rate)
            await working

    async def burn(self, until_s: float, jobs: int = 0) -> int:
        """Large batches, as fast as it goes: `jobs`, or if 0 as many as go through until then."""
        first = self._ledger.reserved

        def is_over() -> bool:
            if jobs:
                return self._ledger.reserved - first >= jobs
            return time.perf_counter() >= until_s

        await asyncio.gather(*(self._burn(is_over) for _ in range(_BURNERS)))
        while await self.take(LARGE) == LARGE:
            pass
        return self._ledger.reserved - first

    async def take(self, limit: int) -> int:
        """Claims and settles so many; gives how many there were."""
        demand = replace(self._demand, limit=limit)
        claim = self._backend.claim([demand], lease_ttl_s=LEASE_TTL_S)
        claimed = await self._timings.of("burn_claim", claim) or []
        if claimed:
            self._note(claimed)
            await self._settle(claimed)
        return len(claimed)

    async def hold(self, jobs: int, type_: str) -> list[Assignment]:
        """Submits and claims jobs that go on running."""
        numbers = self._ledger.reserve(jobs)
        await self._backend.enqueue_jobs(
            [Job(id=job_id(n), type=type_, max_attempts=_ATTEMPTS) for n in numbers]
        )
        self._ledger.record_submitted(jobs)
        demand = Demand(assignee_id="holder", limit=jobs, types=frozenset({type_}))
        held = await self._backend.claim([demand], lease_ttl_s=LEASE_TTL_S)
        self._note(held)
        return held

    async def finish(self, claimed: Sequence[Assignment]) -> None:
        """All of them end well."""
        await self._settle(claimed, failing=False)

    async def _burn(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            numbers = self._ledger.reserve(LARGE)
            await self._store([self._job(n) for n in numbers], "burn_submit")
            await self.take(LARGE)

    async def _work(self, until_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            while time.perf_counter() < until_s:
                claim = self._backend.claim([self._demand], lease_ttl_s=LEASE_TTL_S)
                claimed = await self._timings.of("claim", claim) or []
                if claimed:
                    self._note(claimed)
                    group.create_task(self._settle(claimed))
                if len(claimed) < SMALL:
                    await asyncio.sleep(_NOTHING_THERE_S)

    async def _submit_one(self) -> None:
        try:
            [number] = self._ledger.reserve(1)
            await self._store([self._job(number)], "submit")
        finally:
            self._open.release()

    async def _store(self, jobs: Sequence[Job], what: str) -> None:
        """Until all are stored: whoever heard nothing finds that they are there."""
        while True:
            try:
                if await self._timings.of(what, self._submit(jobs)) is not None:
                    break
            except DuplicateJob:
                break
        self._ledger.record_submitted(len(jobs))

    async def _submit(self, jobs: Sequence[Job]) -> bool:
        if len(jobs) == 1:
            await self._backend.enqueue_job(jobs[0])
        else:
            await self._backend.enqueue_jobs(jobs)
        return True

    def _job(self, number: int) -> Job:
        delay_s = self._rng.uniform(0.0, self._pace.delays_up_to_s) if is_delayed(number) else None
        return Job(
            id=job_id(number),
            type=JOB_TYPE,
            payload=self._payload,
            tags=TAGS,
            delay_s=delay_s,
            max_attempts=_ATTEMPTS,
        )

    def _note(self, claimed: Sequence[Assignment]) -> None:
        self._ledger.record_attempts([(one.job_id, one.token, one.attempt) for one in claimed])

    async def _settle(self, claimed: Sequence[Assignment], *, failing: bool = True) -> None:
        outcomes = [self._outcome(one, failing=failing) for one in claimed]
        while (answers := await self._timings.of("settle", self._backend.settle(outcomes))) is None:
            pass
        ended = [
            (outcome.job_id, outcome.token or "")
            for outcome, answer in zip(outcomes, answers, strict=True)
            if outcome.event is Event.COMPLETE and answer.error is None
        ]
        self._ledger.record_completed(ended)

    def _outcome(self, one: Assignment, *, failing: bool) -> Outcome:
        if failing and one.attempt == 1 and fails(number_of(one.job_id)):
            after_s = self._rng.uniform(0.0, self._pace.delays_up_to_s)
            error = ErrorInfo("as wanted")
            return Outcome(
                one.job_id, Event.FAIL, token=one.token, error=error, retry_after_s=after_s
            )
        return Outcome(one.job_id, Event.COMPLETE, token=one.token, result=b"ok")
