"""A submission as the queue's own job, which is the one that REST makes of it."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.api.submissions import job_from
from queue_operator.client import Backoff, Submission
from queue_operator.client.grpc import job_of
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import BackoffStrategy
from queue_operator.domain.validation import DEFAULT_LIMITS, MAX_JSON_DEPTH, Limits


@dataclass(frozen=True)
class Rules:
    limits: Limits = DEFAULT_LIMITS
    json_depth: int = MAX_JSON_DEPTH

    def new_id(self) -> str:
        raise AssertionError("the submission has an id")


EVERYTHING = Submission(
    type="resize",
    payload={"name": "Zoë"},
    job_id="mine",
    priority=Priority.HIGH,
    scheduled_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    timeout=timedelta(minutes=5),
    max_attempts=7,
    backoff=Backoff(
        strategy=BackoffStrategy.EXPONENTIAL,
        initial_delay=timedelta(seconds=2),
        max_delay=timedelta(minutes=1),
        multiplier=3.0,
    ),
    idempotency_key="once",
    correlation_id="order-7",
    tags={"eu": "", "size": "large"},
    depends_on=("one", "two"),
    dependency_type=DependencyMode.CHAIN,
    callback_url="https://example.org/told",
    suspended=True,
)


@pytest.mark.parametrize(
    "submission",
    [
        EVERYTHING,
        Submission(type="t", payload=None, job_id="j"),
        Submission(type="t", payload_bytes=b"\x00\xff", job_id="j"),
        Submission(type="t", payload=[1], job_id="j", delay=timedelta(milliseconds=1500)),
        Submission(type="t", payload=1, job_id="j", max_attempts=1),
        *(
            Submission(type="t", payload=1, job_id="j", backoff=backoff)
            for backoff in (
                Backoff(strategy=BackoffStrategy.CONSTANT, initial_delay=timedelta(seconds=3)),
                Backoff(strategy=BackoffStrategy.LINEAR),
                Backoff(strategy=BackoffStrategy.CUSTOM, delays=(timedelta(seconds=9),)),
            )
        ),
    ],
)
def test_it_is_the_job_that_rest_makes(submission: Submission) -> None:
    body = json.dumps(submission.document()).encode()
    assert job_of(submission, namespace="team") == job_from(body, "team", Rules())


def test_without_an_id_it_gets_one_that_sorts_by_time() -> None:
    first, second = (job_of(Submission(type="t", payload=1)) for _ in range(2))
    assert first.id != second.id
    assert len(first.id) == 36
    assert first.id[14] == "7"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"a": "\ud800"}, "half a character (a lone surrogate) is no text"),
        ({"a": float("nan")}, "NaN and Infinity are no numbers there"),
    ],
)
def test_a_payload_that_is_no_json_is_named(payload: object, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        job_of(Submission(type="t", payload=payload))
    assert str(refused.value) == f"payload: cannot be written as JSON: {reason}"
