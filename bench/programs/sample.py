"""A store of many jobs in many states: a few thousand come about by calls of the contract, and
the database copies their rows.
"""

import asyncio
import os
from collections.abc import Callable
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
_MULTIPLY: Final = (
    load(__package__, "sample_multiply_counts"),
    load(__package__, "sample_multiply_deltas"),
)

Progress = Callable[[int], None]
Columns = dict[str, list[str]]


async def build(dsn: str, backend: PostgresBackend, jobs: int, payload: int, on: Progress) -> None:
    """Stores `jobs` jobs, a multiple of SAMPLE."""
    copies, rest = divmod(jobs, SAMPLE)
    if rest or not copies:
        raise ValueError(f"the number of jobs must be a multiple of {SAMPLE}")
    await _sample(backend, payload)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute("SET search_path = queue_operator; SET synchronous_commit = off")
        columns = await _columns(connection)
        step = await _span(connection)
        for first in range(1, copies, _COPIES_PER_STATEMENT):
            last = min(first + _COPIES_PER_STATEMENT, copies) - 1
            await _copy(connection, columns, step, first, last)
            on((last + 1) * SAMPLE)
        for statement in _MULTIPLY:
            await connection.execute(statement, {"copies": copies})
        # What autovacuum would have done while so many jobs came one by one.
        for table in columns:
            await connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))


async def _sample(backend: PostgresBackend, payload: int) -> None:
    data = os.urandom(payload)
    await backend.enqueue_jobs(
        [Job(id=job_id(n), type=JOB_TYPE, payload=data, tags=of_job(n)) for n in range(SAMPLE)]
    )
    await backend.cancel_jobs((), [job_id(n) for n in range(_CANCELLED)])
    left = SAMPLE - _CANCELLED - _WAITING
    while left:
        demand = Demand(assignee_id="bench", limit=min(left, 500))
        claimed = await backend.claim([demand], lease_ttl_s=LEASE_TTL_S)
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
    connection: AsyncConnection[TupleRow], columns: Columns, step: int, first: int, last: int
) -> None:
    """Copies the sample's rows, each copy under numbers, and ids, of its own."""
    for table, names in columns.items():
        statement = sql.SQL(
            "INSERT INTO {table} ({columns}) SELECT {values} FROM {table} "
            "CROSS JOIN generate_series({first}, {last}) AS copy WHERE job_no < {step}"
        ).format(
            table=sql.Identifier(table),
            columns=sql.SQL(", ").join(map(sql.Identifier, names)),
            values=sql.SQL(", ").join(_value(table, name, step) for name in names),
            first=first,
            last=last,
            step=step,
        )
        await connection.execute(statement)


def _value(table: str, column: str, step: int) -> sql.Composable:
    if column == "job_no":
        return sql.SQL("job_no + copy * {}").format(step)
    if (table, column) == ("job", "id"):
        return sql.SQL("id || '-' || copy")
    return sql.Identifier(column)


async def counted(dsn: str) -> dict[str, int]:
    """Jobs by state, row by row."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute(load(__package__, "sample_states"))
        return {state: jobs for state, jobs in await cursor.fetchall()}
