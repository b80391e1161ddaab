from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.crd.conditions import (
    gc_bucket,
    over_quota,
    refused,
    status_of,
    tells_over_quota,
)
from queue_operator.crd.v1alpha1 import (
    MAX_MESSAGE,
    MAX_SUMMARY_BYTES,
    ConditionStatus,
    ConditionType,
    QueueJobStatus,
)
from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge, QuotaExceeded
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.shown import ShownJob, show
from queue_operator.domain.states import TERMINAL, JobState

CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ENDED = CREATED + timedelta(hours=2)
NOW = ENDED + timedelta(minutes=1)

EXPECTED: dict[JobState, set[ConditionType]] = {
    JobState.INITIAL_PENDING: set(),
    JobState.RUNNING: set(),
    JobState.CANCELLING: set(),
    JobState.FAILED_RETRY: set(),
    JobState.UNKNOWN_RETRY: set(),
    JobState.COMPLETED: {ConditionType.COMPLETE},
    JobState.DEAD_LETTER: {ConditionType.FAILED, ConditionType.STALLED},
    JobState.STOPPED: {ConditionType.CANCELLED},
    JobState.UNSCHEDULED: {ConditionType.CANCELLED},
    JobState.UNKNOWN_STOPPED: {ConditionType.CANCELLED},
}


def job(state: JobState = JobState.COMPLETED, **changes: object) -> ShownJob:
    values: dict[str, object] = {
        "id": "u1",
        "type": "a",
        "state": state,
        "created_at": CREATED,
        "finalized_at": ENDED if state in TERMINAL else None,
        "transition": 3,
        "resource": ResourceRef("c", "u1", "name", 2),
    }
    return show(Job(**(values | changes)))  # type: ignore[arg-type]


def true_conditions(status: QueueJobStatus) -> set[str]:
    return {c.type for c in status.conditions or () if c.status is ConditionStatus.TRUE}


@pytest.mark.parametrize("state", JobState)
def test_conditions_of_every_state(state: JobState) -> None:
    status = status_of(job(state), NOW)
    assert true_conditions(status) == {ConditionType.ACCEPTED, *EXPECTED[state]}
    assert status.state is state
    assert status.finished is (state in TERMINAL)
    assert status.reason
    assert (status.gc_bucket is not None) is (state in TERMINAL)


@pytest.mark.parametrize(
    ("state", "suspended", "told", "reason"),
    [
        (JobState.INITIAL_PENDING, True, ("True", "JobSuspended"), "Suspended"),
        (JobState.FAILED_RETRY, True, ("True", "JobSuspended"), "Suspended"),
        (JobState.RUNNING, True, ("True", "JobSuspended"), "Running"),
        (JobState.INITIAL_PENDING, False, ("False", "JobResumed"), "Waiting"),
        (JobState.RUNNING, False, ("False", "JobResumed"), "Running"),
        (JobState.COMPLETED, True, None, "Completed"),
        (JobState.COMPLETED, False, None, "Completed"),
    ],
)
def test_a_job_that_was_ever_suspended_says_so_until_it_ends(
    state: JobState, suspended: bool, told: tuple[str, str] | None, reason: str
) -> None:
    since = CREATED + timedelta(minutes=5)
    status = status_of(job(state, suspended=suspended, suspension_at=since), NOW, 3)
    found = {one.type: one for one in status.conditions or ()}.get(ConditionType.SUSPENDED)
    assert status.reason == reason
    if told is None:
        assert found is None
    else:
        assert found is not None
        assert (found.status, found.reason) == told
        assert (found.last_transition_time, found.observed_generation) == (since, 3)


@pytest.mark.parametrize("state", JobState)
def test_writing_again_changes_nothing(state: JobState) -> None:
    first = status_of(job(state), NOW)
    later = status_of(job(state), NOW + timedelta(hours=1))
    assert first == later


def test_times_come_from_the_job() -> None:
    conditions = status_of(job(), NOW).conditions
    assert conditions is not None
    accepted, complete = conditions
    assert accepted.last_transition_time == CREATED
    assert complete.last_transition_time == ENDED


def test_observed_generation_is_the_newest_seen() -> None:
    assert status_of(job(), NOW).observed_generation == 2
    status = status_of(job(), NOW, generation=5)
    assert status.observed_generation == 5
    assert {c.observed_generation for c in status.conditions or ()} == {5}


def test_permanent_failure_shows_its_code() -> None:
    error = ErrorInfo("no such user", ErrorCategory.PERMANENT, code="NO_SUCH_USER")
    status = status_of(job(JobState.DEAD_LETTER, error=error), NOW)
    assert (status.phase, status.reason) == ("FAILED", "NoSuchUser")
    assert status.message == "no such user"


@pytest.mark.parametrize(
    ("category", "code", "reason"),
    [
        (ErrorCategory.PERMANENT, "not a word!", "PermanentFailure"),
        (ErrorCategory.TIMEOUT, "", "TimedOut"),
        (ErrorCategory.TEMPORARY, "X", "AttemptsExhausted"),
        (ErrorCategory.SYSTEM, "WORKER_LOST", "AttemptsExhausted"),
    ],
)
def test_reason_of_a_dead_letter(category: ErrorCategory, code: str, reason: str) -> None:
    error = ErrorInfo("m", category, code=code)
    assert status_of(job(JobState.DEAD_LETTER, error=error), NOW).reason == reason


def test_a_job_that_completed_shows_no_error_of_an_attempt_before() -> None:
    error = ErrorInfo(category=ErrorCategory.TEMPORARY, code="X", message="the old error")
    status = status_of(job(JobState.COMPLETED, attempt=3, error=error), NOW)
    assert status.message is None
    assert {c.type: c.message for c in status.conditions or ()} == {
        "Accepted": "Stored as a job",
        "Complete": "",
    }


def test_names_that_the_definition_has_no_room_for_are_cut() -> None:
    status = status_of(ShownJob(id="j" * 256, namespace="n", worker="w" * 255), NOW)
    assert status.job_id == "j" * 254 + "…"
    assert status.worker == "w" * 255


def test_long_texts_are_cut() -> None:
    error = ErrorInfo("é" * 9000)
    status = status_of(job(JobState.DEAD_LETTER, error=error), NOW)
    assert len(status.message or "") == MAX_MESSAGE


@pytest.mark.parametrize(
    ("result", "content_type", "summary"),
    [
        (None, "application/json", None),
        (b'{"a":1}', "application/json", '{"a":1}'),
        (b"\x00\x01", "application/octet-stream", "2 bytes of application/octet-stream"),
        (b"a\x00b", "text/plain", "3 bytes of text/plain"),
    ],
)
def test_result_summary(result: bytes | None, content_type: str, summary: str | None) -> None:
    shown = status_of(job(result=result, result_content_type=content_type), NOW).result_summary
    assert shown == summary


def test_result_summary_is_at_most_a_kibibyte_and_whole_characters() -> None:
    result = ("x" + "é" * 1000).encode()
    shown = status_of(job(result=result, result_content_type="text/plain"), NOW).result_summary
    assert shown is not None
    assert MAX_SUMMARY_BYTES - 2 <= len(shown.encode()) <= MAX_SUMMARY_BYTES


@pytest.mark.parametrize(
    ("bound", "shown"), [(None, None), (0, None), (3, 3)], ids=["none", "unresolved", "given"]
)
def test_max_attempts(bound: int | None, shown: int | None) -> None:
    assert status_of(job(max_attempts=bound), NOW).max_attempts == shown


def test_refusal_is_final_and_names_the_field() -> None:
    status = refused(InvalidArgument("spec.timeout", "must be greater than 0"), NOW, 1)
    found = {c.type: c.status for c in status.conditions or ()}
    assert found == {
        ConditionType.ACCEPTED: ConditionStatus.FALSE,
        ConditionType.STALLED: ConditionStatus.TRUE,
    }
    assert status.finished is True
    assert status.state is None
    assert status.phase == "REJECTED"
    assert "spec.timeout" in (status.message or "")
    assert status.reason == "InvalidRequest"


def test_refusal_of_a_large_payload() -> None:
    assert refused(PayloadTooLarge("spec.payload", 9, 8), NOW, 1).reason == "PayloadTooLarge"


def test_bucket_is_the_hour_in_utc() -> None:
    assert gc_bucket(datetime.fromisoformat("2026-01-02T01:59:59+02:00")) == "20260101T23"


def test_over_a_quota_is_neither_accepted_nor_finished_nor_stalled() -> None:
    status = over_quota(QuotaExceeded("pending_jobs", 7, 5, 1.0), NOW, 2)
    assert status.finished is False
    assert (status.reason, status.observed_generation) == ("QuotaExceeded", 2)
    assert status.phase == "PENDING"
    assert status.gc_bucket is None
    [accepted] = status.conditions or []
    assert (accepted.type, accepted.status) == (ConditionType.ACCEPTED, ConditionStatus.FALSE)
    assert "pending_jobs: 7 of 5 used" in accepted.message
    assert "tried again" in accepted.message


def test_whether_a_resource_says_that_it_is_over_a_quota() -> None:
    status = over_quota(QuotaExceeded("pending_jobs", 5, 5, 1.0), NOW, 2)
    body = {"status": status.model_dump(mode="json", by_alias=True, exclude_none=True)}
    assert tells_over_quota(body, 2)
    # Of an older spec.
    assert not tells_over_quota(body, 3)
    for other in (refused(InvalidArgument("a", "b"), NOW, 2), status_of(job(), NOW, 2)):
        body = {"status": other.model_dump(mode="json", by_alias=True, exclude_none=True)}
        assert not tells_over_quota(body, 2)
    assert not tells_over_quota({}, 1)
