"""A store of many jobs in many states: a few thousand come about by calls of the contract, and
the database copies their rows.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import TupleRow

from bench.programs.product import LEASE_TTL_S
from bench.programs.stores import JOB_TYPE, job_id
from bench.programs.tag_sets import of_job
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.sql import load
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event

SAMPLE: Final = 5_000
_CANCELLED: Final = 200
_WAITING: Final = 300
_COPIES_PER_STATEMENT: Final = 20
_COLUMNS: Final = load(__package__, "sample_columns")
_MULTIPLY: Final = load(__package__, "sample_multiply_counts")

_TIMES: Final = frozenset(
    {"created_at", "order_time", "changed_at", "assigned_at", "started_at", "finalized_at"}
)

Progress = Callable[[int], None]
Columns = dict[str, list[str]]


def _plain_job(number: int, payload: bytes) -> Job:
    return Job(id=job_id(number), type=JOB_TYPE, payload=payload, tags=of_job(number))


@dataclass(frozen=True, slots=True)
class Kind:
    """What the jobs are, how long those that run go on unattended, and by how many seconds each
    copy is older than the one before.
    """

    job: Callable[[int, bytes], Job] = _plain_job
    lease_ttl_s: float = LEASE_TTL_S
    apart_s: int = 0


PLAIN: Final = Kind()


async def build(
    dsn: str,
    backend: PostgresBackend,
    jobs: int,
    payload: int,
    on: Progress,
    kind: Kind = PLAIN,
) -> None:
    """Stores `jobs` jobs, a multiple of SAMPLE."""
    copies, rest = divmod(jobs, SAMPLE)
    if rest or not copies:
        raise ValueError(f"the number of jobs must be a multiple of {SAMPLE}")
    await _sample(backend, payload, kind)
    await multiply(dsn, copies, on, kind)


async def multiply(dsn: str, copies: int, on: Progress, kind: Kind = PLAIN) -> None:
    """Makes `copies` of all jobs that are stored, those themselves counted; `on` is told as if they
    were SAMPLE jobs.
    """
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("SET search_path = queue_operator; SET synchronous_commit = off")
        columns = await _columns(connection)
        step = await _span(connection)
        for first in range(1, copies, _COPIES_PER_STATEMENT):
            last = min(first + _COPIES_PER_STATEMENT, copies) - 1
            await _copy(connection, columns, step, range(first, last + 1), kind.apart_s)
            on((last + 1) * SAMPLE)
        await connection.execute(_MULTIPLY, {"copies": copies})
        # What autovacuum would have done while so many jobs came one by one.
        for table in columns:
            await connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))


async def _sample(backend: PostgresBackend, payload: int, kind: Kind) -> None:
    data = os.urandom(payload)
    await backend.enqueue_jobs([kind.job(n, data) for n in range(SAMPLE)])
    await backend.cancel_jobs((), [job_id(n) for n in range(_CANCELLED)])
    left = SAMPLE - _CANCELLED - _WAITING
    while left:
        demand = Demand(assignee_id="bench", limit=min(left, 500))
        claimed = await backend.claim([demand], lease_ttl_s=kind.lease_ttl_s)
        left -= len(claimed)
        outcomes = [_outcome(place, one) for place, one in enumerate(claimed) if place % 20]
        for answer in await backend.settle(outcomes):
            if answer.error is not None:
                raise answer.error
        await asyncio.sleep(0)


def _outcome(place: int, claimed: Assignment) -> Outcome:
    """One in twenty goes on running, some fail in different ways, most end well."""
    event = {1: Event.FAIL, 2: Event.FAIL, 3: Event.STOP}.get(place % 20, Event.COMPLETE)
    category = ErrorCategory.PERMANENT if place % 20 == 2 else ErrorCategory.TEMPORARY
    return Outcome(
        claimed.job_id,
        event,
        token=claimed.token,
        result=b"ok" if event is Event.COMPLETE else None,
        error=None if event is Event.COMPLETE else ErrorInfo("as wanted", category, "SAMPLE"),
    )


async def _columns(connection: AsyncConnection[TupleRow]) -> Columns:
    """The tables that name a job by its number and have rows, with what can be inserted."""
    columns: Columns = {}
    cursor = await connection.execute(_COLUMNS)
    for table, column in await cursor.fetchall():
        columns.setdefault(table, []).append(column)
    for table in list(columns):
        found = await connection.execute(
            sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(table))
        )
        if await found.fetchone() != (True,):
            del columns[table]
    return columns


async def _span(connection: AsyncConnection[TupleRow]) -> int:
    """How far copies must lie apart."""
    cursor = await connection.execute("SELECT max(job_no) + 1 FROM job")
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def _copy(
    connection: AsyncConnection[TupleRow],
    columns: Columns,
    step: int,
    copies: range,
    apart_s: int,
) -> None:
    """Copies the sample's rows, each copy under numbers, and ids, of its own."""
    for table, names in columns.items():
        statement = sql.SQL(
            "INSERT INTO {table} ({columns}) SELECT {values} FROM {table} "
            "CROSS JOIN generate_series({first}, {last}) AS copy WHERE job_no < {step}"
        ).format(
            table=sql.Identifier(table),
            columns=sql.SQL(", ").join(map(sql.Identifier, names)),
            values=sql.SQL(", ").join(_value(table, name, step, apart_s) for name in names),
            first=copies[0],
            last=copies[-1],
            step=step,
        )
        await connection.execute(statement)


def _value(table: str, column: str, step: int, apart_s: int) -> sql.Composable:
    if column == "job_no":
        return sql.SQL("job_no + copy * {}").format(step)
    if (table, column) == ("job", "id"):
        return sql.SQL("id || '-' || copy")
    if apart_s and column in _TIMES:
        return sql.SQL("{} - copy * make_interval(secs => {})").format(
            sql.Identifier(column), apart_s
        )
    return sql.Identifier(column)


async def counted(dsn: str) -> dict[str, int]:
    """Jobs by state, row by row."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute(load(__package__, "sample_states"))
        return {state: jobs for state, jobs in await cursor.fetchall()}
