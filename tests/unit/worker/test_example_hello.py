"""The handlers of examples/01-hello, without a server."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from queue_operator.worker import Cancelled, PermanentError, Worker
from queue_operator.worker.link import Unconnected
from queue_operator.worker.testing import job_context, run_handler, run_handler_async

HANDLERS = Path(__file__).parents[3] / "examples" / "01-hello" / "handlers.py"


@pytest.fixture(scope="module")
def worker() -> Worker:
    spec = importlib.util.spec_from_file_location("hello_handlers", HANDLERS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Worker = module.worker
    return made


def test_hello(worker: Worker) -> None:
    assert run_handler(worker, "hello", {"name": "Ada"}) == {"greeting": "Hello, Ada!"}
    with pytest.raises(PermanentError):
        run_handler(worker, "hello", {"name": ""})


def test_flaky_fails_as_often_as_asked(worker: Worker) -> None:
    for attempt in (1, 2):
        with pytest.raises(RuntimeError):
            run_handler(worker, "flaky", {"fail_times": 2}, attempt=attempt)
    assert run_handler(worker, "flaky", {"fail_times": 2}, attempt=3) == {"attempt": 3}


def test_broken_never_works(worker: Worker) -> None:
    with pytest.raises(ValueError, match="attempt 9"):
        run_handler(worker, "broken", attempt=9)


def test_long_reports_progress_to_the_end(worker: Worker) -> None:
    link = Unconnected()
    context = job_context(payload=b'{"seconds": 0}', _link=link)
    assert run_handler(worker, "long", context=context) == {"seconds": 0}
    assert [percent for percent, _ in link.progress] == [*range(0, 100, 5), 100]


async def test_long_stops_when_cancelled(worker: Worker) -> None:
    context = job_context()
    running = asyncio.create_task(run_handler_async(worker, "long", context=context))
    await asyncio.wait([running], timeout=0)
    context.cancelled.set()
    with pytest.raises(Cancelled):
        await running


def test_where_tells_the_worker(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "pod-7")
    assert run_handler(worker, "where")["pod"] == "pod-7"


def test_survivor_answers_on_its_second_attempt(worker: Worker) -> None:
    answer = run_handler(worker, "survivor", attempt=2)
    assert answer == {"attempt": 2, "worker": "test-worker", "session": "test-session"}


def test_noop(worker: Worker) -> None:
    assert run_handler(worker, "noop") is None
