import asyncio
import logging
import threading

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.worker import Cancellation, Cancelled
from queue_operator.worker.testing import job_context


def test_a_thread_waits_for_the_cancel() -> None:
    cancelled = Cancellation()
    heard: list[bool] = []
    thread = threading.Thread(target=lambda: heard.append(cancelled.wait(20)))
    thread.start()
    cancelled.set()
    thread.join()
    assert heard == [True]
    assert not Cancellation().wait(0)


async def test_a_coroutine_waits_for_a_cancel_from_another_thread() -> None:
    cancelled = Cancellation()
    waiting = asyncio.create_task(cancelled.wait_async(20))
    await asyncio.wait([waiting], timeout=0)
    await asyncio.to_thread(cancelled.set)
    assert await waiting
    assert await cancelled.wait_async()


async def test_waiting_may_time_out() -> None:
    cancelled = Cancellation()
    assert not await cancelled.wait_async(0)
    cancelled.set()
    assert cancelled.is_set()


async def test_the_blocking_wait_is_refused_in_a_coroutine() -> None:
    with pytest.raises(RuntimeError, match="wait_async"):
        Cancellation().wait(1)


def test_raise_if_cancelled() -> None:
    context = job_context()
    context.raise_if_cancelled()
    context.cancelled.set()
    with pytest.raises(Cancelled):
        context.raise_if_cancelled()


@pytest.mark.parametrize("percent", [-1, 101, 1.5, "1", True, None])
def test_progress_out_of_range(percent: int) -> None:
    with pytest.raises(InvalidArgument, match="percent"):
        job_context().report_progress(percent)


def test_progress_reaches_whoever_listens() -> None:
    heard: list[tuple[int, str]] = []
    context = job_context(_report=lambda percent, message: heard.append((percent, message)))
    context.report_progress(0)
    context.report_progress(100, "done")
    assert heard == [(0, ""), (100, "done")]


def test_log_lines_carry_the_job(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "queue_operator.job"):
        job_context(job_id="j", attempt=2, correlation_id="c").log("info", "sent", to="a@b")
    (record,) = caplog.records
    assert record.getMessage() == "sent"
    assert record.__dict__["fields"] == {
        "to": "a@b",
        "job_id": "j",
        "job_type": "test",
        "attempt": 2,
        "correlation_id": "c",
    }


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="warning"):
        job_context().log("loud", "hello")
