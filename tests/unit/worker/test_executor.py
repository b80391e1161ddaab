"""Where handlers run, and what becomes of a job for which there is no thread."""

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from queue_operator.worker import JobContext, Worker
from queue_operator.worker.executor import Executor
from queue_operator.worker.runner import Completed, Ending, Run, Stopped
from queue_operator.worker.testing import job_context

PATIENCE_S = 10.0
Ended = queue.Queue[tuple[str, Ending]]


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From now on the system gives handlers so many threads more."""
    start = threading.Thread.start

    def most(number: int) -> None:
        left = [number]

        def limited(thread: threading.Thread) -> None:
            if thread.name.startswith("handler"):
                if not left[0]:
                    raise RuntimeError("can't start new thread")
                left[0] -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", limited)

    return most


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


@pytest.fixture
def worker(gate: threading.Event) -> Worker:
    worker = Worker()

    @worker.handler("waits")
    def waits(ctx: JobContext) -> str:
        gate.wait(PATIENCE_S)
        return ctx.job_id

    return worker


def run_of(worker: Worker, name: str) -> Run:
    return Run(name, "t", worker.registry.known("waits"), job_context(job_id=name), 1024)


def test_a_job_without_a_thread_waits_for_one_that_others_leave(
    worker: Worker,
    gate: threading.Event,
    allow: Callable[[int], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: Ended = queue.Queue()
    executor = Executor(lambda run, how: ended.put((run.job_id, how)), worker.registry)
    allow(1)
    for name in ("a", "b", "c"):
        executor.start(run_of(worker, name))
    assert ended.empty()
    assert executor.running == 3
    [told] = caplog.messages
    assert told.startswith("no thread can be started for a handler: can't start new thread; ")
    gate.set()
    assert [ended.get(timeout=PATIENCE_S) for _ in range(3)] == [
        (name, Completed(f'"{name}"'.encode(), "application/json")) for name in ("a", "b", "c")
    ]
    assert executor.close(PATIENCE_S) == 0


def test_a_job_that_was_handed_back_meanwhile_does_not_begin(
    worker: Worker, gate: threading.Event, allow: Callable[[int], None]
) -> None:
    ended: Ended = queue.Queue()
    executor = Executor(lambda run, how: ended.put((run.job_id, how)), worker.registry)
    allow(1)
    runs = [run_of(worker, name) for name in ("a", "b")]
    for run in runs:
        executor.start(run)
    assert runs[1].withdraw()
    gate.set()
    assert [ended.get(timeout=PATIENCE_S) for _ in range(2)][1] == ("b", Stopped())
    assert executor.close(PATIENCE_S) == 0


def test_what_never_began_is_over_when_the_worker_ends(
    worker: Worker, allow: Callable[[int], None]
) -> None:
    ended: Ended = queue.Queue()
    executor = Executor(lambda run, how: ended.put((run.job_id, how)), worker.registry)
    allow(0)
    executor.start(run_of(worker, "a"))
    assert ended.empty()
    assert executor.close(PATIENCE_S) == 0
    assert ended.get(timeout=PATIENCE_S) == ("a", Stopped())
