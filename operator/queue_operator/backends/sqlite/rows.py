"""Jobs as rows: what is looked for in columns, all else as JSON."""

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import TypeAdapter

from queue_operator.backends.protocol import EventBatch
from queue_operator.backends.stored import Stored
from queue_operator.domain import record
from queue_operator.domain.states import ELIGIBLE

_STORED: Final = TypeAdapter(Stored)
_EVENT: Final = TypeAdapter(EventBatch)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)


def microseconds(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // _US


def instant(us: int | None) -> datetime | None:
    return None if us is None else _EPOCH + timedelta(microseconds=us)


def row_of(one: Stored) -> dict[str, Any]:
    """The columns of a job. Bytes have columns of their own: JSON has no way to say them."""
    job = one.job
    inherited, kind = one.parent_result or (None, "")
    bare = replace(
        one,
        job=replace(job, payload=b"", result=None),
        parent_result=None if one.parent_result is None else (None, kind),
    )
    waits = job.state in ELIGIBLE and not job.waiting_for_dependencies
    return {
        "number": one.number,
        "namespace": job.namespace,
        "id": job.id,
        "type": job.type,
        "state": job.state.value,
        "place": microseconds(record.place(job)),
        "eligible_at": microseconds(job.eligible_at) or 0,
        "claimable": int(waits and not record.is_used_up(job)),
        "used_up": int(record.is_used_up(job)),
        "finalized_at": microseconds(job.finalized_at),
        "retries": job.retry_count,
        "record": _STORED.dump_json(bare).decode(),
        "payload": job.payload,
        "result": job.result,
        "inherited": inherited,
    }


def stored_from(row: sqlite3.Row) -> Stored:
    """The job of a row."""
    one = _STORED.validate_json(row["record"])
    one.job = replace(one.job, payload=row["payload"], result=row["result"])
    if one.parent_result is not None:
        one.parent_result = row["inherited"], one.parent_result[1]
    return one


def event_record(told: Mapping[str, object]) -> str:
    """The JSON of an event row, which gets its numbers when it is stored."""
    row = EventBatch(seq=0, transaction=0, **told)  # type: ignore[arg-type]
    return _EVENT.dump_json(row).decode()


def event_from(seq: int, stored: str) -> EventBatch:
    return replace(_EVENT.validate_json(stored), seq=seq, transaction=seq)
