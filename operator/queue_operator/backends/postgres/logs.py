"""What handlers logged, in the pieces that workers sent."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.rows import storable_token
from queue_operator.backends.sql import load
from queue_operator.domain.log_cursor import LogCursor
from queue_operator.domain.running import (
    LOG_ATTEMPTS,
    LOG_BYTES,
    LOG_LINES,
    AttemptLog,
    LogLine,
    LogReport,
    newest_lines,
)

_APPEND: Final = load(__package__, "log_append")
_READ: Final = load(__package__, "log_read")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)

_Name = tuple[str, str, str]
FoundLog = list[AttemptLog] | None


class LogStore:
    """The protocol `JobLogs`; the arguments are checked."""

    def __init__(self, pool: Pool, lanes: Lanes) -> None:
        self._pool = pool
        self._lanes = lanes

    async def append(self, reports: Sequence[LogReport]) -> None:
        whole: dict[_Name, list[LogLine]] = {}
        for report in reports:
            name = report.namespace, report.job_id, report.token
            whole.setdefault(name, []).extend(report.lines)
        await self._append({name: lines[-LOG_LINES:] for name, lines in whole.items()})

    @again_when_undone
    async def _append(self, logs: dict[_Name, list[LogLine]]) -> None:
        parameters = {
            "namespaces": await self._lanes.namespace_ids([name[0] for name in logs]),
            "ids": [job_id for _, job_id, _ in logs],
            "tokens": [storable_token(token) for _, _, token in logs],
            "lasts": [lines[-1].number for lines in logs.values()],
            "lines": [len(lines) for lines in logs.values()],
            "bytes": [sum(line.size for line in lines) for lines in logs.values()],
            "bodies": [_dump(lines) for lines in logs.values()],
            "max_lines": LOG_LINES,
            "max_bytes": LOG_BYTES,
            "max_attempts": LOG_ATTEMPTS,
        }
        async with borrowed(self._pool) as connection:
            await connection.execute(_APPEND, parameters)

    async def read(self, namespace: str, job_id: str, after: LogCursor) -> FoundLog:
        """None when there is no such job."""
        spans = after.spans()
        wanted = {
            "namespace_id": await self._lanes.namespace_id(namespace),
            "id": job_id,
            "versions": [span.version for span in spans],
            "lines": [span.line for span in spans],
            "untils": [span.until for span in spans],
        }
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_READ, wanted)).fetchall()
        if not rows:
            return None
        attempts: dict[tuple[int, int], dict[int, LogLine]] = {}
        for version, number, body in rows:
            read = after.read_of(version)
            # A piece may begin before what was read: workers send some lines twice.
            if fresh := {line.number: line for line in _load(body) if line.number > read}:
                attempts.setdefault((version, number), {}).update(fresh)
        return [
            newest_lines(
                *attempt,
                [lines[number] for number in sorted(lines)],
                read=after.read_of(attempt[0]),
            )
            for attempt, lines in attempts.items()
        ]


def _dump(lines: Sequence[LogLine]) -> str:
    """In ASCII, which says even what no text column can hold."""
    return json.dumps(
        [
            [line.number, (line.at - _EPOCH) // _US, line.level, line.message, line.fields]
            for line in lines
        ],
        separators=(",", ":"),
    )


def _load(body: str | None) -> list[LogLine]:
    stored: list[list[Any]] = json.loads(body) if body is not None else []
    return [
        LogLine(number=number, at=_EPOCH + us * _US, level=level, message=message, fields=fields)
        for number, us, level, message, fields in stored
    ]
