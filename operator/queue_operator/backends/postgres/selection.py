"""Calls that select jobs by ids or tags: cancel, detach, delete, clean up."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import Pool, again_when_undone, transaction
from queue_operator.backends.postgres.consequences import carry_out, run
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.rows import (
    Given,
    LockedRow,
    Terms,
    ask_to_stop,
    lock_rows,
)
from queue_operator.backends.protocol import DELETE
from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.job import Cancelled, CancelRequest, Demand
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import SLOT_HOLDING, TERMINAL, Event, JobState
from queue_operator.domain.transition import Move, decide

_BY_ID: Final = load(__package__, "find_numbers")
_BY_LANE: Final = load(__package__, "find_by_lanes")
_BY_UID: Final = load(__package__, "find_by_uid")
_EXPIRED: Final = load(__package__, "find_expired_final")
_DELETE: Final = load(__package__, "delete")
_DETACH: Final = (
    "INSERT INTO detached (job_no) SELECT unnest(%(job_nos)s::bigint[]) ON CONFLICT DO NOTHING"
)
_BATCH: Final = 1000


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

        async def work(connection: AsyncConnection[TupleRow], terms: Terms) -> Cancelled:
            ids = await _select(connection, wanted)
            given = Given(force=force, reason=reason)
            cancelled = await self._cancel(connection, ids, terms, given)
            known = set(ids.values())
            missing = dict.fromkeys(job_id for job_id in job_ids if job_id not in known)
            unknown = (*cancelled.unknown_job_ids, *missing)
            return replace(cancelled, unknown_job_ids=unknown)

        return await run(self._pool, work)

    @again_when_undone
    async def detach(self, uids: Collection[str]) -> Cancelled:
        """Their resources are gone: a forced cancel of what has not finished."""

        async def work(connection: AsyncConnection[TupleRow], terms: Terms) -> Cancelled:
            cursor = await connection.execute(_BY_UID, {"uids": list(uids)})
            ids = {number: job_id for number, job_id in await cursor.fetchall()}
            await connection.execute(_DETACH, {"job_nos": list(ids)})
            given = Given(force=True, reason="the resource was deleted")
            return await self._cancel(connection, ids, terms, given)

        return await run(self._pool, work)

    @again_when_undone
    async def delete(self, namespace: str, tags: Collection[str], job_ids: Collection[str]) -> int:
        wanted = await self._wanted(namespace, tags, job_ids)

        async def work(connection: AsyncConnection[TupleRow], terms: Terms) -> int:
            ids = await _select(connection, wanted)
            for row in (await lock_rows(connection, dict.fromkeys(ids), terms)).values():
                if row.current.state not in TERMINAL:
                    raise InvalidTransition(row.current.job_id, row.current.state, DELETE)
            return await _delete(connection, list(ids))

        return await run(self._pool, work)

    async def cleanup(self, ttl_s: float, namespace_id: int | None) -> int:
        deleted = 0
        while True:
            found, gone = await self._clean_batch(ttl_s, namespace_id)
            deleted += gone
            if found < _BATCH:
                return deleted

    @again_when_undone
    async def _clean_batch(self, ttl_s: float, namespace_id: int | None) -> tuple[int, int]:
        """How many were found, and how many of them nobody else had deleted."""
        parameters = {"ttl_s": ttl_s, "namespace_id": namespace_id, "max_rows": _BATCH}
        async with transaction(self._pool) as connection:
            cursor = await connection.execute(_EXPIRED, parameters)
            numbers = [number for (number,) in await cursor.fetchall()]
            return len(numbers), await _delete(connection, numbers)

    async def _wanted(
        self, namespace: str, tags: Collection[str], job_ids: Collection[str]
    ) -> "_Wanted":
        lanes = []
        if tags:
            demand = Demand(assignee_id="", limit=0, namespace=namespace, tags=frozenset(tags))
            lanes = await self._lanes.matching(demand)
        ids = list(dict.fromkeys(job_ids))
        return _Wanted(lanes, [await self._lanes.namespace_id(namespace)] * len(ids), ids)

    async def _cancel(
        self,
        connection: AsyncConnection[TupleRow],
        ids: dict[int, str],
        terms: Terms,
        given: Given,
    ) -> Cancelled:
        rows = await lock_rows(connection, dict.fromkeys(ids), terms)
        ended: list[tuple[LockedRow, Move]] = []
        running: list[LockedRow] = []
        unknown = [job_id for number, job_id in ids.items() if number not in rows]
        for row in rows.values():
            if row.current.state in SLOT_HOLDING:
                running.append(row)
            elif (move := self._cancel_waiting(row, given.reason)) is not None:
                ended.append((row, move))
            else:
                unknown.append(row.current.job_id)
        await carry_out(connection, ended, terms)
        await ask_to_stop(connection, running, given)
        return Cancelled(
            tuple(row.current.job_id for row in [*(row for row, _ in ended), *running]),
            tuple(unknown),
            _requests(running, given),
        )

    def _cancel_waiting(self, row: LockedRow, reason: str) -> Move | None:
        outcome = Outcome(row.current.job_id, Event.CANCEL, namespace=row.namespace, reason=reason)
        try:
            return decide(row.current, outcome, self._rng)
        except InvalidTransition:
            return None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Lanes whose jobs all match, and ids with the number of their namespace."""

    lanes: list[int]
    namespaces: list[int | None]
    ids: list[str]


async def _select(connection: AsyncConnection[TupleRow], wanted: _Wanted) -> dict[int, str]:
    """The union of both selections, number to id, in order of number."""
    found: dict[int, str] = {}
    if wanted.lanes:
        cursor = await connection.execute(_BY_LANE, {"lanes": wanted.lanes})
        found |= {number: job_id for number, job_id in await cursor.fetchall()}
    if wanted.ids:
        cursor = await connection.execute(
            _BY_ID, {"namespaces": wanted.namespaces, "ids": wanted.ids}
        )
        found |= {number: wanted.ids[place - 1] for place, number in await cursor.fetchall()}
    return dict(sorted(found.items()))


def _requests(rows: Sequence[LockedRow], given: Given) -> tuple[CancelRequest, ...]:
    return tuple(
        CancelRequest(
            row.current.job_id,
            row.namespace,
            row.assignee_id,
            row.current.token or "",
            given.force or row.cancel_forced,
            _reason(row, given),
        )
        for row in rows
    )


def _reason(row: LockedRow, given: Given) -> str:
    """That of the first cancel, or of the one that first used force."""
    is_news = row.current.state is JobState.RUNNING or (given.force and not row.cancel_forced)
    return (given.reason or row.cancel_reason) if is_news else row.cancel_reason


async def _delete(connection: AsyncConnection[TupleRow], numbers: list[int]) -> int:
    if not numbers:
        return 0
    cursor = await connection.execute(_DELETE, {"job_nos": numbers})
    row = await cursor.fetchone()
    return row[0] if row else 0
