"""Calls that select jobs by ids or tags: cancel, detach, delete, clean up.

Each is one transaction, in steps of bounded size. What has ended is neither locked nor looked up,
unless it is named or deleted: a cancel by tags tells its ids, and reads no more of it.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from psycopg import AsyncConnection, AsyncCursor, AsyncServerCursor
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.assigned import STANDING
from queue_operator.backends.postgres.connection import Pool, again_when_undone, transaction
from queue_operator.backends.postgres.consequences import follow, run
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.looking import find_lanes
from queue_operator.backends.postgres.rows import (
    Given,
    LockedRow,
    Terms,
    ask_to_stop,
    lock_rows,
    move_rows,
)
from queue_operator.backends.protocol import DELETE
from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.job import Cancelled, CancelRequest
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import SLOT_HOLDING, TERMINAL, Event, JobState
from queue_operator.domain.transition import Move, decide

_BY_ID: Final = load(__package__, "find_numbers")
_BY_LANE: Final = load(__package__, "find_by_lanes")
_BY_UID: Final = load(__package__, "find_by_uid")
_STANDING: Final = load(__package__, "find_standing", standing=STANDING)
_EXPIRED: Final = load(__package__, "find_expired_final")
_DELETE: Final = load(__package__, "delete")
_NAMESPACES: Final = "SELECT id FROM namespace ORDER BY id"
_DETACH: Final = (
    "INSERT INTO detached (job_no) SELECT unnest(%(job_nos)s::bigint[]) ON CONFLICT DO NOTHING"
)
_STEP: Final = 1000
_TELLING: Final = 10_000
_FIRST: Final = datetime.min.replace(tzinfo=UTC)

_Connection = AsyncConnection[TupleRow]


class Selection:
    """Acts on sets of jobs."""

    def __init__(self, pool: Pool, lanes: Lanes, rng: Callable[[], float]) -> None:
        self._pool = pool
        self._lanes = lanes
        self._rng = rng

    @again_when_undone
    async def cancel(
        self,
        namespace: str,
        tags: Collection[str],
        job_ids: Collection[str],
        force: bool,
        reason: str,
    ) -> Cancelled:
        wanted = await self._wanted(namespace, tags, job_ids)

        async def work(connection: _Connection, terms: Terms) -> Cancelled:
            named = await _by_id(connection, wanted)
            known = set(named.values())
            cancel = _Cancel(connection, terms, Given(force=force, reason=reason), self._rng)
            cancel.unknown.extend(job_id for job_id in wanted.ids if job_id not in known)
            # Those that are named go in one step: by number alone nothing tells which of the
            # tables has to be locked first.
            await cancel.step(named)
            if wanted.tags:
                async with _of_tags(connection, wanted) as (lanes, all_jobs):
                    await cancel.all_of(lanes, all_jobs, named)
            return await cancel.done()

        return await run(self._pool, work)

    @again_when_undone
    async def detach(self, uids: Collection[str]) -> Cancelled:
        """Their resources are gone: a forced cancel of what has not finished."""

        async def work(connection: _Connection, terms: Terms) -> Cancelled:
            cursor = await connection.execute(_BY_UID, {"uids": list(uids)})
            ids = {number: job_id for number, job_id in await cursor.fetchall()}
            await connection.execute(_DETACH, {"job_nos": list(ids)})
            given = Given(force=True, reason="the resource was deleted")
            cancel = _Cancel(connection, terms, given, self._rng)
            await cancel.step(ids)
            return await cancel.done()

        return await run(self._pool, work)

    @again_when_undone
    async def delete(self, namespace: str, tags: Collection[str], job_ids: Collection[str]) -> int:
        wanted = await self._wanted(namespace, tags, job_ids)

        async def work(connection: _Connection, terms: Terms) -> int:
            named = list(await _by_id(connection, wanted))
            await _refuse_standing(connection, named, terms)
            deleted = 0
            for some in _steps(named):
                deleted += await _delete(connection, some)
            if wanted.tags:
                async with _of_tags(connection, wanted) as (lanes, all_jobs):
                    # Before anything of theirs is read, of which there may be very much.
                    first = await _standing(connection, lanes, max_rows=1)
                    await _refuse_standing(connection, first, terms)
                    while rows := await all_jobs.fetchmany(_STEP):
                        numbers = [number for number, _ in rows]
                        deleted += await _delete_ended(connection, numbers, terms)
            return deleted

        return await run(self._pool, work)

    @again_when_undone
    async def cleanup(self, ttl_s: float, namespace: str | None) -> int:
        """Of one namespace, or of all."""
        namespace_id = None if namespace is None else await self._lanes.namespace_id(namespace)
        if namespace is not None and namespace_id is None:
            return 0
        async with transaction(self._pool) as connection:
            if namespace_id is not None:
                return await _clean_up(connection, ttl_s, namespace_id)
            cursor = await connection.execute(_NAMESPACES)
            return sum(
                [await _clean_up(connection, ttl_s, one) for (one,) in await cursor.fetchall()]
            )

    async def _wanted(
        self, namespace: str, tags: Collection[str], job_ids: Collection[str]
    ) -> "_Wanted":
        ids = list(dict.fromkeys(job_ids))
        return _Wanted(namespace, tags, await self._lanes.namespace_id(namespace), ids)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a call selects: tags that its jobs carry, and ids; with the number of the namespace."""

    namespace: str
    tags: Collection[str]
    namespace_id: int | None
    ids: list[str]


@dataclass(slots=True)
class _Cancel:
    """One cancel, step by step, and what there is to be said of it."""

    connection: _Connection
    terms: Terms
    given: Given
    rng: Callable[[], float]
    cancelled: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    requests: list[CancelRequest] = field(default_factory=list)
    parents: list[tuple[LockedRow, Move]] = field(default_factory=list)

    async def step(self, ids: dict[int, str]) -> None:
        """Jobs by number. One that is not stored any more is unknown, where its id was given."""
        rows = await lock_rows(self.connection, dict.fromkeys(ids), self.terms)
        self.unknown.extend(one for number, one in ids.items() if one and number not in rows)
        running = [row for row in rows.values() if row.current.state in SLOT_HOLDING]
        ended: list[tuple[LockedRow, Move]] = []
        for row in rows.values():
            if row.current.state in SLOT_HOLDING:
                continue
            if (move := self._end(row)) is not None:
                ended.append((row, move))
            else:
                self.unknown.append(row.current.job_id)
        await move_rows(self.connection, ended)
        await ask_to_stop(self.connection, running, self.given)
        self.cancelled.extend(row.current.job_id for row, _ in ended)
        self.running.extend(row.current.job_id for row in running)
        self.requests.extend(_request(row, self.given) for row in running)
        self.parents.extend((row, move) for row, move in ended if row.has_children)

    async def all_of(
        self, lanes: Sequence[int], jobs: AsyncServerCursor[TupleRow], but: Collection[int]
    ) -> None:
        """What stands in some lanes, of which `jobs` tells all, except those of another step."""
        standing = await _standing(self.connection, lanes)
        for some in _steps([number for number in standing if number not in but]):
            await self.step(dict.fromkeys(some, ""))
        told = {*but, *standing}
        while rows := await jobs.fetchmany(_TELLING):
            self.unknown.extend(job_id for number, job_id in rows if number not in told)

    async def done(self) -> Cancelled:
        # Not before: a job that waits for one of these may be among them, and is cancelled then.
        await follow(self.connection, self.parents, self.terms)
        cancelled = (*self.cancelled, *self.running)
        return Cancelled(cancelled, tuple(self.unknown), tuple(self.requests))

    def _end(self, row: LockedRow) -> Move | None:
        outcome = Outcome(
            row.current.job_id, Event.CANCEL, namespace=row.namespace, reason=self.given.reason
        )
        try:
            return decide(row.current, outcome, self.rng)
        except InvalidTransition:
            return None


async def _by_id(connection: _Connection, wanted: _Wanted) -> dict[int, str]:
    """Number to id, in order of number."""
    if not wanted.ids:
        return {}
    namespaces = [wanted.namespace_id] * len(wanted.ids)
    cursor = await connection.execute(_BY_ID, {"namespaces": namespaces, "ids": wanted.ids})
    return dict(sorted((number, wanted.ids[n - 1]) for n, number in await cursor.fetchall()))


@asynccontextmanager
async def _of_tags(
    connection: _Connection, wanted: _Wanted
) -> AsyncIterator[tuple[list[int], AsyncServerCursor[TupleRow]]]:
    """The lanes whose jobs carry all tags, and a cursor over the numbers and ids of all their jobs
    as they are now. What it tells and a later statement does not find standing has ended.
    """
    found = await find_lanes(connection, wanted.namespace, (), tags=wanted.tags)
    lanes = found.having(frozenset(JobState))
    cursor = connection.cursor(name="of_lanes")
    try:
        await cursor.execute(_BY_LANE, {"lanes": lanes}, binary=True)
        yield lanes, cursor
        await cursor.close()
    finally:
        # On this side only, which waits for nothing: the server's ends with the transaction.
        await AsyncCursor.close(cursor)


async def _standing(
    connection: _Connection, lanes: Sequence[int], max_rows: int | None = None
) -> list[int]:
    cursor = await connection.execute(_STANDING, {"lanes": lanes, "max_rows": max_rows})
    return [number for (number,) in await cursor.fetchall()]


async def _refuse_standing(connection: _Connection, numbers: Sequence[int], terms: Terms) -> None:
    """Raises InvalidTransition for a job that has not ended. The others are locked."""
    for row in (await lock_rows(connection, dict.fromkeys(numbers), terms)).values():
        if row.current.state not in TERMINAL:
            raise InvalidTransition(row.current.job_id, row.current.state, DELETE)


async def _delete_ended(connection: _Connection, numbers: Sequence[int], terms: Terms) -> int:
    """Raises InvalidTransition for a job that has not ended."""
    deleted = await _delete(connection, numbers)
    if deleted < len(numbers):
        # The others are gone, or were brought back to life after the first look.
        await _refuse_standing(connection, numbers, terms)
        deleted += await _delete(connection, numbers)
    return deleted


async def _clean_up(connection: _Connection, ttl_s: float, namespace_id: int) -> int:
    deleted, at, number = 0, _FIRST, 0
    while True:
        place = {"after_at": at, "after_no": number}
        limits = {"ttl_s": ttl_s, "namespace_id": namespace_id, "max_rows": _STEP}
        cursor = await connection.execute(_EXPIRED, {**place, **limits})
        found = await cursor.fetchall()
        if not found:
            return deleted
        deleted += await _delete(connection, [one for one, _ in found])
        number, at = found[-1]


async def _delete(connection: _Connection, numbers: Sequence[int]) -> int:
    """How many of them had ended, and nobody else had deleted."""
    cursor = await connection.execute(_DELETE, {"job_nos": list(numbers)})
    row = await cursor.fetchone()
    return row[0] if row else 0


def _steps(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    return (numbers[start : start + _STEP] for start in range(0, len(numbers), _STEP))


def _request(row: LockedRow, given: Given) -> CancelRequest:
    return CancelRequest(
        row.current.job_id,
        row.namespace,
        row.assignee_id,
        row.current.token or "",
        given.force or row.cancel_forced,
        _reason(row, given),
    )


def _reason(row: LockedRow, given: Given) -> str:
    """That of the first cancel, or of the one that first used force."""
    is_news = row.current.state is JobState.RUNNING or (given.force and not row.cancel_forced)
    return (given.reason or row.cancel_reason) if is_news else row.cancel_reason
