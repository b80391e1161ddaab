"""What a receiver reads."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from tests.unit.webhooks.messages import AT, message

from queue_operator import __version__
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.webhooks.body import body, headers

NOW = AT + timedelta(minutes=5)
JOB = Job(
    id="job-0",
    namespace="team-a",
    type="send-email",
    payload=b"",
    state=JobState.COMPLETED,
    finalized_at=AT,
)


def rendered(job: Job, now: datetime) -> bytes:
    assert now == NOW
    return json.dumps({"job_id": job.id, "as": "REST"}).encode()


def read(job: Job | None, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body(message(**fields), job, NOW, rendered))
    return found


def test_the_job_is_told_as_rest_shows_it_in_an_envelope() -> None:
    assert read(JOB) == {
        "schema_version": 1,
        "type": "job.finished",
        "id": "msg-0",
        "timestamp": "2026-03-01T12:30:00.250000Z",
        "data": {"job_id": "job-0", "as": "REST"},
    }


@pytest.mark.parametrize(
    "job",
    [None, replace(JOB, finalized_at=AT + timedelta(seconds=1)), replace(JOB, finalized_at=None)],
)
def test_of_a_job_that_moved_on_the_message_tells_what_it_knows(job: Job | None) -> None:
    assert read(job, job_state=JobState.STOPPED, attempt=3)["data"] == {
        "job_id": "job-0",
        "namespace": "team-a",
        "type": "send-email",
        "state": "CANCELLED",
        "attempt": 3,
        "completed_at": "2026-03-01T12:30:00.250000Z",
        "truncated": True,
    }


def test_headers_are_those_of_cloud_events() -> None:
    assert headers(message()) == {
        "content-type": "application/json",
        "user-agent": f"queue-operator/{__version__}",
        "ce-specversion": "1.0",
        "ce-id": "msg-0",
        "ce-source": "/namespaces/team-a/jobs",
        "ce-type": "dev.queueoperator.job.finished",
        "ce-subject": "job-0",
        "ce-time": "2026-03-01T12:30:00.250000Z",
    }


def test_no_name_can_break_a_header() -> None:
    found = headers(message(job_id='a b\r\nx: "é%/', namespace="ä/b"))
    assert found["ce-subject"] == "a%20b%0D%0Ax:%20%22%C3%A9%25/"
    assert found["ce-source"] == "/namespaces/%C3%A4%2Fb/jobs"


def test_times_are_utc() -> None:
    east = AT.astimezone(timezone(timedelta(hours=5)))
    assert headers(message(finalized_at=east))["ce-time"].endswith("12:30:00.250000Z")
