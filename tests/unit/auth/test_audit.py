"""Who changed what, on one line each."""

import json
import logging
from typing import Any

import pytest

from queue_operator.auth.audit import AUDIT_LOGGER, Audit
from queue_operator.auth.protocol import Identity

WHO = Identity(name="ops", namespace="default")


def line(caplog: pytest.LogCaptureFixture, **what: Any) -> str:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        Audit().changed(
            WHO, request_id="r", verb="update", operation="cancelJobs", namespace="shop", **what
        )
    [record] = caplog.records
    return record.getMessage()


def test_a_line_says_who_did_what_to_how_many(caplog: pytest.LogCaptureFixture) -> None:
    told = json.loads(line(caplog, filter={"types": ["a"]}, count=3, dry_run=False))
    assert told == {
        "request_id": "r",
        "who": "ops",
        "verb": "update",
        "operation": "cancelJobs",
        "namespace": "shop",
        "filter": {"types": ["a"]},
        "count": 3,
        "dry_run": False,
    }


def test_a_line_stays_one_line_whatever_a_caller_writes(caplog: pytest.LogCaptureFixture) -> None:
    told = line(caplog, reason="a\nb\u2028c\x1b[31m")
    assert told.isascii()
    assert told.isprintable()


def test_a_long_filter_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    told = line(caplog, jobs=[f"job-{n}" for n in range(10_000)])
    assert len(told) < 2000
    assert "characters)" in told


def test_nothing_is_written_where_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, AUDIT_LOGGER):
        Audit().changed(WHO, request_id="r", verb="v", operation="o", namespace="n", count=1)
    assert not caplog.records
