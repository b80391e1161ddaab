"""What handlers logged."""

from collections.abc import Sequence
from typing import Any

from queue_operator.api import documents, schemas
from queue_operator.domain.log_cursor import LogCursor
from queue_operator.domain.running import AttemptLog, LogLine


def job_log(
    job_id: str, found: Sequence[AttemptLog], attempt: int | None, most: int, after: LogCursor
) -> schemas.JobLog:
    """The newest lines of each attempt, or of the one that is asked for."""
    wanted = [one for one in found if attempt in (None, one.number)]
    return schemas.JobLog(
        job_id=job_id,
        attempts=[_attempt(one, most, after) for one in wanted],
        next_cursor=str(after.after(found)),
    )


def size_of(found: Sequence[AttemptLog]) -> int:
    """About how many bytes all of it takes."""
    return sum(line.size for one in found for line in one.lines)


def _attempt(one: AttemptLog, most: int, after: LogCursor) -> schemas.AttemptLog:
    told = one.lines[-most:]
    return schemas.AttemptLog(
        attempt=one.number,
        continued=after.read_of(one.version) > 0,
        dropped=one.dropped + len(one.lines) - len(told),
        lines=[_line(line) for line in told],
    )


def _line(line: LogLine) -> schemas.LogLine:
    return schemas.LogLine(
        at=line.at, level=line.level, message=line.message, fields=_fields(line.fields)
    )


def _fields(text: str) -> dict[str, Any]:
    """Workers may send anything; what is no object of JSON is told as it came."""
    try:
        found = documents.decode(text.encode())
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"fields": text}
