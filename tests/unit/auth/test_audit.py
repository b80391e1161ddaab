"""Who changed what: a line before, a line after."""

import asyncio
import json
import logging
from typing import Any

import pytest
from tests.audited import Audited

from queue_operator.auth.audit import AUDIT_LOGGER, LEFT, Audit
from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import JobNotFound
from queue_operator.observing.lines import JsonFormatter

WHO = Identity(name="ops", namespace="default")
HEAD = {
    "request_id": "r",
    "who": "ops",
    "verb": "update",
    "operation": "cancelJobs",
    "namespace": "shop",
}


def change(error: BaseException | None = None, **what: Any) -> None:
    with Audit().change(
        WHO, request_id="r", verb="update", operation="cancelJobs", namespace="shop", **what
    ) as told:
        told["count"] = 3
        if error is not None:
            raise error


def test_a_change_is_told_before_and_after(audited: Audited) -> None:
    change(filter={"types": ["a"]}, dry_run=False)
    what = {"filter": {"types": ["a"]}, "dry_run": False}
    assert audited.lines() == [
        {**HEAD, "stage": "intent", **what},
        {**HEAD, "stage": "result", "outcome": "OK", **what, "count": 3},
    ]


def test_a_line_for_programs_has_it_as_an_object(
    audited: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    change()
    shown = json.loads(JsonFormatter("server").format(caplog.records[0]))
    assert shown["audit"] == {**HEAD, "stage": "intent"}


def test_the_first_line_stands_before_anything_happens(audited: Audited) -> None:
    with Audit().change(WHO, request_id="r", verb="v", operation="o", namespace="n"):
        assert [line["stage"] for line in audited.lines()] == ["intent"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (JobNotFound("j", "n"), "NOT_FOUND"),
        (ValueError("a bug"), "INTERNAL_ERROR"),
        (asyncio.CancelledError(), "UNKNOWN"),
    ],
)
def test_the_second_line_says_what_became_of_it(
    error: BaseException, outcome: str, audited: Audited
) -> None:
    with pytest.raises(type(error)):
        change(error)
    assert audited.lines()[1] == {**HEAD, "stage": "result", "outcome": outcome, "count": 3}


def test_a_stream_that_is_left_is_told_as_that(audited: Audited) -> None:
    with pytest.raises(asyncio.CancelledError):
        change(asyncio.CancelledError(), cut=LEFT)
    assert audited.lines()[1]["outcome"] == "LEFT"


def test_a_line_stays_one_line_whatever_a_caller_writes(audited: Audited) -> None:
    change(reason="a\nb\u2028c\x1b[31m")
    assert all(text.isascii() and text.isprintable() for text in audited.texts())


def test_a_long_filter_is_cut(audited: Audited) -> None:
    change(jobs=[f"job-{n}" for n in range(10_000)])
    assert all(len(text) < 2000 and "characters)" in text for text in audited.texts())


def test_nothing_is_written_where_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, AUDIT_LOGGER):
        change()
    assert not caplog.records
