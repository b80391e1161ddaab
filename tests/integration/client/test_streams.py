"""Streams of a real server, as the clients and the commands hear them."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.integration.client.stage import TOKEN, Stage
from tests.waiting import DEADLINE_S

from queue_operator.cli.tailing import Tail, Wanted
from queue_operator.client import (
    AsyncQueueClient,
    Backoff,
    BackoffStrategy,
    JobEvent,
    Phase,
    QueueClient,
    Submission,
)
from queue_operator.client.lines import Line
from queue_operator.client.listening import Listen
from queue_operator.client.models import AttemptLog, JobLog
from queue_operator.domain.job import Assignment
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event


def submitted(stage: Stage, **fields: Any) -> str:
    with stage.client() as queue:
        wanted = Submission(type="t", payload=1, **fields)
        job_id = queue.submit(wanted, namespace=stage.namespace).job_id
    assert job_id is not None
    return job_id


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Beside what is done in the block; the list has the result after it."""
    results: list[Any] = []
    running = threading.Thread(target=lambda: results.append(work()))
    running.start()
    yield results
    running.join(DEADLINE_S)
    assert not running.is_alive()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Counts the streams that blocking clients have opened."""
    count, do = threading.Semaphore(0), Line.do

    def counted(line: Line, step: Any) -> Any:
        reply = do(line, step)
        if isinstance(step, Listen):
            assert reply.response is not None
            assert reply.response.headers["content-type"].startswith("text/event-stream")
            count.release()
        return reply

    monkeypatch.setattr(Line, "do", counted)
    return count


def test_waiting_hears_of_the_end(stage: Stage, opened: threading.Semaphore) -> None:
    job_id = submitted(stage)
    with stage.client() as queue:
        work = lambda: queue.wait(job_id, timeout_s=DEADLINE_S, namespace=stage.namespace)  # noqa: E731
        with meanwhile(work) as ended:
            assert opened.acquire(timeout=DEADLINE_S)
            stage.complete({"n": 1})
    assert ended[0].state == "COMPLETED"
    assert ended[0].result.output == {"n": 1}
    assert not opened.acquire(blocking=False)


def test_a_job_is_watched_from_its_state_to_its_end(
    stage: Stage, opened: threading.Semaphore
) -> None:
    job_id = submitted(stage)
    with QueueClient(stage.url, TOKEN) as queue:
        work = lambda: list(queue.watch(job_id, namespace=stage.namespace))  # noqa: E731
        with meanwhile(work) as told:
            assert opened.acquire(timeout=DEADLINE_S)
            stage.complete()
    events: list[JobEvent] = told[0]
    assert [one.status for one in events] == ["SCHEDULED", "RUNNING", "COMPLETED"]
    assert events[-1].event == Event.COMPLETE
    assert len({one.position for one in events}) == 3


def test_whoever_kept_a_position_misses_nothing(stage: Stage) -> None:
    job_id = submitted(stage, tags={"k": "v"})
    with stage.client() as queue:
        events = queue.watch(job_id, namespace=stage.namespace)
        position = next(events).position
        stage.complete()
        rest = list(queue.watch(job_id, after=position, namespace=stage.namespace))
        assert [one.status for one in rest] == ["RUNNING", "COMPLETED"]
        options: dict[str, Any] = {"after": position, "namespace": stage.namespace}
        filtered = queue.watch(types=["t"], states=[Phase.COMPLETED], tags={"k": "v"}, **options)
        assert next(filtered) == rest[-1]


async def last_of(stage: Stage, job_id: str) -> JobEvent:
    async with AsyncQueueClient(stage.url, TOKEN) as queue:
        return [one async for one in queue.watch(job_id, namespace=stage.namespace)][-1]


def test_a_position_that_is_none_names_the_option(stage: Stage) -> None:
    done = stage.type("watch", "--after", "yesterday", "--timeout", "5s")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: --after: is no position of this server; `watch -o json`")


def test_the_asynchronous_client_hears_likewise(stage: Stage) -> None:
    job_id = submitted(stage)
    stage.complete()
    assert asyncio.run(last_of(stage, job_id)).status == "COMPLETED"


def test_commands_hear_of_the_end(stage: Stage) -> None:
    job_id = submitted(stage)
    with meanwhile(lambda: stage.type("wait", job_id, "--timeout", "60s")) as waited:
        stage.complete()
    assert (waited[0].exit_code, waited[0].stdout) == (0, f"{job_id} COMPLETED\n")
    seen = stage.type("watch", job_id, "-o", "json")
    assert (seen.exit_code, json.loads(seen.stdout)["status"]) == (0, "COMPLETED")


def test_a_log_is_followed_to_the_end(stage: Stage) -> None:
    submitted(stage)
    job_id = stage.log("hello", size=7)
    stage.run(stage.backend.complete_job(job_id, b"1", namespace=stage.namespace))
    told = stage.type("logs", job_id, "--follow").stdout.splitlines()
    assert told == ["attempt 1", "2026-01-01 12:00:00.000000 INFO hello size=7"]


class Counting(AsyncQueueClient):
    """Knows how many lines came with each look at a log."""

    def __init__(self, url: str) -> None:
        super().__init__(url, TOKEN)
        self.lines = list[int]()

    async def log(self, job_id: str, **options: Any) -> JobLog:
        log = await super().log(job_id, **options)
        self.lines.append(sum(len(one.lines) for one in log.attempts))
        return log


async def tailed(
    stage: Stage, job_id: str, shown: Callable[[str], None]
) -> tuple[list[str], list[int]]:
    told = list[str]()

    def show(one: AttemptLog) -> None:
        assert one.dropped == 0
        for line in one.lines:
            told.append(line.message)
            shown(line.message)

    async with Counting(stage.url) as queue:
        wanted = Wanted(job_id=job_id, namespace=stage.namespace)
        await Tail(queue, wanted, show, look_s=0.02).follow()
    return told, queue.lines


def test_a_long_log_of_many_attempts_is_read_once(stage: Stage) -> None:
    """Each line is sent once, however long the log is; the last ones come after the end."""
    at_once, pieces, attempts = 50, 16, 3
    backoff = Backoff(strategy=BackoffStrategy.CONSTANT, initial_delay=timedelta(0))
    job_id = submitted(stage, max_attempts=attempts, backoff=backoff)
    seen: set[str] = set()
    came = threading.Condition()

    def shown(message: str) -> None:
        with came:
            seen.add(message)
            came.notify_all()

    def until_shown(message: str) -> None:
        with came:
            assert came.wait_for(lambda: message in seen, DEADLINE_S)

    def say(run: Assignment, attempt: int, piece: int) -> list[str]:
        said = [f"{attempt} {piece} {n}" for n in range(at_once)]
        stage.say(run, piece * at_once + 1, *said)
        return said

    said = list[str]()
    with meanwhile(lambda: asyncio.run(tailed(stage, job_id, shown))) as results:
        for attempt in range(attempts):
            run = stage.begin()
            for piece in range(pieces - 1):
                said += say(run, attempt, piece)
                if piece % 4 == 0:
                    until_shown(said[-1])
            is_last = attempt == attempts - 1
            event, error = (Event.COMPLETE, None) if is_last else (Event.FAIL, ErrorInfo("boom"))
            outcome = Outcome(run.job_id, event, stage.namespace, token=run.token, error=error)
            stage.run(stage.backend.settle([outcome]))
            said += say(run, attempt, pieces - 1)
    told, lines = results[0]
    assert told == said
    assert sum(lines) == len(said)
    assert max(lines) < at_once * pieces
