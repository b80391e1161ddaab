"""What the conversion promises beyond copying fields."""

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.domain.errors import InvalidArgument, JobNotFound, StaleLease
from queue_operator.domain.job import Assignment
from queue_operator.domain.lease import LeaseAnswer, LeaseStatus
from queue_operator.domain.outcome import ErrorCategory, Settled
from queue_operator.domain.states import Event, JobState
from queue_operator.wire import convert
from queue_operator.wire.v1 import worker_pb2 as pb

LIMITS = convert.WireLimits(result_bytes=8, error_message_bytes=16, stack_trace_bytes=16)


def outcome(**fields: object) -> pb.Outcome:
    return pb.Outcome(job_id="j", token="t", **fields)  # type: ignore[arg-type]


ASSIGNMENT = Assignment(
    job_id="j",
    namespace="default",
    type="mail",
    payload=b"\x00\xff",
    content_type="text/plain",
    tags=frozenset({"b", "a"}),
    attempt=2,
    token="t",
    assignee_id="s",
    created_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
)


def test_an_assignment_keeps_bytes_time_and_the_absent_timeout() -> None:
    message = convert.add_assignment(pb.AssignmentBatch(), ASSIGNMENT)
    assert message.payload == b"\x00\xff"
    assert list(message.tags) == ["a", "b"]
    assert message.created_at.ToDatetime(UTC) == ASSIGNMENT.created_at
    assert not message.HasField("timeout")
    assert not message.HasField("parent_result")


@pytest.mark.parametrize("result", [b"", b"{}"])
def test_what_a_parent_gave_goes_along(result: bytes) -> None:
    told = ASSIGNMENT._replace(parent_result=result, parent_content_type="application/json")
    message = convert.add_assignment(pb.AssignmentBatch(), told)
    assert (message.HasField("parent_result"), message.parent_result) == (True, result)
    assert message.parent_content_type == "application/json"


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (pb.OUTCOME_KIND_COMPLETE, Event.COMPLETE),
        (pb.OUTCOME_KIND_FAIL, Event.FAIL),
        (pb.OUTCOME_KIND_HAND_BACK, Event.HAND_BACK),
        (pb.OUTCOME_KIND_ACK_EXECUTING, Event.ACK_EXECUTING),
        (pb.OUTCOME_KIND_ACK_UNKNOWN, Event.ACK_UNKNOWN),
    ],
)
def test_every_kind_of_outcome_is_an_event_from_the_worker_plane(
    kind: pb.OutcomeKind.ValueType, event: Event
) -> None:
    converted = convert.outcome_from_wire(outcome(kind=kind), namespace="team")
    assert (converted.event, converted.namespace, converted.token) == (event, "team", "t")
    assert converted.worker_plane


def test_a_result_over_the_limit_fails_the_job_for_good() -> None:
    kind = pb.OUTCOME_KIND_COMPLETE
    fits = convert.outcome_from_wire(outcome(kind=kind, result=b"12345678"), limits=LIMITS)
    assert (fits.event, fits.result) == (Event.COMPLETE, b"12345678")
    over = convert.outcome_from_wire(outcome(kind=kind, result=b"123456789"), limits=LIMITS)
    assert over.event is Event.FAIL
    assert over.error is not None
    assert over.error.category is ErrorCategory.PERMANENT
    assert over.error.code == convert.RESULT_NOT_STORABLE


def test_of_equal_keys_of_a_context_the_last_counts() -> None:
    entries = [pb.ContextEntry(key="host", value=value) for value in ("b", "a")]
    error = pb.ErrorInfo(message="no", context=entries)
    converted = convert.outcome_from_wire(outcome(kind=pb.OUTCOME_KIND_FAIL, error=error))
    assert converted.error is not None
    assert converted.error.context == {"host": "a"}


def test_a_failure_is_cut_to_its_limits_and_always_has_a_message() -> None:
    error = pb.ErrorInfo(
        category=pb.ERROR_CATEGORY_TIMEOUT,
        code="SLOW",
        message="ä" * 20,
        stack_trace="x" * 20,
        context=[pb.ContextEntry(key="host", value="a")],
    )
    converted = convert.outcome_from_wire(
        outcome(kind=pb.OUTCOME_KIND_FAIL, error=error, retry_after=Duration(seconds=2)),
        limits=LIMITS,
    )
    assert converted.error is not None
    assert converted.error.message == "ä" * 8
    assert converted.error.stack_trace == "x" * 16
    assert converted.error.category is ErrorCategory.TIMEOUT
    assert (converted.error.code, dict(converted.error.context)) == ("SLOW", {"host": "a"})
    assert converted.retry_after_s == 2.0
    bare = convert.outcome_from_wire(outcome(kind=pb.OUTCOME_KIND_FAIL))
    assert bare.error is not None
    assert bare.error.message


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.Outcome(token="t", kind=pb.OUTCOME_KIND_COMPLETE), "job_id"),
        (pb.Outcome(job_id="j", kind=pb.OUTCOME_KIND_COMPLETE), "token"),
        (outcome(), "kind"),
        (outcome(kind=pb.OUTCOME_KIND_FAIL, retry_after=Duration(seconds=-1)), "retry_after"),
    ],
)
def test_an_unusable_outcome_names_the_field(message: pb.Outcome, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        convert.outcome_from_wire(message)
    assert caught.value.field == field


@given(st.text(), st.integers(0, 64))
def test_cut_texts_fit_and_are_storable(text: str, limit: int) -> None:
    encodable = text.encode(errors="ignore").decode()
    cut = convert.cut_storable(encodable, limit)
    assert len(cut.encode()) <= limit
    assert "\x00" not in cut
    assert encodable.replace("\x00", "\N{REPLACEMENT CHARACTER}").startswith(cut)


@given(st.floats(0, 1e8))
def test_durations_keep_microseconds(seconds: float) -> None:
    back = convert.seconds_from_wire("timeout", convert.duration_to_wire(seconds))
    assert back == pytest.approx(seconds, abs=1e-6)


def test_acks_carry_either_the_state_or_the_error() -> None:
    applied = convert.ack_to_wire(Settled("j", "default", state=JobState.COMPLETED), "t")
    assert (applied.state, applied.error_code) == (JobState.COMPLETED, "")
    refused = convert.ack_to_wire(Settled("j", "default", error=StaleLease("j")), "t")
    assert (refused.state, refused.error_code, refused.token) == ("", StaleLease.code, "t")
    missing = convert.ack_to_wire(Settled("j", "default", error=JobNotFound("j", "default")), "t")
    assert "does not exist" in missing.error_message


@pytest.mark.parametrize("status", LeaseStatus)
def test_every_lease_status_has_a_name_on_the_wire(status: LeaseStatus) -> None:
    answer = convert.lease_answer_to_wire(LeaseAnswer("j", "t", "default", status))
    assert pb.LeaseStatus.Name(answer.status) == f"LEASE_STATUS_{status}"


def test_held_jobs_name_the_faulty_entry() -> None:
    good, bad = pb.HeldJob(job_id="j", token="t"), pb.HeldJob(job_id="j")
    assert convert.held_from_wire([good], namespace="team")[0].namespace == "team"
    with pytest.raises(InvalidArgument) as caught:
        convert.held_from_wire([good, bad])
    assert caught.value.field == "held[1].token"


@pytest.mark.parametrize("timeout_s", [1e12, 1e300, float("inf")])
def test_a_timeout_out_of_range_is_sent_as_a_century(timeout_s: float) -> None:
    message = convert.add_assignment(pb.AssignmentBatch(), ASSIGNMENT._replace(timeout_s=timeout_s))
    assert message.timeout.ToTimedelta() == timedelta(days=36_500)


def test_a_delay_over_a_century_is_refused() -> None:
    outcome = pb.Outcome(job_id="j", token="t", kind=pb.OUTCOME_KIND_FAIL)
    outcome.retry_after.seconds = 4_000_000_000
    with pytest.raises(InvalidArgument, match="retry_after"):
        convert.outcome_from_wire(outcome)
