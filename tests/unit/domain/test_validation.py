"""A bad submission is refused with the name of the field."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from queue_operator.domain.errors import DuplicateJob, InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Job
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.domain.validation import Limits, check_batch, check_job

GOOD = Job(id="a", type="hello")


def test_a_good_job_passes() -> None:
    check_job(GOOD)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", 7),
        ("id", "x" * 10_240),
        ("id", "a\x00b"),
        ("id", "\ud800"),
        ("type", ""),
        ("namespace", ""),
        ("payload", "text"),
        ("tags", "tag"),
        ("tags", frozenset({""})),
        ("tags", frozenset({"x" * 129})),
        ("tags", frozenset(str(n) for n in range(33))),
        ("created_at", datetime(2026, 1, 1)),
        ("scheduled_at", datetime(2026, 1, 1)),
        ("scheduled_at", datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))),
        ("timeout", 0),
        ("timeout", -1.0),
        ("timeout", 1e12),
        ("timeout", float("nan")),
        ("delay", -1.0),
        ("delay", 1e12),
        ("max_attempts", -1),
        ("max_attempts", 101),
        ("state", JobState.RUNNING),
        ("assignee_id", "w"),
        ("result", b"r"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    attribute = f"{field}_s" if field in ("timeout", "delay") else field
    with pytest.raises(InvalidArgument) as caught:
        check_job(replace(GOOD, **{attribute: value}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "backoff"),
    [
        ("backoff.initial_delay", Backoff(initial_delay_s=-1)),
        ("backoff.max_delay", Backoff(max_delay_s=float("inf"))),
        ("backoff.multiplier", Backoff(multiplier=0.5)),
        ("backoff.delays", Backoff(BackoffStrategy.CUSTOM)),
        ("backoff.delays", Backoff(delays_s=(1.0,))),
        ("backoff.delays[1]", Backoff(BackoffStrategy.CUSTOM, delays_s=(1.0, -1.0))),
    ],
)
def test_a_wrong_backoff_is_named(field: str, backoff: Backoff) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_job(replace(GOOD, backoff=backoff))
    assert caught.value.field == field


def test_a_payload_over_the_limit() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        check_job(replace(GOOD, payload=b"12345"), Limits(payload_bytes=4))
    assert (caught.value.field, caught.value.size, caught.value.limit) == ("payload", 5, 4)


def test_a_batch_names_the_index() -> None:
    with pytest.raises(InvalidArgument, match=r"jobs\[1\].type"):
        check_batch([GOOD, Job(id="b", type="")])


def test_a_batch_names_repeated_ids_by_index() -> None:
    with pytest.raises(DuplicateJob) as caught:
        check_batch([GOOD, Job(id="b", type="t"), GOOD, GOOD])
    assert caught.value.indexes == (2, 3)
