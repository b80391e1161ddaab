"""How jobs are shown."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.api.schemas import SubmissionStatus
from queue_operator.api.views import jobs as views
from queue_operator.domain.job import Job, Progress, Submitted
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.states import JobState, is_terminal
from queue_operator.domain.views import Phase
from queue_operator.testing.clauses import proves

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = Job(id="a", type="t", created_at=NOW, eligible_at=NOW, tags=frozenset({"k=v", "bare"}))
DONE = replace(
    JOB,
    state=JobState.COMPLETED,
    attempt=2,
    assigned_at=NOW,
    finalized_at=NOW + timedelta(milliseconds=1500),
    result=b'{"n":1}',
    result_content_type="application/json",
)


@pytest.mark.parametrize("state", list(JobState))
def test_a_result_is_shown_of_finished_jobs_only(state: JobState) -> None:
    job = replace(DONE, state=state, error=ErrorInfo("broken"))
    shown = views.job_status(job, NOW, include_result=True).result
    assert (shown is not None) == is_terminal(state)
    assert views.job_status(job, NOW, include_result=False).result is None


def test_a_success_has_its_output_as_json() -> None:
    result = views.job_result(DONE)
    assert result is not None
    assert result.model_dump(exclude_unset=True) == {
        "status": "SUCCESS",
        "output": {"n": 1},
        "duration_ms": 1500,
        "attempt": 2,
    }


def test_an_output_of_null_is_shown() -> None:
    result = views.job_result(replace(DONE, result=b"null"))
    assert result is not None
    assert '"output":null' in result.model_dump_json(exclude_unset=True)


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [
        (b"\x00\xff", "application/octet-stream"),
        (b'{"n":1}', "application/octet-stream"),
        (b"{not json", "application/json"),
        (b"1e400", "application/json"),
        (b"", "application/json"),
    ],
)
def test_other_output_comes_out_byte_for_byte(raw: bytes, content_type: str) -> None:
    result = views.job_result(replace(DONE, result=raw, result_content_type=content_type))
    assert result is not None
    assert result.output_base64 is not None
    assert base64.b64decode(result.output_base64) == raw
    assert "output" not in result.model_fields_set


def test_a_failure_says_why() -> None:
    error = ErrorInfo("broken", ErrorCategory.PERMANENT, "E1", "trace")
    result = views.job_result(replace(DONE, state=JobState.DEAD_LETTER, error=error))
    assert result is not None
    assert result.status == "FAILURE"
    assert result.error is not None
    assert result.error.model_dump() == {
        "category": "PERMANENT",
        "code": "E1",
        "message": "broken",
        "stack_trace": "trace",
    }


def test_a_job_cancelled_before_it_ran_has_no_result() -> None:
    job = replace(JOB, state=JobState.UNSCHEDULED, finalized_at=NOW)
    assert views.job_result(job) is None


def test_a_cancelled_running_job_is_running_with_a_mark() -> None:
    job = replace(JOB, state=JobState.CANCELLING, reason="not needed")
    shown = views.job_status(job, NOW, include_result=False)
    assert (shown.state, shown.cancel_requested) == (Phase.RUNNING, True)
    assert shown.reason == "not needed"


def test_tags_and_progress_are_shown() -> None:
    job = replace(JOB, progress=Progress(40, "half", NOW))
    shown = views.job_status(job, NOW, include_result=False)
    assert shown.tags == {"k": "v", "bare": ""}
    assert shown.progress is not None
    assert (shown.progress.percent, shown.progress.message) == (40, "half")


def test_a_delayed_submission_says_when_it_is_due() -> None:
    due = NOW + timedelta(minutes=1)
    result = views.submission_result(Submitted(job_id="a", created_at=NOW, eligible_at=due), NOW)
    assert (result.status, result.state) == (SubmissionStatus.ACCEPTED, Phase.DELAYED)
    assert result.scheduled_for == due
    assert "existing_job_id" not in result.model_fields_set


def test_a_clock_that_is_behind_delays_no_job() -> None:
    stored = Submitted(job_id="a", created_at=NOW, eligible_at=NOW)
    result = views.submission_result(stored, NOW - timedelta(seconds=5))
    assert (result.scheduled_for, result.state) == (NOW, Phase.SCHEDULED)
    shown = views.job_status(JOB, NOW - timedelta(seconds=5))
    assert shown.state is Phase.SCHEDULED


@proves("external-api.SubmissionResult.rule.5")
def test_what_waits_for_others_has_no_time() -> None:
    stored = Submitted(job_id="a", created_at=NOW, eligible_at=NOW, waiting_for_dependencies=True)
    result = views.submission_result(stored, NOW)
    assert (result.state, result.scheduled_for) == (Phase.PENDING, None)
    waiting = replace(JOB, waiting_for_dependencies=True)
    assert views.job_status(waiting, NOW).scheduled_for is None


@proves("external-api.SubmissionResult.rule.6", "external-api.SubmissionResult.rule.3")
def test_a_repeat_names_the_first_job_and_its_state() -> None:
    first = Submitted(
        job_id="a",
        duplicate=True,
        created_at=NOW,
        eligible_at=NOW,
        state=JobState.DEAD_LETTER,
        permanent=True,
    )
    result = views.submission_result(first, NOW)
    assert (result.status, result.existing_job_id) == (SubmissionStatus.DUPLICATE, "a")
    assert (result.job_id, result.state) == ("a", Phase.FAILED)
