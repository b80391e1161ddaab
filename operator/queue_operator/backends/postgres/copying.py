"""The fast way in: large batches of plain jobs are copied, which costs a third of inserting.

A plain job has no idempotency key, waits for nobody and belongs to no custom resource. COPY
cannot pass over an id that exists: then all is undone, and the batch goes the other way, which
says which ids they are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from struct import Struct
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrays import (
    EPOCH,
    MICROSECOND,
    NULL,
    Int8s,
    Microseconds,
    Texts,
)
from queue_operator.backends.postgres.batch import (
    Numbers,
    dump_backoff,
    store_callbacks,
    submission_event,
)
from queue_operator.backends.postgres.connection import (
    Pool,
    again_when_undone,
    patience_for,
    transaction,
)
from queue_operator.backends.postgres.lanes import Interned, Lanes, LanesInDoubt
from queue_operator.backends.sql import load
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority, order_time

_JOB: Final = load(__package__, "copy_job", traced="")
_TRACED: Final = load(__package__, "copy_job", traced=", traceparent, tracestate")
_READY: Final = load(__package__, "copy_ready")
_TOLD: Final = load(__package__, "submit_told")
_LEAST: Final = 50
_BLOCK: Final = 1000

# The binary format of COPY: a row is the number of its fields, and each field its length in
# bytes, -1 for NULL, and its value. A jsonb value begins with its version.
_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_NUMBERS: Final = Struct(">hiqiii").pack
_LANE: Final = Struct(">iii").pack
_LENGTH: Final = Struct(">i").pack
_MADE: Final = Struct(">iqi").pack
_TIMES: Final = Struct(">hiqiiiqiqi?iq").pack
_INT4: Final = Struct(">ii").pack
_FLOAT8: Final = Struct(">id").pack
_JSONB: Final = Struct(">ib").pack
_NO_LIMITS: Final = NULL * 3


def can_be_copied(jobs: Sequence[Job]) -> bool:
    """True for a batch that is worth it, of plain jobs only."""
    return len(jobs) >= _LEAST and not any(
        job.idempotency_key
        or job.depends_on
        or job.resource
        or job.suspended
        or job.dependency_mode is not DependencyMode.AFTER
        for job in jobs
    )


class Copying:
    """Stores batches of plain jobs."""

    def __init__(self, pool: Pool, lanes: Lanes, numbers: Numbers) -> None:
        self._pool = pool
        self._lanes = lanes
        self._numbers = numbers

    async def store(self, jobs: Sequence[Job]) -> datetime | None:
        """Stores all and gives the time that it was, or nothing because an id exists."""
        lanes = await self._lanes.of_jobs(jobs)
        names = {job.namespace for job in jobs}
        spaces = {name: await self._lanes.namespace_id(name) or 0 for name in names}
        numbers = await self._numbers.take(len(jobs))
        # The order in which everybody stores jobs: of two batches with equal ids, neither then
        # has an id that the other waits for.
        order = sorted(range(len(jobs)), key=lambda n: (spaces[jobs[n].namespace], jobs[n].id))
        try:
            return await self._copy(
                [jobs[n] for n in order],
                [numbers[n] for n in order],
                [spaces[jobs[n].namespace] for n in order],
                Interned([lanes.ids[n] for n in order], lanes.sure),
            )
        except psycopg.errors.UniqueViolation:
            return None
        except LanesInDoubt:
            self._lanes.doubt(jobs)
            return await self.store(jobs)

    @again_when_undone
    async def _copy(
        self,
        jobs: Sequence[Job],
        numbers: Sequence[int],
        namespaces: Sequence[int],
        lanes: Interned,
    ) -> datetime:
        patience_s = patience_for(len(jobs), sum(len(job.payload) for job in jobs))
        async with transaction(self._pool, patience_s) as connection:
            clock = _Clock(await lanes.sure.check(connection))
            given = zip(numbers, namespaces, lanes.ids, jobs, strict=True)
            if any(job.traceparent for job in jobs):
                await _write(connection, _TRACED, (_traced(*one, clock) for one in given))
            else:
                await _write(connection, _JOB, (_job(*one, clock) for one in given))
            waiting = zip(numbers, lanes.ids, jobs, strict=True)
            await _write(connection, _READY, (_ready(*one, clock) for one in waiting))
            told = _told(jobs, numbers, lanes.ids)
            arrived = _arrived(numbers, lanes.ids, jobs, clock)
            await connection.execute(_TOLD, told | arrived)
            await store_callbacks(connection, jobs, numbers)
        return clock.now


async def _write(
    connection: AsyncConnection[TupleRow], statement: str, rows: Iterable[bytes]
) -> None:
    """Rows in the binary form of COPY. psycopg would look at each value of each row, which
    costs as much as all else that is done for a job before it is sent.
    """
    async with connection.cursor().copy(statement.encode()) as copy:
        await copy.write(_HEADER)
        left = iter(rows)
        while block := b"".join(islice(left, _BLOCK)):
            await copy.write(block)
        await copy.write(_TRAILER)


class _Clock:
    """What the rows of one transaction have in common: its time, as COPY wants it."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.now_us = _us(now)
        self._order_us: dict[Priority, int] = {}

    def order_us(self, priority: Priority) -> int:
        if priority not in self._order_us:
            self._order_us[priority] = _us(order_time(self.now, None, priority))
        return self._order_us[priority]


def _arrived(
    numbers: Sequence[int], lanes: Sequence[int], jobs: Sequence[Job], clock: _Clock
) -> dict[str, Any]:
    """Where the rows of one transaction wait: by lane one range, and each job's own place where the
    submitter gave a time of creation, which may be any.
    """
    now = clock.now
    new, spans = dict[int, Job](), dict[int, tuple[int, int]]()
    aged, due_at = list[tuple[int, int, int]](), None
    for number, lane, job in zip(numbers, lanes, jobs, strict=True):
        if (job.delay_s or job.scheduled_at) and (at := eligible(job, now)) > now:
            due_at = min(due_at or at, at)
        elif job.created_at is None:
            new[lane] = job
            first, last = spans.get(lane, (number, number))
            spans[lane] = min(first, number), max(last, number)
        else:
            aged.append((lane, _us(order_time(job.created_at, None, job.priority)), number))
    times_us = [clock.order_us(job.priority) for job in new.values()]
    aged_us, aged_no = [at_us for _, at_us, _ in aged], [number for _, _, number in aged]
    return {
        "arrived": Int8s([*new, *(lane for lane, _, _ in aged)]),
        "firsts": Microseconds([*times_us, *aged_us]),
        "first_nos": Int8s([*(first for first, _ in spans.values()), *aged_no]),
        "lasts": Microseconds([*times_us, *aged_us]),
        "last_nos": Int8s([*(last for _, last in spans.values()), *aged_no]),
        "due_at": due_at,
    }


def _us(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def _traced(number: int, space: int, lane: int, job: Job, clock: _Clock) -> bytes:
    """As `_job`, with two fields more."""
    row = _job(number, space, lane, job, clock, fields=10)
    return b"".join((row, _text(job.traceparent), _text(job.tracestate)))


def _text(given: str) -> bytes:
    if not given:
        return NULL
    text = given.encode()
    return _LENGTH(len(text)) + text


def _job(number: int, space: int, lane: int, job: Job, clock: _Clock, *, fields: int = 8) -> bytes:
    name, kind = job.id.encode(), job.content_type.encode()
    correlation = job.correlation_id.encode()
    made_us = clock.now_us if job.created_at is None else _us(job.created_at)
    return b"".join(
        (
            _NUMBERS(fields, 8, number, 4, space, len(name)),
            name,
            _LANE(4, lane, len(job.payload)),
            job.payload,
            _LENGTH(len(kind)),
            kind,
            _MADE(8, made_us, len(correlation)),
            correlation,
        )
    )


def _ready(number: int, lane: int, job: Job, clock: _Clock) -> bytes:
    made_us, order_us = clock.now_us, clock.order_us(job.priority)
    if job.created_at is not None:
        made_us, order_us = _us(job.created_at), _us(order_time(job.created_at, None, job.priority))
    eligible_us = clock.now_us
    if job.delay_s or job.scheduled_at:
        eligible_us = _us(eligible(job, clock.now))
    due = eligible_us <= clock.now_us
    times = _TIMES(9, 8, number, 4, lane, 8, order_us, 8, made_us, 1, due, 8, eligible_us)
    if job.max_attempts is None and job.timeout_s is None and job.backoff is None:
        return times + _NO_LIMITS
    backoff = dump_backoff(job.backoff)
    return b"".join(
        (
            times,
            NULL if job.max_attempts is None else _INT4(4, job.max_attempts),
            NULL if job.timeout_s is None else _FLOAT8(8, job.timeout_s),
            NULL if backoff is None else _JSONB(len(backoff) + 1, 1) + backoff.encode(),
        )
    )


def eligible(job: Job, now: datetime) -> datetime:
    """When a job may run that is stored now."""
    if job.scheduled_at is not None:
        return max(now, job.scheduled_at)
    if job.delay_s is not None:
        return now + timedelta(seconds=job.delay_s) // MICROSECOND * MICROSECOND
    return now


def _told(jobs: Sequence[Job], numbers: Sequence[int], lanes: Sequence[int]) -> dict[str, Any]:
    counts = Counter(lanes)
    return {
        **submission_event(jobs, lanes),
        "numbers": Int8s(numbers),
        "ids": Texts(job.id for job in jobs),
        "lanes": Int8s(counts),
        "lane_jobs": Int8s(counts.values()),
    }
