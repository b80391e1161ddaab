"""The alternative to our tables: one wide row per job, updated in place, with all that the
product's submission, claim and completion do.

It is the product's own backend, schema and client, with four tables and the statements of the
hot path exchanged, so that nothing but the design of the tables differs. What fails, waits or
is cancelled takes statements that were not exchanged, and would raise.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from struct import Struct
from typing import Any, Final, Self

import psycopg

from bench.programs.product import Product
from queue_operator.backends.postgres import (
    PostgresBackend,
    claiming,
    completing,
    copying,
    migrate,
    staging,
)
from queue_operator.backends.postgres.connection import (
    again_when_undone,
    patience_for,
    transaction,
)
from queue_operator.backends.postgres.lanes import Interned
from queue_operator.backends.sql import load
from queue_operator.domain.job import Job

_SCHEMA: Final = load(__package__, "wide_schema")
_COPY: Final = load(__package__, "wide_copy")

_FIELDS: Final = Struct(">h").pack(14)
# Within what the product copies into `ready`: the number of fields, job number, lane; then the
# order time, then the time of creation, which `job` has already.
_COUNT: Final = 2
_ORDER: Final = slice(22, 34)
_REST: Final = slice(46, None)


class WideRow(Product):
    """While one is open, no other backend of the process can be used."""

    audit_statement = load(__package__, "wide_audit")

    def __init__(self, backend: PostgresBackend, dsn: str, payload: bytes) -> None:
        super().__init__(backend, dsn, payload)
        self._exchange = ExitStack()

    @classmethod
    async def open(cls, dsn: str, payload: bytes) -> Self:
        await migrate(dsn)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(_SCHEMA)
        store = cls(await PostgresBackend.open(dsn), dsn, payload)
        store._exchange.enter_context(_exchanged())
        return store

    async def close(self) -> None:
        self._exchange.close()
        await super().close()


@contextmanager
def _exchanged() -> Iterator[None]:
    places: list[tuple[Any, str, object]] = [
        (claiming, "_CLAIM", load(__package__, "wide_claim")),
        (completing, "_COMPLETE", load(__package__, "wide_complete")),
        (copying.Copying, "_copy", _copy),
        (staging.Staging, "stage", _nothing_is_due),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, ours in places:
        setattr(owner, name, ours)
    try:
        yield
    finally:
        for owner, name, theirs in before:
            setattr(owner, name, theirs)


async def _nothing_is_due(_: staging.Staging) -> list[int]:
    """None of these jobs is delayed."""
    return []


@again_when_undone
async def _copy(
    self: copying.Copying,
    jobs: Sequence[Job],
    numbers: Sequence[int],
    namespaces: Sequence[int],
    lanes: Interned,
) -> datetime:
    """As `Copying._copy`, with one row per job."""
    patience_s = patience_for(len(jobs), sum(len(job.payload) for job in jobs))
    async with transaction(self._pool, patience_s) as connection:
        clock = copying._Clock(await lanes.sure.check(connection))
        given = zip(numbers, namespaces, lanes.ids, jobs, strict=True)
        await copying._write(connection, _COPY, (_row(*one, clock) for one in given))
        told = copying._told(jobs, numbers, lanes.ids)
        arrived = copying._arrived(numbers, lanes.ids, jobs, clock)
        await connection.execute(copying._TOLD, told | arrived)
    return clock.now


def _row(number: int, space: int, lane: int, job: Job, clock: copying._Clock) -> bytes:
    submitted = copying._job(number, space, lane, job, clock)
    waiting = copying._ready(number, lane, job, clock)
    return b"".join((_FIELDS, submitted[_COUNT:], waiting[_ORDER], waiting[_REST]))
