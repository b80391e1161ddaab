"""What happened: the history of one job, and the log of all."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import TupleRow, dict_row

from queue_operator.backends.postgres.connection import (
    Pool,
    again_when_undone,
    borrowed,
    snapshot,
)
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.reading import load_error
from queue_operator.backends.protocol import (
    EVENT_SCHEMA_VERSION,
    Attempt,
    EventBatch,
    JobHistory,
    TransitionRecord,
)
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.states import SLOT_HOLDING, Event, JobState

_JOB: Final = load(__package__, "history_job")
_ATTEMPTS: Final = load(__package__, "history_attempts")
_TRANSITIONS: Final = load(__package__, "history_transitions")
_EVENTS: Final = load(__package__, "event_list")
_SUBMIT: Final = "SUBMIT"
# A late outcome may rewrite the attempt's row after these, and the last has a reason to tell.
_TOLD_APART: Final = (JobState.UNKNOWN_RETRY, JobState.UNKNOWN_STOPPED, JobState.DEAD_LETTER)
_ARRAYS: Final = (
    *("attempts", "wait_us", "run_us", "workers", "failed"),
    *("ids", "correlations", "lanes", "lane_of"),
)

Row = Mapping[str, Any]


class Records:
    """Attempts, transitions and events."""

    def __init__(self, pool: Pool, lanes: Lanes) -> None:
        self._pool = pool
        self._lanes = lanes

    @again_when_undone
    async def history(self, namespace: str, job_id: str) -> JobHistory | None:
        namespace_id = await self._lanes.namespace_id(namespace)
        wanted = {"namespace_id": namespace_id, "id": job_id}
        async with snapshot(self._pool) as connection:
            for job in await _rows(connection, _JOB, wanted):
                ended = await _rows(connection, _ATTEMPTS, job)
                told = await _rows(connection, _TRANSITIONS, job)
                attempts = [*ended, *_attempt_without_row(job, ended)]
                return JobHistory(
                    attempts=tuple(map(_attempt, attempts)),
                    transitions=tuple(_chain(job, attempts, told)),
                )
        return None

    async def events(self, after: int, limit: int) -> list[EventBatch]:
        """Raises Unavailable for a row of a later version than this one knows."""
        async with borrowed(self._pool) as connection:
            rows = await _rows(connection, _EVENTS, {"after": after, "max_rows": limit})
        return [_event(row) for row in rows]


async def _rows(
    connection: AsyncConnection[TupleRow], statement: LiteralString, parameters: Row
) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()


def _attempt_without_row(job: Row, ended: Sequence[Row]) -> Iterator[Row]:
    """The attempt that runs, or the one that completed its job while it ran: `final` says all
    of it.
    """
    state = JobState(job["state"])
    if state in SLOT_HOLDING:
        yield {**job, "ended_at": None, "event": None, "state": None, "error": None}
    elif state is JobState.COMPLETED and all(row["version"] < job["version"] for row in ended):
        yield {
            **job,
            "ended_at": job["changed_at"],
            "event": Event.COMPLETE.value,
            "from_state": JobState.RUNNING.value,
            "error": None,
        }


def _attempt(row: Row) -> Attempt:
    return Attempt(
        version=row["version"],
        number=row["number"],
        token=row["token"],
        assignee_id=row["assignee_id"],
        worker_name=row["worker_name"],
        host=row["host"],
        assigned_at=row["assigned_at"],
        ended_at=row["ended_at"],
        event=row["event"],
        state=JobState(row["state"]) if row["state"] else None,
        error=load_error(row["error"]),
        eligible_at=row["eligible_at"],
    )


def _chain(job: Row, attempts: Sequence[Row], told: Sequence[Row]) -> list[TransitionRecord]:
    """All transitions in order. Each has a number; those without a row are the submission, and
    what the attempts tell in the order of their versions.
    """
    records = {row["number"]: _told(row) for row in told}
    missing = [number for number in range(1, job["transition"] + 1) if number not in records]
    records |= zip(missing, [_submission(job), *_untold(attempts)], strict=True)
    ordered = [records[number] for number in sorted(records)]
    for place, (earlier, later) in enumerate(pairwise(ordered), start=1):
        if later.before is None:
            ordered[place] = replace(later, before=earlier.after)
    return ordered


def _told(row: Row) -> TransitionRecord:
    return TransitionRecord(
        event=row["event"],
        before=JobState(row["from_state"]),
        after=JobState(row["to_state"]),
        at=row["at"],
        reason=row["reason"],
    )


def _submission(job: Row) -> TransitionRecord:
    return TransitionRecord(
        event=_SUBMIT, before=None, after=JobState.INITIAL_PENDING, at=job["created_at"]
    )


def _untold(attempts: Iterable[Row]) -> Iterator[TransitionRecord]:
    """The claim of each attempt and what ended it, unless that has a row of its own."""
    running = JobState.RUNNING
    for row in attempts:
        yield TransitionRecord(
            event=Event.CLAIM.value, before=None, after=running, at=row["assigned_at"]
        )
        if row["event"] and row["from_state"] == running and row["state"] not in _TOLD_APART:
            yield TransitionRecord(
                event=row["event"], before=running, after=JobState(row["state"]), at=row["ended_at"]
            )


def _event(row: Row) -> EventBatch:
    if row["schema_version"] > EVENT_SCHEMA_VERSION:
        raise Unavailable(
            f"event {row['seq']} is of schema version {row['schema_version']} and this process "
            f"knows up to {EVENT_SCHEMA_VERSION}: upgrade it"
        )
    return EventBatch(
        seq=row["seq"],
        transaction=row["transaction"],
        at=row["at"],
        event=row["event"],
        before=JobState(row["from_state"]) if row["from_state"] else None,
        after=JobState(row["to_state"]) if row["to_state"] else None,
        job_nos=tuple(row["job_nos"]),
        schema_version=row["schema_version"],
        **{name: tuple(row[name] or ()) for name in _ARRAYS},
    )
