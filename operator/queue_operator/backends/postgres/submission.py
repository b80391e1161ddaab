"""Submission: many jobs in one statement, all or none."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.claiming import Marks
from queue_operator.backends.postgres.connection import Pool, borrowed, transaction
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.sql import load
from queue_operator.domain.errors import DuplicateJob
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import PRIORITY_BONUS
from queue_operator.domain.retry import Backoff

_SUBMIT: Final = load(__package__, "submit")
_RESERVE: Final = "SELECT nextval('job_no_block')"
_BLOCK: Final = 1000
_GROUP: Final = 500


class Numbers:
    """Job numbers, reserved in blocks so that a batch need not be read back."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._free: list[int] = []

    async def take(self, count: int) -> list[int]:
        while len(self._free) < count:
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute(_RESERVE)
                row = await cursor.fetchone()
            block = row[0] if row else 0
            self._free += range(block * _BLOCK, (block + 1) * _BLOCK)
        taken, self._free = self._free[:count], self._free[count:]
        return taken


class Submission:
    """Stores jobs that were validated before."""

    def __init__(self, pool: Pool, lanes: Lanes, marks: Marks) -> None:
        self._pool = pool
        self._lanes = lanes
        self._marks = marks
        self._numbers = Numbers(pool)
        self._waiting: list[tuple[Job, asyncio.Future[bool]]] = []
        self._flusher: asyncio.Task[None] | None = None

    async def store_all(self, jobs: Sequence[Job]) -> None:
        """Raises DuplicateJob, and stores nothing, when an id exists."""
        taken = await self._try_store(jobs)
        if taken:
            raise DuplicateJob(tuple(jobs[index].id for index in taken), tuple(taken))

    async def store_new(self, jobs: Sequence[Job]) -> list[int]:
        """Stores those whose id does not exist, and gives their positions."""
        left = list(range(len(jobs)))
        while left:
            taken = await self._try_store([jobs[index] for index in left])
            if not taken:
                break
            left = [index for place, index in enumerate(left) if place not in set(taken)]
        return left

    async def store_one(self, job: Job) -> None:
        """As store_all, but shares a statement and a commit with concurrent callers."""
        stored = asyncio.get_running_loop().create_future()
        self._waiting.append((job, stored))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        if not await stored:
            raise DuplicateJob((job.id,))

    async def _flush(self) -> None:
        # Whoever comes while a statement runs goes with the next one.
        while self._waiting:
            group, self._waiting = self._waiting[:_GROUP], self._waiting[_GROUP:]
            try:
                new = set(await self.store_new([job for job, _ in group]))
            except Exception as error:
                _answer(group, error)
            else:
                _answer(group, new)

    async def _try_store(self, jobs: Sequence[Job]) -> list[int]:
        """Stores all and gives nothing, or stores none and gives the positions of the ids
        that exist already.
        """
        lanes = await self._lanes.of_jobs(jobs)
        namespaces = [await self._lanes.namespace_id(job.namespace) or 0 for job in jobs]
        numbers = await self._numbers.take(len(jobs))
        parameters = _parameters(jobs, numbers, namespaces, lanes)
        taken: list[int] = []
        try:
            async with transaction(self._pool) as connection:
                new = await _store(connection, parameters)
                taken = [place for place, number in enumerate(numbers) if number not in new]
                if taken:
                    raise _RollBack
        except _RollBack:
            return taken
        # A time of the caller's own may lie before the mark; the database's never does.
        self._marks.forget([lane for lane, job in zip(lanes, jobs, strict=True) if job.created_at])
        return []


class _RollBack(Exception):
    """Some ids exist: undo the rest."""


def _answer(group: list[tuple[Job, asyncio.Future[bool]]], outcome: set[int] | Exception) -> None:
    for place, (_, stored) in enumerate(group):
        if stored.done():
            continue
        if isinstance(outcome, Exception):
            stored.set_exception(outcome)
        else:
            stored.set_result(place in outcome)


async def _store(connection: AsyncConnection[TupleRow], parameters: dict[str, Any]) -> set[int]:
    cursor = await connection.execute(_SUBMIT, parameters)
    return {number for (number,) in await cursor.fetchall()}


def _parameters(
    jobs: Sequence[Job], numbers: Sequence[int], namespaces: Sequence[int], lanes: Sequence[int]
) -> dict[str, Any]:
    resources = [job.resource for job in jobs]
    return {
        "numbers": list(numbers),
        "namespaces": list(namespaces),
        "ids": [job.id for job in jobs],
        "lanes": list(lanes),
        "payloads": [job.payload for job in jobs],
        "content_types": [job.content_type for job in jobs],
        "created": [job.created_at for job in jobs],
        "correlations": [job.correlation_id for job in jobs],
        "clusters": [r.cluster_uid if r else None for r in resources],
        "names": [r.name if r else None for r in resources],
        "generations": [r.generation if r else None for r in resources],
        "delays": [job.delay_s for job in jobs],
        "scheduled": [job.scheduled_at for job in jobs],
        "max_attempts": [job.max_attempts for job in jobs],
        "timeouts": [job.timeout_s for job in jobs],
        "backoffs": [dump_backoff(job.backoff) for job in jobs],
        "bonuses": [PRIORITY_BONUS[job.priority].total_seconds() for job in jobs],
        "event_details": json.dumps([_details(job) for job in jobs]),
    }


def _details(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "namespace": job.namespace,
        "type": job.type,
        "tags": sorted(job.tags),
        "priority": job.priority.value,
        "correlation_id": job.correlation_id,
    }


def dump_backoff(backoff: Backoff | None) -> str | None:
    return None if backoff is None else json.dumps(asdict(backoff))
