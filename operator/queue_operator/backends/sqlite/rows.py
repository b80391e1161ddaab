"""Jobs as rows: what is looked for in columns, all else as JSON."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import TypeAdapter

from queue_operator.backends.protocol import EventBatch, LogLine
from queue_operator.backends.shelf import Glimpse
from queue_operator.backends.stored import Stored
from queue_operator.backends.streams import Kind
from queue_operator.domain import record
from queue_operator.domain.states import ELIGIBLE, JobState

_STORED: Final = TypeAdapter(Stored)
_EVENT: Final = TypeAdapter(EventBatch)
_LINE: Final = TypeAdapter(LogLine)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_BYTES: Final[Any] = {"job": {"payload": True, "result": True}}

Row = dict[str, Any]
"""A job by the columns of its table."""


def microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _US


def optional_us(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)


def instant(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def row_of(one: Stored) -> Row:
    """The columns of a job. Bytes have columns of their own: JSON has no way to say them."""
    job = one.job
    inherited, kind = one.parent_result or (None, "")
    bare = one if inherited is None else replace(one, parent_result=(None, kind))
    kept = one.checkpoint
    if kept is not None:
        bare = replace(bare, checkpoint=replace(kept, data=b""))
    waits = job.state in ELIGIBLE and not (job.waiting_for_dependencies or job.suspended)
    return {
        "number": one.number,
        "namespace": job.namespace,
        "id": job.id,
        "type": job.type,
        "state": job.state.value,
        "priority": job.priority.value,
        "place": microseconds(record.place(job)),
        "created_at": microseconds(job.created_at or _EPOCH),
        "updated_at": microseconds(job.updated_at or _EPOCH),
        "eligible_at": microseconds(job.eligible_at or _EPOCH),
        "finalized_at": optional_us(job.finalized_at),
        "claimable": waits and not record.is_used_up(job),
        "used_up": record.is_used_up(job),
        "waiting": job.waiting_for_dependencies,
        "category": job.error and job.error.category.value,
        "code": job.error and job.error.code,
        "failed_at": optional_us(job.failed_at),
        "retries": job.retry_count,
        "record": _STORED.dump_json(bare, exclude=_BYTES).decode(),
        "payload": job.payload,
        "result": job.result,
        "inherited": inherited,
        "checkpoint": kept and kept.data,
    }


def stored_from(row: Row) -> Stored:
    """The job of a row."""
    one = _STORED.validate_json(row["record"])
    one.job = replace(one.job, payload=row["payload"], result=row["result"])
    if one.parent_result is not None:
        one.parent_result = row["inherited"], one.parent_result[1]
    if one.checkpoint is not None:
        one.checkpoint = replace(one.checkpoint, data=row["checkpoint"])
    return one


def glimpse_from(row: sqlite3.Row) -> Glimpse:
    return Glimpse(
        number=row["number"],
        job_id=row["id"],
        kind=Kind(row["namespace"], row["type"], frozenset(json.loads(row["tags"]))),
        state=JobState(row["state"]),
        attempt=row["attempt"],
        at=instant(row["updated_at"]),
        category=row["category"],
        waits=bool(row["waiting"]),
        eligible_at=instant(row["eligible_at"]),
    )


def event_record(told: Mapping[str, object]) -> str:
    """The JSON of an event row, which gets its numbers when it is stored."""
    row = EventBatch(seq=0, transaction=0, **told)  # type: ignore[arg-type]
    return _EVENT.dump_json(row).decode()


def event_from(seq: int, stored: str) -> EventBatch:
    return replace(_EVENT.validate_json(stored), seq=seq, transaction=seq)


def log_record(line: LogLine) -> str:
    """The JSON of a line."""
    return _LINE.dump_json(line).decode()


def log_from(stored: str) -> LogLine:
    return _LINE.validate_json(stored)
