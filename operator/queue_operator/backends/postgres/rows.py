"""Rows under a lock, and the statements that move them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow, dict_row

from queue_operator.backends.postgres.arrays import floats
from queue_operator.backends.postgres.connection import LONG_S
from queue_operator.backends.postgres.reading import load_backoff
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.ordering import PRIORITY_BONUS, Priority
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.record import note_of
from queue_operator.domain.states import RETURNS_ATTEMPT, Event, JobState
from queue_operator.domain.transition import FENCED, Current, Move

HEARD: Final = load(__package__, "webhook_write")
"""A message for each job that ends and has a callback: a part of each statement that ends jobs."""
_LOCK: Final = load(__package__, "lock")
_TO_FINAL: Final = load(__package__, "move_to_final", heard=HEARD)
_TO_READY: Final = load(__package__, "move_to_ready", arrived=load(__package__, "arrival_tell"))
_TO_CANCELLING: Final = load(__package__, "move_to_cancelling")
_LATE_COMPLETE: Final = load(__package__, "move_late_complete", heard=HEARD)
_STORED: Final = "SELECT job_no FROM job WHERE job_no = ANY (%s::bigint[])"
_LOCK_ATTEMPTS: Final = 20
_MANY: Final = 1000
_VOIDS_TOKEN: Final = RETURNS_ATTEMPT | {Event.RETRY_NOW}
_NO_TOKEN: Final = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a transaction has to know from its start: jobs to lock together with its own, and
    how long it may take, None for what is usual.
    """

    also: frozenset[int] = frozenset()
    patience_s: float | None = None

    def expect(self, jobs: int) -> None:
        """Raises Again when that many jobs take longer than the transaction has."""
        if jobs > _MANY and self.patience_s is None:
            raise Again(Terms(also=self.also, patience_s=LONG_S))


class Again(Exception):
    """The transaction has to be undone and started anew on other terms."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(f"on other terms: {terms}")
        self.terms = terms


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedRow:
    """Where a job is, as far as a decision needs it. `has_children` says that other jobs wait
    for it, or did; `new_lane_id` is the lane of the priority that a retry asks for.
    """

    job_no: int
    lane_id: int
    namespace: str
    assignee_id: str
    priority: Priority
    cancel_forced: bool
    cancel_reason: str
    has_children: bool
    current: Current
    new_lane_id: int | None = None


async def lock_rows(
    connection: AsyncConnection[TupleRow], tokens: Mapping[int, UUID | None], terms: Terms
) -> dict[int, LockedRow]:
    """Locks jobs by number; `tokens` are those of the outcomes to come. The jobs `terms.also`
    are locked with them, in one order, and left out of the answer.

    A job that was deleted meanwhile is missing in the answer. Raises Again, and Unavailable if
    others move one of the jobs every time we look.
    """
    wanted = {**dict.fromkeys(terms.also), **tokens}
    terms.expect(len(wanted))
    for _ in range(_LOCK_ATTEMPTS):
        # All or none: who kept some locks while waiting for the rest would break the order
        # in which everybody takes them.
        async with connection.transaction() as attempt:
            found = await _lock(connection, wanted)
            missing = [number for number in wanted if number not in found]
            moving = await _stored(connection, missing) if missing else set()
            if moving:
                raise psycopg.Rollback(attempt)
        if not moving:
            return {number: row for number, row in found.items() if number in tokens}
        wanted = {n: token for n, token in wanted.items() if n in found or n in moving}
    raise Unavailable(f"{len(moving)} jobs are being moved by others; call again")


async def _stored(connection: AsyncConnection[TupleRow], numbers: Sequence[int]) -> set[int]:
    cursor = await connection.execute(_STORED, [numbers])
    return {number for (number,) in await cursor.fetchall()}


async def _lock(
    connection: AsyncConnection[TupleRow], tokens: Mapping[int, UUID | None]
) -> dict[int, LockedRow]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_LOCK, {"job_nos": list(tokens), "tokens": list(tokens.values())})
        return {row["job_no"]: _locked(row) for row in await cursor.fetchall()}


def _locked(row: Mapping[str, Any]) -> LockedRow:
    return LockedRow(
        job_no=row["job_no"],
        lane_id=row["lane_id"],
        namespace=row["namespace"],
        assignee_id=row["assignee_id"],
        priority=Priority(row["priority"]),
        cancel_forced=row["cancel_forced"],
        cancel_reason=row["cancel_reason"],
        has_children=row["has_children"],
        current=Current(
            job_id=row["id"],
            state=JobState(row["state"]),
            token=row["token"],
            attempt=row["attempt"],
            max_attempts=row["max_attempts"],
            failure_count=row["failure_count"],
            backoff=load_backoff(row["backoff"]),
            recorded=Event(row["recorded"]) if row["recorded"] else None,
            recorded_state=JobState(row["recorded_state"]) if row["recorded_state"] else None,
            skipped=row["reason"] == Event.SKIP.value,
            lost_before=row["lost_before"],
        ),
    )


Decided = Sequence[tuple[LockedRow, Move]]


async def move_rows(connection: AsyncConnection[TupleRow], decided: Decided) -> None:
    """Writes decided moves of locked rows, one statement per kind of target."""
    ending = [(row, move) for row, move in decided if move.ends and not _is_late(move)]
    waiting = [(row, move) for row, move in decided if move.waits]
    late = [(row, move) for row, move in decided if _is_late(move)]
    stopping = [(row, move) for row, move in decided if move.after is JobState.CANCELLING]
    if ending:
        await connection.execute(_TO_FINAL, _ending_parameters(ending))
    if waiting:
        await connection.execute(_TO_READY, _waiting_parameters(waiting))
    if late:
        await connection.execute(_LATE_COMPLETE, _kept_parameters(late))
    for row, move in stopping:
        given = Given(
            reason=move.cancel_reason,
            error=move.error,
            result=move.result,
            content_type=move.result_content_type,
        )
        await ask_to_stop(connection, [row], given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a cancel says; a result and an error come with UpdateJobStatus only."""

    force: bool = False
    reason: str = ""
    error: ErrorInfo | None = None
    result: bytes | None = None
    content_type: str = ""


async def ask_to_stop(
    connection: AsyncConnection[TupleRow], rows: Sequence[LockedRow], given: Given
) -> None:
    """RUNNING to CANCELLING; of those that are CANCELLING already, raises the force."""
    if not rows:
        return
    parameters = {
        "job_nos": [row.job_no for row in rows],
        "running": [row.job_no for row in rows if row.current.state is JobState.RUNNING],
        "force": given.force,
        "reason": given.reason,
        "error": dump_error(given.error),
        "result": given.result,
        "content_type": given.content_type,
    }
    await connection.execute(_TO_CANCELLING, parameters)


def _is_late(move: Move) -> bool:
    return move.before is JobState.UNKNOWN_STOPPED and move.ends


def _ending_parameters(decided: Decided) -> dict[str, Any]:
    return {
        **_common_parameters(decided),
        "reasons": [move.reason for _, move in decided],
        "cancel_reasons": [move.cancel_reason for _, move in decided],
    }


def _waiting_parameters(decided: Decided) -> dict[str, Any]:
    return {
        **_common_parameters(decided),
        "delays": floats(move.delay_s for _, move in decided),
        "bonuses": [
            PRIORITY_BONUS[move.priority or row.priority].total_seconds() for row, move in decided
        ],
        "failures": [int(move.counts_failure) for _, move in decided],
        "clears": [move.event in _VOIDS_TOKEN for _, move in decided],
        "allowed": [move.max_attempts for _, move in decided],
        "resets": [move.resets_attempts for _, move in decided],
        "drops": [move.drops_result for _, move in decided],
        "lanes": [row.new_lane_id for row, _ in decided],
    }


def _common_parameters(decided: Decided) -> dict[str, Any]:
    return {
        **_kept_parameters(decided),
        "states": [move.after.value for _, move in decided],
        "events": [move.event.value for _, move in decided],
        "retries": [int(move.counts_retry) for _, move in decided],
        "returned": [int(move.returns_attempt) for _, move in decided],
        "records": [move.event in FENCED for _, move in decided],
        "notes": [note_of(move) for _, move in decided],
    }


def _kept_parameters(decided: Decided) -> dict[str, Any]:
    """What a job keeps in any state."""
    return {
        "job_nos": [row.job_no for row, _ in decided],
        "errors": [dump_error(move.error) for _, move in decided],
        "unfenced": [None if move.fenced else True for _, move in decided],
        "results": [move.result for _, move in decided],
        "content_types": [move.result_content_type for _, move in decided],
    }


def storable_token(token: str | None) -> UUID | None:
    """`token`, or one that no job ever has if it cannot be a token at all."""
    try:
        return None if token is None else UUID(token)
    except ValueError:
        return _NO_TOKEN


def dump_error(error: ErrorInfo | None) -> str | None:
    return None if error is None else json.dumps(asdict(error))
