"""What a transition brings with it: jobs that waited for one may run, or never will."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import Pool, transaction
from queue_operator.backends.postgres.dependencies import (
    Child,
    find_waiting,
    let_go,
    outcome_of,
    read_children,
)
from queue_operator.backends.postgres.rows import (
    Again,
    Decided,
    LockedRow,
    Terms,
    lock_rows,
    move_rows,
)
from queue_operator.domain.dependencies import Wait
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import TERMINAL, Event, JobState
from queue_operator.domain.transition import Move, decide

_T = TypeVar("_T")
OnReady = Callable[[Collection[int], float | None], None]
"""Is given the lanes of jobs that may be claimed now, and the least delay of those that wait."""
Work = Callable[[AsyncConnection[TupleRow], Terms], Awaitable[_T]]
_TRIES: Final = 100


async def run(pool: Pool, work: Work[_T]) -> _T:
    """Runs `work` in a transaction of its own, from the start again on other terms where it
    finds that it needs them.
    """
    terms = Terms()
    for _ in range(_TRIES):
        try:
            async with transaction(pool, terms.patience_s) as connection:
                return await work(connection, terms)
        except Again as again:
            terms = again.terms
    raise Unavailable(f"{len(terms.also)} dependent jobs are in use; call again")


def tell_ready(decided: Decided, released: Collection[int], on_ready: OnReady) -> None:
    """Tells of jobs that wait again, and of the lanes of those that waited for others."""
    waits = [(row.new_lane_id or row.lane_id, move.delay_s) for row, move in decided if move.waits]
    lanes = {lane_id for lane_id, delay_s in waits if not delay_s}
    later = [delay_s for _, delay_s in waits if delay_s]
    on_ready(lanes.union(released), min(later, default=None))


async def carry_out(
    connection: AsyncConnection[TupleRow], decided: Decided, terms: Terms
) -> list[int]:
    """Writes decided moves of locked rows, and all that follows for the jobs that wait for
    them. Gives the lanes of those that became eligible by that. Raises Again.
    """
    await move_rows(connection, decided)
    return await follow(connection, decided, terms)


async def follow(
    connection: AsyncConnection[TupleRow], decided: Decided, terms: Terms
) -> list[int]:
    """What follows of moves that are written, for the jobs that wait for others; as `carry_out`.
    Of moves that are written in parts, call it once and after all of them.
    """
    lanes: list[int] = []
    while decided:
        outcomes = {
            row.job_no: outcome_of(move.after)
            for row, move in decided
            if row.has_children and (move.ends or move.before in TERMINAL)
        }
        children = await _children(connection, outcomes, terms) if outcomes else []
        if children:
            lanes += await let_go(connection, children, outcomes)
        hopeless = [child for child in children if child.wait is Wait.SKIP]
        decided = await skip(connection, hopeless, terms)
        await move_rows(connection, decided)
    return lanes


async def _children(
    connection: AsyncConnection[TupleRow],
    outcomes: Mapping[int, JobState | None],
    terms: Terms,
) -> list[Child]:
    locked, busy = await find_waiting(connection, outcomes)
    if busy:
        raise Again(Terms(also=terms.also | busy, patience_s=terms.patience_s))
    terms.expect(len(locked))
    return await read_children(connection, locked, outcomes) if locked else []


async def skip(
    connection: AsyncConnection[TupleRow], children: Sequence[Child], terms: Terms
) -> list[tuple[LockedRow, Move]]:
    """Decides that jobs whose parents ended badly never run. Their rows are locked."""
    if not children:
        return []
    wanted = dict.fromkeys(child.job_no for child in children)
    rows = await lock_rows(connection, wanted, terms)
    moves = [(rows[child.job_no], _skip(rows[child.job_no], child)) for child in children]
    return [(row, move) for row, move in moves if move is not None]


def _skip(row: LockedRow, child: Child) -> Move | None:
    current = row.current
    outcome = Outcome(current.job_id, Event.SKIP, namespace=row.namespace, reason=child.obstacle)
    return decide(current, outcome, _no_jitter)


def _no_jitter() -> float:
    return 0.0
