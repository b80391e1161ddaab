import asyncio
import logging
import threading

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.testing.clauses import proves
from queue_operator.worker import Cancellation, Cancelled
from queue_operator.worker.link import Unconnected
from queue_operator.worker.testing import job_context


@proves("external-api.JobContext.rule.8")
def test_a_thread_waits_for_the_cancel() -> None:
    cancelled = Cancellation()
    heard: list[bool] = []
    thread = threading.Thread(target=lambda: heard.append(cancelled.wait(20)))
    thread.start()
    cancelled.set()
    thread.join()
    assert heard == [True]
    assert not Cancellation().wait(0)


@proves("external-api.JobContext.rule.8")
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


@pytest.mark.parametrize(
    ("payload", "content_type", "value"),
    [
        (None, "", None),
        (b'{"rows": 3}', "application/json", {"rows": 3}),
        (b"null", "application/json", None),
        (b"{", "text/plain", b"{"),
        (b"", "application/octet-stream", b""),
    ],
)
@proves("external-api.JobContext.expect.3")
def test_what_the_parent_gave_is_its_value_or_its_bytes(
    payload: bytes | None, content_type: str, value: object
) -> None:
    context = job_context(parent_payload=payload, parent_content_type=content_type)
    assert context.parent_result() == value


@pytest.mark.parametrize("percent", [-1, 101, 1.5, "1", True, None])
@proves("external-api.JobContext.rule.9")
def test_progress_out_of_range(percent: int) -> None:
    with pytest.raises(InvalidArgument, match="percent"):
        job_context().report_progress(percent)


def test_progress_reaches_whoever_listens() -> None:
    link = Unconnected()
    context = job_context(_link=link)
    context.report_progress(0)
    context.report_progress(100, "done")
    assert link.progress == [(0, ""), (100, "done")]


@proves("external-api.JobContext.rule.13")
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
