"""What one process saw, line by line, in a file that survives the process."""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final


class Kind(StrEnum):
    """What was seen. `called` is written before the call, the others after its answer."""

    SUBMIT_CALLED = "submit called"
    SUBMIT_ACKNOWLEDGED = "submit acknowledged"
    SUBMIT_FAILED = "submit failed"
    CANCEL_CALLED = "cancel called"
    CANCEL_ACKNOWLEDGED = "cancel acknowledged"
    CANCEL_FAILED = "cancel failed"
    STREAM_OPENED = "stream opened"
    STREAM_CLOSED = "stream closed"
    STREAM_USAGE = "stream usage"
    ASSIGNED = "assigned"
    HANDLER_STARTED = "handler started"
    HANDLER_ENDED = "handler ended"
    CANCEL_RECEIVED = "cancel received"
    LEASE_ANSWERED = "lease answered"
    OUTCOME_SENT = "outcome sent"
    OUTCOME_ACKNOWLEDGED = "outcome acknowledged"
    OUTCOME_REFUSED = "outcome refused"
    CHECKPOINT_SENT = "checkpoint sent"
    CHECKPOINT_ACKNOWLEDGED = "checkpoint acknowledged"
    SPAWN_SENT = "spawn sent"
    SPAWN_ACKNOWLEDGED = "spawn acknowledged"
    LINE_SENT = "log line sent"
    RECEIVER_OPENED = "receiver opened"
    MESSAGE_READ = "message read"
    KILLED = "killed"
    FAULT = "fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One thing seen by one process. `at` is in seconds since the epoch."""

    at: float
    process: str
    kind: Kind
    job_id: str = ""
    token: str = ""
    assignee_id: str = ""
    said: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        known = {"job": self.job_id, "token": self.token, "stream": self.assignee_id, **self.said}
        told = " ".join(f"{name}={value}" for name, value in known.items() if value not in ("", {}))
        return f"{clock_time(self.at)} {self.process:<14} {self.kind} {told}"


def clock_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")


_COLUMNS: Final = ("at", "process", "kind", "job_id", "token", "assignee_id")


class Log:
    """The log of one process. Each line is one write, so a SIGKILL cuts off at most the last;
    without a path the records are kept in `records` only.
    """

    def __init__(
        self, process: str, path: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.process = process
        self.clock = clock
        self.records: list[Record] = []
        self._file = None
        if path is not None:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(
        self,
        kind: Kind,
        job_id: str = "",
        token: str = "",
        *,
        assignee_id: str = "",
        **said: object,
    ) -> None:
        record = Record(
            at=self.clock(),
            process=self.process,
            kind=kind,
            job_id=job_id,
            token=token,
            assignee_id=assignee_id,
            said=said,
        )
        if self._file is None:
            self.records.append(record)
        else:
            os.write(self._file, _line(record))


def _line(record: Record) -> bytes:
    row: dict[str, object] = {name: getattr(record, name) for name in _COLUMNS}
    return json.dumps(row | {"said": dict(record.said)}).encode() + b"\n"


def read_logs(paths: Iterable[Path]) -> list[Record]:
    """All records in the order of their times. Raises ValueError for a line that is no record,
    unless it is the last of its file, which a killed process may not have finished.
    """
    records: list[Record] = []
    for path in paths:
        lines = path.read_bytes().split(b"\n")
        # What follows the last line break is empty, or was cut off.
        records += [_record(line) for line in lines[:-1]]
    return sorted(records, key=lambda record: record.at)


def _record(line: bytes) -> Record:
    row = json.loads(line)
    return Record(**row | {"kind": Kind(row["kind"])})
