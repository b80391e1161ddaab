"""The fast way in: large batches of plain jobs are copied, which costs a third of inserting.

A plain job has no idempotency key, waits for nobody and belongs to no custom resource. COPY
cannot pass over an id that exists: then all is undone, and the batch goes the other way, which
says which ids they are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrays import Int8s, Texts
from queue_operator.backends.postgres.batch import Numbers, dump_backoff, submission_event
from queue_operator.backends.postgres.connection import (
    LONG_S,
    Pool,
    again_after_deadlock,
    transaction,
)
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.sql import load
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import order_time

_JOB: Final = load(__package__, "copy_job")
_JOB_TYPES: Final = ("int8", "int4", "text", "int4", "bytea", "text", "timestamptz", "text")
_READY: Final = load(__package__, "copy_ready")
_READY_TYPES: Final = (
    "int8",
    "int4",
    "timestamptz",
    "timestamptz",
    "bool",
    "timestamptz",
    "int4",
    "float8",
    "jsonb",
)
_TOLD: Final = load(__package__, "submit_told")
_LEAST: Final = 50


def can_be_copied(jobs: Sequence[Job]) -> bool:
    """True for a batch that is worth it, of plain jobs only."""
    return len(jobs) >= _LEAST and not any(
        job.idempotency_key
        or job.depends_on
        or job.resource
        or job.dependency_mode is not DependencyMode.AFTER
        for job in jobs
    )


class Copying:
    """Stores batches of plain jobs."""

    def __init__(self, pool: Pool, lanes: Lanes, numbers: Numbers) -> None:
        self._pool = pool
        self._lanes = lanes
        self._numbers = numbers

    async def store(self, jobs: Sequence[Job]) -> list[int] | None:
        """Stores all and gives their lanes, or stores nothing because an id exists."""
        lanes = await self._lanes.of_jobs(jobs)
        names = {job.namespace for job in jobs}
        spaces = {name: await self._lanes.namespace_id(name) or 0 for name in names}
        numbers = await self._numbers.take(len(jobs))
        # The order in which everybody stores jobs: of two batches with equal ids, neither then
        # has an id that the other waits for.
        order = sorted(range(len(jobs)), key=lambda n: (spaces[jobs[n].namespace], jobs[n].id))
        try:
            await self._copy(
                [jobs[n] for n in order],
                [numbers[n] for n in order],
                [spaces[jobs[n].namespace] for n in order],
                [lanes[n] for n in order],
            )
        except psycopg.errors.UniqueViolation:
            return None
        return lanes

    @again_after_deadlock
    async def _copy(
        self,
        jobs: Sequence[Job],
        numbers: Sequence[int],
        namespaces: Sequence[int],
        lanes: Sequence[int],
    ) -> None:
        async with transaction(self._pool, LONG_S) as connection:
            cursor = await connection.execute("SELECT now()")
            [[now]] = await cursor.fetchall()
            given = zip(numbers, namespaces, lanes, jobs, strict=True)
            rows: Iterable[tuple[Any, ...]] = (
                _job(number, space, lane, job, now) for number, space, lane, job in given
            )
            await _write(connection, _JOB, _JOB_TYPES, rows)
            rows = (
                _ready(number, lane, job, now)
                for number, lane, job in zip(numbers, lanes, jobs, strict=True)
            )
            await _write(connection, _READY, _READY_TYPES, rows)
            await connection.execute(_TOLD, _told(jobs, numbers, lanes))


async def _write(
    connection: AsyncConnection[TupleRow],
    statement: str,
    types: Sequence[str],
    rows: Iterable[tuple[Any, ...]],
) -> None:
    async with connection.cursor().copy(statement.encode()) as copy:
        copy.set_types(types)
        for row in rows:
            await copy.write_row(row)


def _job(number: int, space: int, lane: int, job: Job, now: datetime) -> tuple[Any, ...]:
    made = job.created_at or now
    return number, space, job.id, lane, job.payload, job.content_type, made, job.correlation_id


def _ready(number: int, lane: int, job: Job, now: datetime) -> tuple[Any, ...]:
    eligible_at = now
    if job.scheduled_at is not None:
        eligible_at = max(now, job.scheduled_at)
    elif job.delay_s is not None:
        eligible_at = now + timedelta(seconds=job.delay_s)
    return (
        number,
        lane,
        order_time(job.created_at or now, None, job.priority),
        job.created_at or now,
        eligible_at <= now,
        eligible_at,
        job.max_attempts,
        job.timeout_s,
        dump_backoff(job.backoff),
    )


def _told(jobs: Sequence[Job], numbers: Sequence[int], lanes: Sequence[int]) -> dict[str, Any]:
    counts = Counter(lanes)
    return {
        **submission_event(jobs, lanes),
        "numbers": Int8s(numbers),
        "ids": Texts(job.id for job in jobs),
        "lanes": list(counts),
        "lane_jobs": list(counts.values()),
    }
