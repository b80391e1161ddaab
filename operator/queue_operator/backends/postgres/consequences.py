"""What a transition brings with it: jobs that waited for one may run, or never will."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import Pool, transaction
from queue_operator.backends.postgres.dependencies import (
    Busy,
    Child,
    let_go,
    outcome_of,
    waiting_children,
)
from queue_operator.backends.postgres.rows import Decided, LockedRow, lock_rows, move_rows
from queue_operator.domain.dependencies import Wait
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import TERMINAL, Event
from queue_operator.domain.transition import Move, decide

_T = TypeVar("_T")
Work = Callable[[AsyncConnection[TupleRow], Collection[int]], Awaitable[_T]]
_TRIES: Final = 100


async def run(pool: Pool, work: Work[_T]) -> _T:
    """Runs `work` in a transaction of its own. It gets the numbers of jobs to lock together
    with its own: after another transaction had these in hand, it is undone and run again.
    """
    also: frozenset[int] = frozenset()
    for _ in range(_TRIES):
        try:
            async with transaction(pool) as connection:
                return await work(connection, also)
        except Busy as busy:
            also |= busy.numbers
    raise Unavailable(f"{len(also)} dependent jobs are in use; call again")


async def carry_out(connection: AsyncConnection[TupleRow], decided: Decided) -> list[int]:
    """Writes decided moves of locked rows, and all that follows for the jobs that wait for
    them. Gives the lanes of those that became eligible by that. Raises Busy.
    """
    lanes: list[int] = []
    while decided:
        await move_rows(connection, decided)
        outcomes = {
            row.job_no: outcome_of(move.after)
            for row, move in decided
            if row.has_children and (move.ends or move.before in TERMINAL)
        }
        children = await waiting_children(connection, outcomes) if outcomes else []
        if children:
            lanes += await let_go(connection, children, outcomes)
        decided = await skip(connection, [c for c in children if c.wait is Wait.SKIP])
    return lanes


async def skip(
    connection: AsyncConnection[TupleRow], children: Sequence[Child]
) -> list[tuple[LockedRow, Move]]:
    """Decides that jobs whose parents ended badly never run. Their rows are locked."""
    if not children:
        return []
    rows = await lock_rows(connection, dict.fromkeys(child.job_no for child in children))
    moves = [(rows[child.job_no], _skip(rows[child.job_no], child)) for child in children]
    return [(row, move) for row, move in moves if move is not None]


def _skip(row: LockedRow, child: Child) -> Move | None:
    current = row.current
    outcome = Outcome(current.job_id, Event.SKIP, namespace=row.namespace, reason=child.obstacle)
    return decide(current, outcome, _no_jitter)


def _no_jitter() -> float:
    return 0.0
