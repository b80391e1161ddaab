"""What handlers logged, for stores that keep it."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import (
    LOG_ATTEMPTS,
    LOG_BYTES,
    LOG_LINES,
    AttemptLog,
    JobLogs,
    LogLine,
    LogReport,
)
from queue_operator.domain.errors import InvalidArgument, JobNotFound
from queue_operator.domain.job import Job
from queue_operator.domain.log_cursor import LogCursor
from queue_operator.domain.states import Event
from queue_operator.testing.breaking import needs_the_store
from queue_operator.testing.driving import apply, claim, running, submitted
from queue_operator.testing.store import Contract, Store

_NOON: Final = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
_NEVER: Final = "00000000-0000-4000-8000-000000000000"


_GOOD: Final = LogLine(number=1, at=_NOON, level="INFO", message="good")
_WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "number": (None, 0, -1, True, 1.5, "1", 2**63),
    "at": (None, 7, "now", datetime(2026, 1, 1)),
    "level": (None, 7, b"INFO", "\ud800"),
    "message": (None, 7, b"x", "a\udfffb"),
    "fields": (None, {}, "\ud800"),
}
_NO_LINES: Final[list[tuple[dict[str, Any], str]]] = [
    ({"token": None}, "token"),
    ({"token": 7}, "token"),
    ({"lines": 7}, "lines"),
    ({"lines": "text"}, "lines"),
    ({"lines": ("text",)}, "lines[0]"),
    ({"lines": (_GOOD, None)}, "lines[1]"),
    *(
        ({"lines": (_GOOD, replace(_GOOD, **{field: value}))}, f"lines[1].{field}")
        for field, values in _WRONG.items()
        for value in values
    ),
]


def line(number: int, message: str = "") -> LogLine:
    at = _NOON + timedelta(microseconds=number)
    return LogLine(number=number, at=at, level="INFO", message=message or f"line {number}")


def lines(first: int, count: int) -> list[LogLine]:
    return [line(number) for number in range(first, first + count)]


def report(job: Job, token: str, said: Iterable[LogLine]) -> LogReport:
    return LogReport(job_id=job.id, token=token, lines=tuple(said))


async def append(backend: Contract, *reports: LogReport) -> None:
    assert isinstance(backend, JobLogs)
    await backend.append_logs(reports)


async def read(backend: Contract, job: Job) -> list[AttemptLog]:
    assert isinstance(backend, JobLogs)
    return await backend.job_log(job.id)


async def read_on(
    backend: Contract, job: Job, cursor: LogCursor
) -> tuple[list[AttemptLog], LogCursor]:
    assert isinstance(backend, JobLogs)
    found = await backend.job_log(job.id, after=cursor)
    return found, cursor.after(found)


async def test_lines_are_kept_by_attempt_in_their_order(backend: Contract) -> None:
    job, first = await running(backend)
    said = [
        line(1, "plain"),
        LogLine(number=2, at=_NOON, level="ERROR", message="\x00\N{SNOWMAN}", fields='{"a": [1]}'),
    ]
    await append(backend, report(job, first, said[:1]))
    await append(backend, report(job, first, said[1:]))
    await apply(backend, job, Event.FAIL, first)
    second = (await claim(backend, job)).token
    await append(backend, report(job, second, lines(1, 3)))
    assert await read(backend, job) == [
        AttemptLog(version=1, number=1, lines=tuple(said)),
        AttemptLog(version=2, number=2, lines=tuple(lines(1, 3))),
    ]


async def test_each_job_has_its_own_lines(backend: Contract) -> None:
    one, its_token = await running(backend)
    two, other_token = await running(backend)
    silent = await submitted(backend)
    await append(
        backend,
        report(one, its_token, [line(1, "one")]),
        report(two, other_token, [line(1, "two")]),
        report(one, its_token, [line(2, "more")]),
        report(two, other_token, []),
    )
    assert [one.message for log in await read(backend, one) for one in log.lines] == ["one", "more"]
    assert [one.message for log in await read(backend, two) for one in log.lines] == ["two"]
    assert await read(backend, silent) == []


@pytest.mark.parametrize(
    "event",
    [Event.COMPLETE, Event.FAIL, Event.LOSE, Event.HAND_BACK, Event.EXHAUST],
)
async def test_the_last_lines_of_an_attempt_may_come_after_its_end(
    backend: Contract, event: Event
) -> None:
    job, token = await running(backend)
    await apply(backend, job, event, token)
    await append(backend, report(job, token, lines(1, 1)))
    [log] = await read(backend, job)
    assert (log.version, log.number, log.lines) == (1, 1, tuple(lines(1, 1)))


async def test_the_attempt_of_a_lost_worker_keeps_its_number(backend: Contract) -> None:
    """It does not count, but it was there."""
    job, token = await running(backend)
    await backend.mark_worker_unresponsive("worker-1")
    await append(backend, report(job, token, lines(1, 1)))
    [log] = await read(backend, job)
    assert (log.version, log.number) == (1, 1)


async def test_lines_under_a_token_that_the_job_never_had_are_ignored(backend: Contract) -> None:
    job, token = await running(backend)
    other, other_token = await running(backend)
    missing = Job(id="missing", type="t")
    await append(
        backend,
        report(job, _NEVER, lines(1, 1)),
        report(job, other_token, lines(1, 1)),
        report(job, "no token at all", lines(1, 1)),
        report(missing, token, lines(1, 1)),
        report(job, token, lines(1, 2)),
    )
    assert [log.lines for log in await read(backend, job)] == [tuple(lines(1, 2))]
    assert await read(backend, other) == []


async def test_a_stale_attempt_has_its_own_log(backend: Contract) -> None:
    job, old = await running(backend)
    await apply(backend, job, Event.LOSE, old)
    new = (await claim(backend, job, "worker-2")).token
    await append(backend, report(job, new, lines(1, 1)), report(job, old, lines(1, 2)))
    logs = await read(backend, job)
    assert [(log.version, len(log.lines)) for log in logs] == [(1, 2), (2, 1)]


async def test_the_newest_lines_stay_and_it_is_said_how_many_went(backend: Contract) -> None:
    job, token = await running(backend)
    for first in range(1, 3 * LOG_LINES, 300):
        await append(backend, report(job, token, lines(first, 300)))
    [log] = await read(backend, job)
    last = 3 * LOG_LINES
    assert len(log.lines) == LOG_LINES
    assert (log.lines[0].number, log.lines[-1].number) == (last - LOG_LINES + 1, last)
    assert log.dropped == last - LOG_LINES


async def test_long_lines_are_bounded_by_their_size(backend: Contract) -> None:
    job, token = await running(backend)
    for number in range(1, 101):
        await append(backend, report(job, token, [line(number, "x" * 8000)]))
    [log] = await read(backend, job)
    size = sum(one.size for one in log.lines)
    assert size <= LOG_BYTES < size + log.lines[0].size
    assert (log.lines[-1].number, log.dropped) == (100, 100 - len(log.lines))


async def test_one_report_may_be_larger_than_what_stays(backend: Contract) -> None:
    job, token = await running(backend)
    await append(backend, report(job, token, lines(1, 10)))
    await append(backend, report(job, token, lines(11, 2 * LOG_LINES)))
    [log] = await read(backend, job)
    assert (len(log.lines), log.dropped) == (LOG_LINES, LOG_LINES + 10)


async def test_lines_that_were_dropped_on_their_way_are_counted(backend: Contract) -> None:
    job, token = await running(backend)
    await append(backend, report(job, token, [*lines(5, 2), *lines(10, 1)]))
    [log] = await read(backend, job)
    assert ([one.number for one in log.lines], log.dropped) == ([5, 6, 10], 7)


async def test_lines_that_come_twice_are_kept_once(backend: Contract) -> None:
    job, token = await running(backend)
    for _ in range(2):
        await append(backend, report(job, token, lines(1, 2)))
    [log] = await read(backend, job)
    assert ([one.number for one in log.lines], log.dropped) == ([1, 2], 0)


async def test_the_newest_attempts_keep_their_logs(backend: Contract) -> None:
    job = await submitted(backend)
    for _ in range(LOG_ATTEMPTS + 3):
        token = (await claim(backend, job)).token
        await append(backend, report(job, token, lines(1, 1)))
        await append(backend, report(job, token, lines(2, 1)))
        await apply(backend, job, Event.HAND_BACK, token)
    logs = await read(backend, job)
    assert [log.version for log in logs] == list(range(4, LOG_ATTEMPTS + 4))
    assert {len(log.lines) for log in logs} == {2}


async def test_only_what_was_not_read_is_told(backend: Contract) -> None:
    """Also of an attempt that had no line yet when a later one had some."""
    job, first = await running(backend)
    await apply(backend, job, Event.LOSE, first)
    second = (await claim(backend, job)).token
    await append(backend, report(job, second, lines(1, 3)))
    found, read = await read_on(backend, job, LogCursor())
    assert [(log.version, log.lines) for log in found] == [(2, tuple(lines(1, 3)))]
    assert await read_on(backend, job, read) == ([], read)
    await append(backend, report(job, second, lines(4, 2)), report(job, first, lines(1, 2)))
    found, read = await read_on(backend, job, read)
    assert found == [
        AttemptLog(version=1, number=1, lines=tuple(lines(1, 2))),
        AttemptLog(version=2, number=found[1].number, lines=tuple(lines(4, 2))),
    ]
    await append(backend, report(job, first, lines(3, 1)))
    found, read = await read_on(backend, job, read)
    assert [(log.version, log.lines) for log in found] == [(1, tuple(lines(3, 1)))]
    assert await read_on(backend, job, read) == ([], read)


async def test_lines_that_were_read_and_come_again_are_not_told_again(backend: Contract) -> None:
    job, token = await running(backend)
    await append(backend, report(job, token, lines(1, 3)))
    _, read = await read_on(backend, job, LogCursor())
    await append(backend, report(job, token, lines(2, 4)))
    [log], read = await read_on(backend, job, read)
    assert (log.lines, log.dropped) == (tuple(lines(4, 2)), 0)
    await append(backend, report(job, token, lines(4, 2)))
    assert await read_on(backend, job, read) == ([], read)


async def test_lines_that_went_before_they_were_read_are_counted(backend: Contract) -> None:
    job, token = await running(backend)
    await append(backend, report(job, token, lines(1, 5)))
    _, read = await read_on(backend, job, LogCursor())
    await append(backend, report(job, token, lines(6, LOG_LINES + 7)))
    [log], _ = await read_on(backend, job, read)
    assert (log.lines[0].number, len(log.lines), log.dropped) == (13, LOG_LINES, 7)


async def test_who_has_read_of_as_many_attempts_as_stay_is_told_of_those(
    backend: Contract,
) -> None:
    job = await submitted(backend)
    read, first = LogCursor(), ""
    for version in range(1, LOG_ATTEMPTS + 3):
        token = (await claim(backend, job)).token
        first = first or token
        await append(backend, report(job, token, lines(1, 2)))
        found, read = await read_on(backend, job, read)
        assert [(log.version, len(log.lines)) for log in found] == [(version, 2)]
        await apply(backend, job, Event.HAND_BACK, token)
    await append(backend, report(job, first, lines(3, 1)))
    assert await read_on(backend, job, read) == ([], read)
    assert min(read.lines) == 3


async def test_a_log_goes_with_its_job(backend: Contract) -> None:
    job, token = await running(backend)
    await append(backend, report(job, token, lines(1, 1)))
    await apply(backend, job, Event.COMPLETE, token)
    assert len(await read(backend, job)) == 1
    await backend.delete_jobs([], [job.id])
    with pytest.raises(JobNotFound):
        await read(backend, job)
    await append(backend, report(job, token, lines(2, 1)))
    await backend.enqueue_job(job)
    assert await read(backend, job) == []


async def test_a_store_that_is_away_neither_keeps_nor_shows_a_log(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    said = report(job, token, lines(1, 1))
    calls = lambda: append(backend, said), lambda: read(backend, job)
    await needs_the_store(store, backend, *calls)
    assert await read(backend, job) == []


async def test_a_log_is_there_for_the_next_process(store: Store) -> None:
    backend = await store.open()
    job, token = await running(backend)
    await append(backend, report(job, token, lines(1, 2)))
    await backend.close()
    if store.durable:
        assert [log.lines for log in await read(await store.open(), job)] == [tuple(lines(1, 2))]


async def test_arguments_that_make_no_sense_are_named(backend: Contract) -> None:
    job, token = await running(backend)
    nameless = LogReport(job_id="", token=token, lines=tuple(lines(1, 1)))
    with pytest.raises(InvalidArgument, match=r"reports\[1\]\.job_id"):
        await append(backend, report(job, token, lines(1, 1)), nameless)
    with pytest.raises(InvalidArgument, match=r"reports\[0\]"):
        await append(backend, "no report")  # type: ignore[arg-type]
    for change, field in _NO_LINES:
        wrong = replace(report(job, token, lines(1, 1)), **change)
        with pytest.raises(InvalidArgument) as refused:
            await append(backend, report(job, token, lines(1, 1)), wrong)
        assert refused.value.field == f"reports[1].{field}"
    assert await read(backend, job) == []
    await append(backend)
    assert isinstance(backend, JobLogs)
    with pytest.raises(InvalidArgument, match="after"):
        await backend.job_log(job.id, after="1.1")  # type: ignore[arg-type]
