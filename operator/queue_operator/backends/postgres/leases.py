"""Leases: renewed by batches, swept when they run out."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.assigned import STANDING
from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.postgres.consequences import OnReady, carry_out, run, tell_ready
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.rows import LockedRow, Terms, lock_rows, storable_token
from queue_operator.backends.postgres.sweeping import (
    MOST_GIVEN_UP,
    OthersSweep,
    Page,
    Sweep,
    nothing_due,
)
from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidTransition, QueueError, Unavailable
from queue_operator.domain.lease import Held, LeaseAnswer, LeaseStatus, Lost
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.overdue import TIMED_OUT, WORKER_LOST
from queue_operator.domain.states import TERMINAL, Event, JobState
from queue_operator.domain.transition import Move, caused, decide

_EXTEND: Final = load(__package__, "lease_extend")
_FATE: Final = load(__package__, "lease_fate")
_LEASED: Final = load(__package__, "find_leased", standing=STANDING)
_PAGES: Final = 20
"""Of what is due, in one sweep: after an outage the next ones go on."""
_ROUNDS: Final = 10
"""Transactions of one sweep, where more jobs are to be given up than one may: what was lost is told
after the last.
"""

logger = logging.getLogger(__name__)


class Leases:
    """Renewal, expiry and loss. `on_ready` is given the lanes of jobs that wait again."""

    def __init__(
        self,
        pool: Pool,
        lanes: Lanes,
        rng: Callable[[], float],
        cancel_s: float,
        on_ready: OnReady,
    ) -> None:
        self._pool = pool
        self._lanes = lanes
        self._rng = rng
        self._cancel_timeout_s = cancel_s
        self._on_ready = on_ready

    async def extend(self, held: Sequence[Held], ttl_s: float) -> list[LeaseAnswer]:
        namespaces = await self._lanes.namespace_ids([h.namespace for h in held])
        parameters = {
            "namespaces": namespaces,
            "ids": [h.job_id for h in held],
            "tokens": [storable_token(h.token) for h in held],
            "ttl_s": ttl_s,
        }
        answers: dict[int, LeaseAnswer] = {}
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_EXTEND, parameters)
            for place, state, forced in await cursor.fetchall():
                cancelling = state == JobState.CANCELLING
                answers[place - 1] = _answer(
                    held[place - 1], LeaseStatus.CURRENT, cancelling, cancelling and forced
                )
            if len(answers) < len(held):
                cursor = await connection.execute(_FATE, parameters)
                for place, state, is_newest in await cursor.fetchall():
                    status = _fate(JobState(state), is_newest)
                    answers.setdefault(place - 1, _answer(held[place - 1], status))
        ended = LeaseStatus.ENDED
        return [answers.get(n) or _answer(h, ended) for n, h in enumerate(held)]

    async def expire(self, ttl_s: float, limit: int) -> list[Lost]:
        """See `Backend.expire_leases`. While another sweeper is at it, it waits, and leaves the
        rest to that one when it takes long.
        """
        lost: list[Lost] = []
        for _ in range(_ROUNDS):
            try:
                found, more = await self._sweep(ttl_s, limit - len(lost))
            except Unavailable as error:
                if not lost:
                    raise
                # What was found is to be heard of, and the rest waits for the next sweep.
                logger.warning("more jobs without an attempt left are given up later: %s", error)
                break
            lost += found
            if not more or len(lost) >= limit:
                break
        return lost

    @again_when_undone
    async def _sweep(self, ttl_s: float, limit: int) -> tuple[list[Lost], bool]:
        """One sweep; what was lost, and whether more jobs are to be given up than were now."""

        async def work(connection: AsyncConnection[TupleRow], terms: Terms) -> _Swept:
            sweep = await Sweep.begin(
                connection,
                ttl_s=ttl_s,
                cancel_timeout_s=self._cancel_timeout_s,
                patience_s=self._pool.statement_timeout_s / 2,
            )
            swept = _Swept([], [], more=False)
            for _ in range(_PAGES):
                page = await sweep.take()
                left = limit - len(swept.decided)
                swept = swept.and_then(await self._take_back(sweep, page, left, ttl_s, terms))
                if not page.more or len(swept.decided) >= limit:
                    break
            await sweep.end()
            return swept

        async with borrowed(self._pool) as idle:
            if await nothing_due(idle, ttl_s=ttl_s, cancel_timeout_s=self._cancel_timeout_s):
                return [], False
        try:
            swept = await run(self._pool, work)
        except OthersSweep:
            return [], False
        self._tell(swept.decided, swept.released)
        lost = [
            Lost(row.current.job_id, row.namespace, row.assignee_id)
            for row, move in swept.decided
            if move.frees_slot
        ]
        return lost, swept.more

    async def _take_back(
        self, sweep: Sweep, page: Page, limit: int, ttl_s: float, terms: Terms
    ) -> "_Swept":
        """Ends what is due of a page, at most so many leases."""
        if not page.due:
            return _Swept([], [], more=False)
        found = await sweep.find(page, limit)
        rows = await lock_rows(sweep.connection, dict.fromkeys(found), terms) if found else {}
        decided = [(row, self._overdue(row, *found[number], ttl_s)) for number, row in rows.items()]
        released = await carry_out(sweep.connection, decided, terms)
        spent = await sweep.exhausted(page, MOST_GIVEN_UP)
        if spent:
            released += await self._give_up(sweep.connection, spent, terms)
        await sweep.put_back(page, {*rows, *spent})
        return _Swept(decided, released, more=len(spent) == MOST_GIVEN_UP)

    @again_when_undone
    async def lose(self, *, assignee_id: str | None, namespace: str | None) -> dict[str, int]:
        """LOSE for every running job that matches, caused by a caller: no attempt counts."""
        namespace_id = None if namespace is None else await self._lanes.namespace_id(namespace)
        if namespace is not None and namespace_id is None:
            return {}
        wanted = {"assignee_id": assignee_id, "namespace_id": namespace_id}

        async def work(connection: AsyncConnection[TupleRow], terms: Terms) -> _Done:
            cursor = await connection.execute(_LEASED, wanted)
            numbers = [number for (number,) in await cursor.fetchall()]
            rows = await lock_rows(connection, dict.fromkeys(numbers), terms)
            moves = [
                (row, self._lose(row))
                for row in rows.values()
                # Until it was locked, somebody else may have claimed it.
                if assignee_id in (None, row.assignee_id)
            ]
            decided = [(row, move) for row, move in moves if move is not None]
            return decided, await carry_out(connection, decided, terms)

        decided, released = await run(self._pool, work)
        self._tell(decided, released)
        return Counter(row.assignee_id for row, _ in decided)

    def _tell(self, decided: "_Decided", released: Sequence[int]) -> None:
        tell_ready(decided, released, self._on_ready)

    def _overdue(self, row: LockedRow, token: str, why: str, ttl_s: float) -> Move:
        cancelling = row.current.state is JobState.CANCELLING
        if why == "cancel" or (why == "timeout" and cancelling):
            return self._decide(row, token, Event.MARK_UNKNOWN_STOPPED, None)
        if why == "timeout":
            return self._decide(row, token, Event.FAIL, TIMED_OUT)
        move = self._decide(row, token, Event.LOSE, None)
        # A job lost on its last attempt waits one TTL for a late outcome before it is given up.
        return replace(move, delay_s=ttl_s) if row.current.is_used_up and move.waits else move

    def _decide(self, row: LockedRow, token: str, event: Event, error: ErrorInfo | None) -> Move:
        outcome = Outcome(
            row.current.job_id, event, namespace=row.namespace, token=token, error=error
        )
        move = decide(replace(row.current, recorded=None), outcome, self._rng)
        if move is None:
            raise InvalidTransition(row.current.job_id, row.current.state, event)
        # The token says which attempt was looked at; it is not its holder who speaks.
        return replace(move, fenced=False)

    def _lose(self, row: LockedRow) -> Move | None:
        try:
            move = self._decide(row, row.current.token or "", Event.LOSE, None)
        except QueueError:
            return None  # it ended while we waited for its lock
        return caused(move)

    async def _give_up(
        self, connection: AsyncConnection[TupleRow], numbers: Sequence[int], terms: Terms
    ) -> list[int]:
        """Lost jobs without an attempt left."""
        rows = await lock_rows(connection, dict.fromkeys(numbers), terms)
        decided = [
            (row, self._decide(row, row.current.token or "", Event.EXHAUST, WORKER_LOST))
            for row in rows.values()
        ]
        return await carry_out(connection, decided, terms)


@dataclass(frozen=True, slots=True)
class _Swept:
    """What a sweep did: leases that ended, and the lanes of jobs that need not wait for others any
    longer. `more` jobs without an attempt left may be to be given up.
    """

    decided: "_Decided"
    released: list[int]
    more: bool

    def and_then(self, other: "_Swept") -> "_Swept":
        decided, released = self.decided + other.decided, self.released + other.released
        return _Swept(decided, released, more=self.more or other.more)


_Decided = list[tuple[LockedRow, Move]]
_Done = tuple[_Decided, list[int]]
"""What was decided, and the lanes of jobs that need not wait for those any longer."""


def _answer(
    held: Held, status: LeaseStatus, requested: bool = False, forced: bool = False
) -> LeaseAnswer:
    return LeaseAnswer(held.job_id, held.token, held.namespace, status, requested, forced)


def _fate(state: JobState, is_newest: bool) -> LeaseStatus:
    if not is_newest and state not in TERMINAL:
        return LeaseStatus.TAKEN_OVER
    return LeaseStatus.LOST if state is JobState.UNKNOWN_RETRY else LeaseStatus.ENDED
