import asyncio
import json
import logging
import threading
from typing import Any

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


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no words")


@proves("external-api.JobContext.rule.13")
@pytest.mark.parametrize(
    "fields",
    [
        {"message": "hi", "level": 3, "self": None, "fields": [1], "job_id": "x"},
        {"number": 7},
        {},
    ],
)
def test_fields_come_by_name_or_as_a_mapping_and_have_any_name(fields: dict[str, Any]) -> None:
    link = Unconnected()
    context = job_context(_link=link)
    context.log("info", "sent", **fields)
    context.log("info", "sent", fields)
    assert [said.message for said in link.lines] == ["sent", "sent"]
    assert [json.loads(said.fields) for said in link.lines] == [fields, fields]


def test_what_is_named_wins_over_what_is_mapped() -> None:
    link = Unconnected()
    mapped: dict[Any, object] = {"to": "a", 7: "b"}
    job_context(_link=link).log("info", "sent", mapped, to="c")
    assert json.loads(link.lines[0].fields) == {"to": "c", "7": "b"}


@pytest.mark.parametrize(
    ("level", "message", "fields", "shipped"),
    [
        ("loud", "x", {}, ("INFO", "x", {"unknown_level": "loud"})),
        (None, "x", {}, ("INFO", "x", {"unknown_level": "None"})),
        ("info", 7, {}, ("INFO", "7", {})),
        (
            "info",
            Unspeakable(),
            {},
            ("INFO", "an Unspeakable whose text cannot be had: ValueError", {}),
        ),
        (
            "info",
            "x\ud800",
            {"odd": Unspeakable()},
            ("INFO", "x\ufffd", {"odd": "an Unspeakable whose text cannot be had: ValueError"}),
        ),
        ("info", "x", [1], ("INFO", "x", {"fields": [1]})),
    ],
)
def test_no_line_fails_a_job(
    level: Any, message: Any, fields: Any, shipped: tuple[str, str, object]
) -> None:
    link = Unconnected()
    job_context(_link=link).log(level, message, fields)
    [said] = link.lines
    assert (said.level, said.message, json.loads(said.fields)) == shipped


def test_a_filter_of_the_users_that_raises_fails_no_job() -> None:
    def broken(_record: logging.LogRecord) -> bool:
        raise ValueError("a broken filter")

    link = Unconnected()
    log = logging.getLogger("queue_operator.job")
    log.addFilter(broken)
    try:
        job_context(_link=link).log("error", "hello")
    finally:
        log.removeFilter(broken)
    assert [said.message for said in link.lines] == ["hello"]
