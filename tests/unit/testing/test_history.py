"""Logs that survive their process, and what is read out of a history."""

from pathlib import Path

import pytest

from queue_operator.backends.memory import MemoryBackend
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.queue.service import QueueService
from queue_operator.testing.driving import claim, running, submitted
from queue_operator.testing.history import (
    History,
    Kind,
    Log,
    Rule,
    check,
    read_logs,
    read_store,
    record_queue,
    summarise,
    takeovers,
)


def test_what_was_written_is_read_in_order_of_time(tmp_path: Path) -> None:
    times = iter([3.0, 1.0, 2.0])
    one = Log("one", tmp_path / "one.jsonl", lambda: next(times))
    other = Log("other", tmp_path / "other.jsonl", lambda: next(times))
    one.write(Kind.SUBMIT_CALLED, "a")
    other.write(Kind.ASSIGNED, "a", "token", assignee_id="s", attempt=1)
    one.write(Kind.SUBMIT_ACKNOWLEDGED, "a")
    read = read_logs(tmp_path.glob("*.jsonl"))
    assert [(record.at, record.process) for record in read] == [
        (1.0, "other"),
        (2.0, "one"),
        (3.0, "one"),
    ]
    assert (read[0].token, read[0].assignee_id, read[0].said) == ("token", "s", {"attempt": 1})


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "killed.jsonl"
    log = Log("killed", path)
    log.write(Kind.SUBMIT_CALLED, "a")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert [record.job_id for record in read_logs([path])] == ["a"]
    path.write_bytes(whole[:20] + b"\n" + whole)
    with pytest.raises(ValueError, match="line"):
        read_logs([path])


async def read(backend: MemoryBackend, log: Log, *, quiet: bool = True) -> History:
    return History(log.records, await read_store(backend), quiet)


async def test_a_job_that_has_not_ended_is_told_of_once_all_is_quiet() -> None:
    backend, log = MemoryBackend(), Log("test")
    job = await submitted(backend)
    assert check(await read(backend, log, quiet=False)) == []
    [violation] = check(await read(backend, log))
    assert (violation.rule, violation.job_id) == (Rule.ALL_ENDED, job.id)
    assert "SUBMIT" in str(violation)


async def test_a_job_that_ended_by_itself_is_told_of() -> None:
    """STOPPED is what nobody asked for."""
    backend, log = MemoryBackend(), Log("test")
    job, token = await running(backend)
    await backend.stop_job(job.id, "enough", token=token)
    [violation] = check(await read(backend, log))
    assert violation.rule is Rule.ALL_ENDED
    log.write(Kind.CANCEL_CALLED, job.id)
    assert check(await read(backend, log)) == []


async def test_a_lost_submit_is_told_with_what_everybody_saw() -> None:
    log = Log("client")
    log.write(Kind.SUBMIT_CALLED, "a")
    log.write(Kind.SUBMIT_ACKNOWLEDGED, "a")
    history = History(log.records, {})
    [violation] = check(history)
    assert violation.rule is Rule.SUBMIT_KEPT
    assert [line.split(" ", 1)[1].split(" job")[0].strip() for line in violation.around] == [
        "client         submit called",
        "client         submit acknowledged",
    ]
    assert summarise(history).lost == 1


async def test_recorded_calls_are_those_that_were_made() -> None:
    log, backend = Log("client"), MemoryBackend()
    queue = record_queue(QueueService(backend), log)
    await queue.enqueue_jobs([Job(id="a", type="t"), Job(id="b", type="t")])
    await queue.cancel_jobs([], ["a", "missing"])
    await queue.enqueue_job(Job(id="c", type="t"))
    with pytest.raises(Exception, match="exists"):
        await queue.enqueue_job(Job(id="c", type="t"))
    seen = [(record.kind, record.job_id) for record in log.records]
    assert seen == [
        (Kind.SUBMIT_CALLED, "a"),
        (Kind.SUBMIT_CALLED, "b"),
        (Kind.SUBMIT_ACKNOWLEDGED, "a"),
        (Kind.SUBMIT_ACKNOWLEDGED, "b"),
        (Kind.CANCEL_CALLED, "a"),
        (Kind.CANCEL_CALLED, "missing"),
        (Kind.CANCEL_ACKNOWLEDGED, "a"),
        (Kind.SUBMIT_CALLED, "c"),
        (Kind.SUBMIT_ACKNOWLEDGED, "c"),
        (Kind.SUBMIT_CALLED, "c"),
        (Kind.SUBMIT_FAILED, "c"),
    ]


async def test_how_long_the_jobs_of_a_killed_worker_waited() -> None:
    backend, log = MemoryBackend(), Log("chaos")
    job = await submitted(backend)
    first = await claim(backend, job, "session-1")
    worker = Log("worker-1", clock=log.clock)
    worker.write(Kind.STREAM_OPENED, assignee_id="session-1", capacity=1)
    log.write(Kind.KILLED, killed="worker-1")
    await backend.settle([Outcome(job.id, Event.LOSE, token=first.token)])
    second = await claim(backend, job, "session-2")
    await backend.complete_job(job.id, b"", token=second.token)
    history = History([*worker.records, *log.records], await read_store(backend))
    [taken] = takeovers(history)
    assert (taken.job_id, taken.process) == (job.id, "worker-1")
    assert taken.left_at is not None
    assert taken.again_at is not None
    assert taken.killed_at < taken.left_at < taken.again_at
    assert taken.waited_s == taken.again_at - taken.killed_at
    assert not taken.is_missing
    assert summarise(history).attempts_lost == 1
