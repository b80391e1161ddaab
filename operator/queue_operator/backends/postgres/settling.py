"""Outcomes: settled by batches, one transaction each, decided by the pure core."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.completing import Completions
from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.postgres.consequences import OnReady, carry_out, run, tell_ready
from queue_operator.backends.postgres.lanes import Lanes, LanesInDoubt, Sure
from queue_operator.backends.postgres.rows import LockedRow, Terms, lock_rows, storable_token
from queue_operator.backends.sql import load
from queue_operator.domain.errors import (
    InvalidArgument,
    JobNotFound,
    QueueError,
    Unavailable,
)
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.states import JobState
from queue_operator.domain.transition import Move, decide, decide_update

_FIND: Final = load(__package__, "find_numbers")
_LANES: Final = load(__package__, "find_lanes")
_LANE_TRIES: Final = 3
_ROUND_BYTES: Final = 64 * 1024 * 1024


class Settling:
    """Applies outcomes that were made storable before. `rng` jitters backoffs; `on_ready` is
    told of jobs that became eligible again, or need not wait for others any longer.
    """

    def __init__(
        self,
        pool: Pool,
        lanes: Lanes,
        rng: Callable[[], float],
        completions: Completions,
        on_ready: OnReady,
    ) -> None:
        self._completions = completions
        self._on_ready = on_ready
        self._pool = pool
        self._lanes = lanes
        self._rng = rng

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Answers in the order of the outcomes. In that order apply those of one job, and those
        of jobs that wait for each other.
        """
        answers: dict[int, Settled] = {}
        rounds = _rounds(outcomes)
        if len(rounds) > 1 and await self._entangled(dict(enumerate(outcomes))):
            rounds = _rounds(outcomes, in_order=True)
        for batch in rounds:
            done = await self._completions.complete(batch)
            rest = {n: outcome for n, outcome in batch.items() if n not in done}
            answers |= done
            if rest:
                answers |= await self._isolating(rest)
                self._completions.forget(rest.values())
        return [answers[n] for n in range(len(outcomes))]

    @again_when_undone
    async def _entangled(self, batch: dict[int, Outcome]) -> bool:
        wanted = await self._wanted(batch)

        async def look(connection: AsyncConnection[TupleRow], terms: Terms) -> bool:
            cursor = await connection.execute(_FIND, wanted)
            numbers = dict.fromkeys(number for _, number in await cursor.fetchall())
            return _entangled(await lock_rows(connection, numbers, terms))

        return await run(self._pool, look)

    async def _wanted(self, batch: dict[int, Outcome]) -> dict[str, list[Any]]:
        namespaces = await self._lanes.namespace_ids([one.namespace for one in batch.values()])
        return {"namespaces": namespaces, "ids": [one.job_id for one in batch.values()]}

    async def _isolating(self, batch: dict[int, Outcome]) -> dict[int, Settled]:
        """As `_decide`, which does all or nothing, but halves a batch that the database refuses
        until the one outcome that is to blame stands alone.
        """
        try:
            return await self._decide(batch)
        except psycopg.DataError as refused:
            if len(batch) == 1:
                [(n, outcome)] = batch.items()
                error = InvalidArgument("outcome", f"cannot be stored: {refused}")
                return {n: Settled(outcome.job_id, outcome.namespace, error=error)}
        numbers = list(batch)
        half = len(numbers) // 2
        first = {n: batch[n] for n in numbers[:half]}
        second = {n: batch[n] for n in numbers[half:]}
        return await self._isolating(first) | await self._isolating(second)

    async def _decide(self, batch: dict[int, Outcome]) -> dict[int, Settled]:
        for _ in range(_LANE_TRIES):
            lanes = await self._other_lanes(batch)
            try:
                return await self._decide_with(lanes, batch)
            except LanesInDoubt:
                self._lanes.doubt(lanes.jobs)
        raise Unavailable("lanes are in doubt again and again; call again")

    @again_when_undone
    async def _decide_with(
        self, lanes: "_OtherLanes", batch: dict[int, Outcome]
    ) -> dict[int, Settled]:
        """Raises LanesInDoubt, and changes nothing."""
        wanted = await self._wanted(batch)

        async def work(connection: AsyncConnection[TupleRow], terms: Terms) -> _Done:
            await lanes.check(connection)
            cursor = await connection.execute(_FIND, wanted)
            places = list(batch)
            numbers = {places[n - 1]: number for n, number in await cursor.fetchall()}
            tokens = {number: storable_token(batch[n].token) for n, number in numbers.items()}
            rows = await lock_rows(connection, tokens, terms)
            done = _Done({}, [], [])
            turns = [[n] for n in batch] if _entangled(rows) else [list(batch)]
            for turn in turns:
                if len(turn) < len(batch):
                    mine = [numbers[n] for n in turn if n in numbers]
                    rows = await lock_rows(connection, {no: tokens[no] for no in mine}, terms)
                decided: list[tuple[LockedRow, Move]] = []
                for n in turn:
                    row = rows.get(numbers.get(n, -1))
                    done.answers[n], move = self._answer(batch[n], row)
                    if row is not None and move is not None:
                        decided.append((_in_lane(row, move, lanes.ids.get(n)), move))
                done.decided.extend(decided)
                done.released.extend(await carry_out(connection, decided, terms))
            return done

        done = await run(self._pool, work)
        self._tell(done)
        return done.answers

    @again_when_undone
    async def update_status(
        self,
        namespace: str,
        job_id: str,
        token: str | None,
        status: JobState,
        result: bytes | None,
        message: str,
    ) -> Settled:
        """UpdateJobStatus. Raises JobNotFound, StaleLease or InvalidTransition."""
        wanted = {"namespaces": [await self._lanes.namespace_id(namespace)], "ids": [job_id]}

        async def work(connection: AsyncConnection[TupleRow], terms: Terms) -> _Done:
            found = await (await connection.execute(_FIND, wanted)).fetchone()
            tokens = {found[1]: storable_token(token)} if found else {}
            for row in (await lock_rows(connection, tokens, terms)).values():
                move = decide_update(row.current, token, status, result, message)
                if move is None:
                    state = row.current.state
                    repeat = Settled(job_id, namespace, state=state, repeated=True)
                    return _Done({0: repeat}, [], [])
                answer = _settled(job_id, namespace, row, move)
                lanes = await carry_out(connection, [(row, move)], terms)
                return _Done({0: answer}, [(row, move)], lanes)
            raise JobNotFound(job_id, namespace)

        done = await run(self._pool, work)
        self._tell(done)
        return done.answers[0]

    def _tell(self, done: "_Done") -> None:
        tell_ready(done.decided, done.released, self._on_ready)

    async def _other_lanes(self, batch: dict[int, Outcome]) -> "_OtherLanes":
        """Lanes of the priorities that retries ask for, made where they are missing. Outside
        the transaction: a lane that nobody uses does no harm.
        """
        places = [n for n, one in batch.items() if one.priority is not None]
        if not places:
            return _OtherLanes([], {}, None)
        namespaces = await self._lanes.namespace_ids([batch[n].namespace for n in places])
        wanted = {"namespaces": namespaces, "ids": [batch[n].job_id for n in places]}
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_LANES, wanted)).fetchall()
        jobs = {places[n - 1]: _relabelled(batch[places[n - 1]], *row) for n, *row in rows}
        found = await self._lanes.of_jobs(jobs.values())
        ids = dict(zip(jobs, found.ids, strict=True))
        return _OtherLanes([*jobs.values()], ids, found.sure if ids else None)

    def _answer(self, outcome: Outcome, row: LockedRow | None) -> tuple[Settled, Move | None]:
        job_id, namespace = outcome.job_id, outcome.namespace
        if row is None:
            return Settled(job_id, namespace, error=JobNotFound(job_id, namespace)), None
        try:
            move = decide(row.current, outcome, self._rng)
        except QueueError as error:
            return Settled(job_id, namespace, error=error), None
        if move is None:
            return Settled(job_id, namespace, state=row.current.state, repeated=True), None
        return _settled(job_id, namespace, row, move), move


@dataclass(frozen=True, slots=True)
class _OtherLanes:
    """By place in the batch, the lanes that jobs go to; `jobs` are what they were looked up for."""

    jobs: list[Job]
    ids: dict[int, int]
    sure: Sure | None

    async def check(self, connection: AsyncConnection[TupleRow]) -> None:
        """Raises LanesInDoubt in a transaction that began too late for them."""
        if self.sure is not None:
            await self.sure.check(connection)


@dataclass(frozen=True, slots=True)
class _Done:
    """What one transaction did; `released` are the lanes of jobs that had waited for others."""

    answers: dict[int, Settled]
    decided: list[tuple[LockedRow, Move]]
    released: list[int]


def _entangled(rows: Mapping[int, LockedRow]) -> bool:
    """True when what becomes of one of these jobs may decide about another, which waits for it:
    then each outcome has to be carried out before the next is looked at.
    """
    waiting = any(row.current.state is JobState.INITIAL_PENDING for row in rows.values())
    return waiting and len(rows) > 1 and any(row.has_children for row in rows.values())


def _settled(job_id: str, namespace: str, row: LockedRow, move: Move) -> Settled:
    freed = row.assignee_id if move.frees_slot else None
    return Settled(job_id, namespace, state=move.after, freed_assignee_id=freed)


def _in_lane(row: LockedRow, move: Move, lane_id: int | None) -> LockedRow:
    if lane_id in (None, row.lane_id) or move.priority is None:
        return row
    return replace(row, new_lane_id=lane_id)


def _relabelled(outcome: Outcome, type_: str, tags: Sequence[str]) -> Job:
    """What the lane of the job's new priority is made of."""
    return Job(
        id=outcome.job_id,
        type=type_,
        namespace=outcome.namespace,
        tags=frozenset(tags),
        priority=outcome.priority or Priority.NORMAL,
    )


def _rounds(outcomes: Sequence[Outcome], *, in_order: bool = False) -> list[dict[int, Outcome]]:
    """Splits a batch so that each job occurs once in a round, in order of arrival, and that what
    a round carries fits into one statement. With `in_order` nothing goes into an earlier round
    than what was told before it.
    """
    rounds: list[dict[int, Outcome]] = []
    sizes: list[int] = []
    next_turn: dict[tuple[str, str], int] = {}
    for n, outcome in enumerate(outcomes):
        size = len(outcome.result or b"")
        earliest = max(len(rounds) - 1, 0) if in_order else 0
        turn = max(next_turn.get((outcome.namespace, outcome.job_id), 0), earliest)
        while turn < len(rounds) and rounds[turn] and sizes[turn] + size > _ROUND_BYTES:
            turn += 1
        if turn == len(rounds):
            rounds.append({})
            sizes.append(0)
        rounds[turn][n] = outcome
        sizes[turn] += size
        next_turn[outcome.namespace, outcome.job_id] = turn + 1
    return rounds
