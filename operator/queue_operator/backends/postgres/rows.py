"""Rows under a lock, and the statements that move them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow, dict_row

from queue_operator.backends.postgres.reading import load_backoff
from queue_operator.backends.sql import load
from queue_operator.domain.ordering import PRIORITY_BONUS, Priority
from queue_operator.domain.outcome import ErrorInfo
from queue_operator.domain.states import RETURNS_ATTEMPT, Event, JobState
from queue_operator.domain.transition import FENCED, Current, Move

_LOCK: Final = load(__package__, "lock")
_TO_FINAL: Final = load(__package__, "move_to_final")
_TO_READY: Final = load(__package__, "move_to_ready")
_TO_CANCELLING: Final = load(__package__, "move_to_cancelling")
_LATE_COMPLETE: Final = load(__package__, "move_late_complete")
_LOCK_ATTEMPTS: Final = 5
_VOIDS_TOKEN: Final = RETURNS_ATTEMPT | {Event.RETRY_NOW}
_NO_TOKEN: Final = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedRow:
    """Where a job is, as far as a decision needs it."""

    job_no: int
    lane_id: int
    namespace: str
    assignee_id: str
    priority: Priority
    cancel_forced: bool
    current: Current


async def lock_rows(
    connection: AsyncConnection[TupleRow], tokens: Mapping[int, UUID | None]
) -> dict[int, LockedRow]:
    """Locks jobs by number; `tokens` are those of the outcomes to come.

    A job that was deleted meanwhile is missing in the answer.
    """
    found: dict[int, LockedRow] = {}
    for _ in range(_LOCK_ATTEMPTS):
        # All or none: who kept some locks while waiting for the rest would break the order
        # in which everybody takes them.
        async with connection.transaction() as attempt:
            found = await _lock(connection, tokens)
            if len(found) < len(tokens):
                raise psycopg.Rollback(attempt)
        if len(found) == len(tokens):
            return found
    return await _lock(connection, tokens)


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
        current=Current(
            job_id=row["id"],
            state=JobState(row["state"]),
            token=row["token"],
            attempt=row["attempt"],
            max_attempts=row["max_attempts"],
            failure_count=row["failure_count"],
            backoff=load_backoff(row["backoff"]),
            recorded=Event(row["recorded"]) if row["recorded"] else None,
            skipped=row["reason"] == Event.SKIP.value,
        ),
    )


Decided = Sequence[tuple[LockedRow, Move]]


async def carry_out(connection: AsyncConnection[TupleRow], decided: Decided) -> None:
    """Writes decided moves of locked rows, one statement per kind of target."""
    ending = [(row, move) for row, move in decided if move.ends and not _is_late(move)]
    waiting = [(row, move) for row, move in decided if move.waits]
    late = [(row, move) for row, move in decided if _is_late(move)]
    stopping = [row for row, move in decided if move.after is JobState.CANCELLING]
    if ending:
        await connection.execute(_TO_FINAL, _ending_parameters(ending))
    if waiting:
        await connection.execute(_TO_READY, _waiting_parameters(waiting))
    if late:
        await connection.execute(_LATE_COMPLETE, _late_parameters(late))
    await ask_to_stop(connection, stopping, force=False, reason="")


async def ask_to_stop(
    connection: AsyncConnection[TupleRow], rows: Sequence[LockedRow], force: bool, reason: str
) -> None:
    """RUNNING to CANCELLING; of those that are CANCELLING already, raises the force."""
    if rows:
        await connection.execute(
            _TO_CANCELLING,
            {"job_nos": [row.job_no for row in rows], "force": force, "reason": reason},
        )


def _is_late(move: Move) -> bool:
    return move.before is JobState.UNKNOWN_STOPPED and move.ends


def _ending_parameters(decided: Decided) -> dict[str, Any]:
    return {
        **_common_parameters(decided),
        "reasons": [move.reason for _, move in decided],
        "cancel_reasons": [move.cancel_reason for _, move in decided],
        "results": [move.result for _, move in decided],
        "content_types": [move.result_content_type for _, move in decided],
        "records": [move.event in FENCED for _, move in decided],
    }


def _waiting_parameters(decided: Decided) -> dict[str, Any]:
    return {
        **_common_parameters(decided),
        "delays": [move.delay_s for _, move in decided],
        "bonuses": [PRIORITY_BONUS[row.priority].total_seconds() for row, _ in decided],
        "failures": [int(move.counts_failure) for _, move in decided],
        "clears": [move.event in _VOIDS_TOKEN for _, move in decided],
        "records": [move.event in FENCED for _, move in decided],
        "extra": [int(move.event is Event.RETRY_NOW) for _, move in decided],
    }


def _common_parameters(decided: Decided) -> dict[str, Any]:
    return {
        "job_nos": [row.job_no for row, _ in decided],
        "states": [move.after.value for _, move in decided],
        "events": [move.event.value for _, move in decided],
        "errors": [dump_error(move.error) for _, move in decided],
        "retries": [int(move.counts_retry) for _, move in decided],
        "returned": [int(move.returns_attempt) for _, move in decided],
    }


def _late_parameters(decided: Decided) -> dict[str, Any]:
    return {
        "job_nos": [row.job_no for row, _ in decided],
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
