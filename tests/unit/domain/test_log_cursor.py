"""How far a log was read."""

from datetime import UTC, datetime

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.log_cursor import LogCursor, Span
from queue_operator.domain.running import LOG_ATTEMPTS, AttemptLog, LogLine

LAST = 2**31


def log(version: int, *numbers: int) -> AttemptLog:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    lines = [LogLine(number=number, at=at, level="INFO", message="m") for number in numbers]
    return AttemptLog(version=version, number=1, lines=tuple(lines))


def test_a_cursor_is_the_same_after_it_was_text() -> None:
    cursor = LogCursor().after([log(1, 1, 2), log(3, 7)])
    assert str(cursor) == "1.2-3.7"
    assert LogCursor.parse(str(cursor)) == cursor
    assert LogCursor.parse("") == LogCursor()
    assert str(LogCursor()) == ""


def test_what_was_not_read_lies_behind_the_last_lines_and_between_the_attempts() -> None:
    cursor = LogCursor.parse("2.5-4.1")
    assert cursor.spans() == [Span(0, 0, 2), Span(2, 5, 4), Span(4, 1, LAST)]
    assert LogCursor().spans() == [Span(0, 0, LAST)]


def test_a_cursor_knows_as_many_attempts_as_are_kept() -> None:
    found = [log(version, 1) for version in range(1, LOG_ATTEMPTS + 3)]
    cursor = LogCursor().after(found)
    assert sorted(cursor.lines) == list(range(3, LOG_ATTEMPTS + 3))
    assert cursor.spans()[0] == Span(3, 1, 4)
    with pytest.raises(InvalidArgument, match="cursor"):
        LogCursor.parse(f"{cursor}-1.1")
