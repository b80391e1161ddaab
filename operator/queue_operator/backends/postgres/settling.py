"""Outcomes: settled by batches, one transaction each, decided by the pure core."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.claiming import Marks
from queue_operator.backends.postgres.connection import (
    Pool,
    again_after_deadlock,
    borrowed,
    transaction,
)
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.rows import (
    LockedRow,
    carry_out,
    lock_rows,
    storable_token,
)
from queue_operator.backends.sql import load
from queue_operator.domain.errors import InvalidArgument, JobNotFound, QueueError
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.transition import RESULT_NOT_STORABLE, Move, decide

_COMPLETE: Final = load(__package__, "complete")
_FIND: Final = load(__package__, "find_numbers")


class Settling:
    """Applies outcomes. `rng` jitters backoffs; results over `result_bytes` end their job."""

    def __init__(
        self,
        pool: Pool,
        lanes: Lanes,
        marks: Marks,
        rng: Callable[[], float],
        result_bytes: int,
    ) -> None:
        self._pool = pool
        self._lanes = lanes
        self._marks = marks
        self._rng = rng
        self._result_bytes = result_bytes

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Answers in the order of the outcomes; several for one job apply in that order."""
        answers: dict[int, Settled] = {}
        storable = [self._storable(outcome) for outcome in outcomes]
        for batch in _rounds(storable):
            answers |= await self._settle_isolating(batch)
        return [answers[n] for n in range(len(outcomes))]

    def _storable(self, outcome: Outcome) -> Outcome:
        size = len(outcome.result or b"")
        if outcome.event is not Event.COMPLETE or size <= self._result_bytes:
            return outcome
        error = ErrorInfo(
            f"the result has {size} bytes, over the limit of {self._result_bytes}; store it "
            "elsewhere and return a reference",
            ErrorCategory.PERMANENT,
            RESULT_NOT_STORABLE,
        )
        return replace(outcome, event=Event.FAIL, result=None, error=error)

    async def _settle_isolating(self, batch: dict[int, Outcome]) -> dict[int, Settled]:
        """As `_settle_round`, but halves a batch that the database refuses until the one
        outcome that is to blame stands alone.
        """
        try:
            return await self._settle_round(batch)
        except psycopg.DataError as refused:
            if len(batch) == 1:
                [(n, outcome)] = batch.items()
                error = InvalidArgument("outcome", f"cannot be stored: {refused}")
                return {n: Settled(outcome.job_id, outcome.namespace, error=error)}
        numbers = list(batch)
        half = len(numbers) // 2
        first = {n: batch[n] for n in numbers[:half]}
        second = {n: batch[n] for n in numbers[half:]}
        return await self._settle_isolating(first) | await self._settle_isolating(second)

    async def _settle_round(self, batch: dict[int, Outcome]) -> dict[int, Settled]:
        """Each job occurs once in `batch`."""
        answers = await self._complete_running(batch)
        rest = {n: outcome for n, outcome in batch.items() if n not in answers}
        if rest:
            answers |= await self._decide(rest)
        return answers

    async def _complete_running(self, batch: dict[int, Outcome]) -> dict[int, Settled]:
        plain = {
            n: outcome
            for n, outcome in batch.items()
            if outcome.event is Event.COMPLETE and outcome.token is not None
        }
        if not plain:
            return {}
        namespaces = [await self._lanes.namespace_id(o.namespace) for o in plain.values()]
        keys = dict(
            zip(
                ((ns, o.job_id) for ns, o in zip(namespaces, plain.values(), strict=True)),
                plain,
                strict=True,
            )
        )
        parameters = {
            "namespaces": namespaces,
            "ids": [o.job_id for o in plain.values()],
            "tokens": [storable_token(o.token) for o in plain.values()],
            "results": [o.result for o in plain.values()],
            "content_types": [o.result_content_type for o in plain.values()],
        }
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_COMPLETE, parameters)
            rows = await cursor.fetchall()
        return {
            keys[namespace_id, job_id]: Settled(
                job_id,
                plain[keys[namespace_id, job_id]].namespace,
                state=JobState.COMPLETED,
                freed_assignee_id=assignee_id,
            )
            for namespace_id, job_id, assignee_id in rows
        }

    @again_after_deadlock
    async def _decide(self, batch: dict[int, Outcome]) -> dict[int, Settled]:
        async with transaction(self._pool) as connection:
            numbers = await self._numbers(connection, batch)
            tokens = {numbers[n]: storable_token(batch[n].token) for n in numbers}
            rows = await lock_rows(connection, tokens)
            answers: dict[int, Settled] = {}
            decided: list[tuple[LockedRow, Move]] = []
            for n, outcome in batch.items():
                row = rows.get(numbers.get(n, -1))
                answers[n], move = self._answer(outcome, row)
                if row is not None and move is not None:
                    decided.append((row, move))
            await carry_out(connection, decided)
        # What keeps its place in the order may lie before the mark.
        self._marks.forget(
            [row.lane_id for row, move in decided if move.waits and not move.counts_retry]
        )
        return answers

    async def _numbers(
        self, connection: AsyncConnection[TupleRow], batch: dict[int, Outcome]
    ) -> dict[int, int]:
        places = list(batch)
        namespaces = [await self._lanes.namespace_id(batch[n].namespace) for n in places]
        cursor = await connection.execute(
            _FIND, {"namespaces": namespaces, "ids": [batch[n].job_id for n in places]}
        )
        return {places[place - 1]: number for place, number in await cursor.fetchall()}

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
        freed = row.assignee_id if move.frees_slot else None
        return Settled(job_id, namespace, state=move.after, freed_assignee_id=freed), move


def _rounds(outcomes: Sequence[Outcome]) -> list[dict[int, Outcome]]:
    """Splits a batch so that each job occurs once in a round, in order of arrival."""
    rounds: list[dict[int, Outcome]] = []
    seen: dict[tuple[str, str], int] = {}
    for n, outcome in enumerate(outcomes):
        key = (outcome.namespace, outcome.job_id)
        turn = seen.get(key, 0)
        seen[key] = turn + 1
        if turn == len(rounds):
            rounds.append({})
        rounds[turn][n] = outcome
    return rounds
