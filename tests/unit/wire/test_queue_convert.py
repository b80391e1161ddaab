"""Jobs come out of their messages as they went in."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job, JobStats, Progress, ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState
from queue_operator.wire import queue_convert as convert
from queue_operator.wire.v1 import queue_pb2 as pb

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

WHOLE = Job(
    id="j",
    type="mail",
    payload=b"\x00\xff",
    content_type="text/plain",
    namespace="team",
    tags=frozenset({"b", "a=ü"}),
    priority=Priority.CRITICAL,
    created_at=AT,
    delay_s=0.1,
    scheduled_at=AT + timedelta(days=9000),
    max_attempts=0,
    timeout_s=1.15,
    backoff=Backoff(BackoffStrategy.CUSTOM, 0.3, 2.3, 1.7, (0.1, 1.1)),
    correlation_id="c",
    idempotency_key="k",
    depends_on=("p", "o"),
    dependency_mode=DependencyMode.AFTER_ANY,
    resource=ResourceRef("cluster", "uid", "name", 2**62),
    suspended=True,
    suspension_at=AT + timedelta(seconds=8),
    callback_url="https://example.com",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    tracestate="vendor=a",
    state=JobState.CANCELLING,
    eligible_at=AT - timedelta(days=40_000),
    waiting_for_dependencies=True,
    started_at=AT + timedelta(seconds=1),
    finalized_at=AT + timedelta(seconds=2),
    updated_at=AT + timedelta(seconds=3),
    error=ErrorInfo("m", ErrorCategory.SYSTEM, "C", "trace", {"k": "v"}),
    failed_at=AT + timedelta(seconds=7),
    result=b"",
    result_content_type="application/json",
    retry_count=3,
    failure_count=2,
    last_retry_at=AT + timedelta(seconds=4),
    attempt=5,
    lease_version=2**40,
    transition=9,
    assignee_id="a",
    worker_name="w",
    host="h",
    assigned_at=AT + timedelta(seconds=5),
    reason="r",
    cancel_reason="cr",
    progress=Progress(40, "almost", AT + timedelta(seconds=6)),
    spawned_by="parent",
    spawn_depth=4,
    token="t",
)


def back(job: Job) -> Job:
    return convert.job_from_wire(pb.Job.FromString(convert.job_to_wire(job).SerializeToString()))


def test_a_job_with_every_field_survives() -> None:
    bare = Job(id="", type="")
    unset = [f.name for f in fields(Job) if getattr(WHOLE, f.name) == getattr(bare, f.name)]
    assert unset == []  # else the comparison below would say nothing about them
    assert back(WHOLE) == WHOLE


def test_a_job_with_nothing_but_its_name_survives() -> None:
    bare = Job(id="j", type="t")
    assert back(bare) == bare
    assert convert.job_from_wire(pb.Job(id="j", type="t"), namespace="default") == bare


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("category", ErrorCategory)
def test_every_state_and_category(state: JobState, category: ErrorCategory) -> None:
    job = replace(WHOLE, state=state, error=ErrorInfo("m", category))
    assert back(job) == job


def test_times_of_other_zones_are_the_same_moment() -> None:
    zone = timezone(timedelta(hours=-7, minutes=30))
    at = datetime(2, 1, 1, 12, tzinfo=zone)
    assert convert.time_from_wire("f", convert.time_to_wire(at)) == at


@given(st.datetimes(datetime(2, 1, 2), datetime(9998, 12, 30)))
def test_every_time_survives(naive: datetime) -> None:
    at = naive.replace(tzinfo=UTC)
    assert convert.time_from_wire("f", convert.time_to_wire(at)) == at


@given(st.integers(0, 100 * 365 * 86_400 * 1000))
def test_every_duration_in_milliseconds_survives(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert convert.seconds_from_wire("f", convert.duration_to_wire(seconds)) == seconds


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"priority": "URGENT"}, "priority"),
        ({"dependency_type": "SOMETIMES"}, "dependency_type"),
        ({"state": "ODD"}, "state"),
        ({"backoff": pb.Backoff(strategy="RANDOM")}, "backoff.strategy"),
        ({"created_at": Timestamp(seconds=10**15)}, "created_at"),
        ({"delay": Duration(seconds=10**15)}, "delay"),
        ({"timeout": Duration(nanos=2_000_000_000)}, "timeout"),
        ({"backoff": pb.Backoff(delays=[Duration(), Duration(seconds=10**15)])},
         "backoff.delays[1]"),
    ],
)  # fmt: skip
def test_what_no_job_can_hold_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    messages = [pb.Job(id="a", type="t"), pb.Job(id="b", type="t", **fields)]
    with pytest.raises(InvalidArgument) as caught:
        convert.jobs_from_wire(messages)
    assert caught.value.field == f"jobs[1].{named}"


def test_statistics_survive() -> None:
    stats = JobStats.from_counts(
        frozenset({"a"}), {state: n for n, state in enumerate(JobState)}, 2**40
    )
    message = pb.JobStats.FromString(convert.stats_to_wire(stats).SerializeToString())
    assert convert.stats_from_wire(message) == stats
