"""From answers to results and errors."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from queue_operator import client
from queue_operator.client import Backoff, QueueClient, Submission
from queue_operator.client.models import JobStatus, QueueStats
from queue_operator.client.protocol import (
    Call,
    ServerError,
    answer,
    base_url,
    error_of,
    job_path,
)
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import (
    DuplicateJob,
    Fault,
    Forbidden,
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    QueueError,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
)
from queue_operator.domain.retry import BackoffStrategy

CHOICES = {"Breakdown", "BackoffStrategy", "DependencyMode", "ErrorCategory", "Phase"}
CHOICES |= {"Priority", "SearchOrder"}
CALL = Call("POST", "/v1/jobs/batch", job_ids=("a", "b"), keys=("x", "y"))
ONE = Call("GET", "/v1/jobs/a", job_ids=("a",))


def told(status: int, code: str, *fields: str) -> httpx.Response:
    details = [{"field": field, "code": code, "message": "is bad"} for field in fields]
    body = {"code": code, "message": "so it is", "details": details, "request_id": "r"}
    return httpx.Response(status, json=body)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (told(400, "INVALID_REQUEST", "type"), InvalidArgument),
        (told(413, "INVALID_REQUEST", "payload"), InvalidArgument),
        (told(401, "UNAUTHORIZED"), Unauthenticated),
        (told(403, "FORBIDDEN"), Forbidden),
        (told(404, "NOT_FOUND"), JobNotFound),
        (told(409, "DUPLICATE", "job_id"), DuplicateJob),
        (told(409, "DUPLICATE", "idempotency_key"), KeyConflict),
        (told(409, "INVALID_REQUEST"), InvalidTransition),
        (told(429, "QUOTA_EXCEEDED"), Unavailable),
        (told(503, "INTERNAL_ERROR"), Unavailable),
        (told(500, "INTERNAL_ERROR"), ServerError),
        (httpx.Response(502, text="<html>bad gateway</html>"), Unavailable),
        (httpx.Response(404, text="<html>who?</html>"), ServerError),
    ],
)
def test_each_code_is_an_error_of_its_kind(
    response: httpx.Response, kind: type[QueueError]
) -> None:
    assert type(error_of(ONE, response)) is kind


def test_a_job_that_is_not_there_is_told_of_in_the_servers_words() -> None:
    for params, namespace in (({}, ""), ({"namespace": "shop"}, "shop")):
        call = Call("GET", "/v1/jobs/a", params, job_ids=("a",))
        error = error_of(call, told(404, "NOT_FOUND"))
        assert isinstance(error, JobNotFound)
        assert (str(error), error.job_id, error.namespace) == ("so it is", "a", namespace)


def test_all_faults_are_in_the_message() -> None:
    error = error_of(ONE, told(400, "INVALID_REQUEST", "type", "tags.a"))
    assert isinstance(error, InvalidArgument)
    assert error.field == "type"
    assert "tags.a: is bad" in str(error)


def test_duplicates_of_a_batch_are_named() -> None:
    error = error_of(CALL, told(409, "DUPLICATE", "jobs[1].job_id"))
    assert isinstance(error, DuplicateJob)
    assert (error.job_ids, error.indexes) == (("b",), (1,))
    assert (error.field, str(error)) == ("jobs[1].job_id", "so it is")


def test_a_key_of_another_job_is_named() -> None:
    error = error_of(CALL, told(409, "DUPLICATE", "jobs[1].idempotency_key"))
    assert isinstance(error, KeyConflict)
    assert (str(error), error.key, error.field) == ("so it is", "y", "jobs[1].idempotency_key")


def test_what_the_details_know_is_in_the_error() -> None:
    detail = {"field": "idempotency_key", "code": "DUPLICATE", "message": "not so", "job_id": "old"}
    body = {"code": "DUPLICATE", "message": "so it is", "details": [detail]}
    conflict = error_of(Call("POST", "/v1/jobs", keys=("x",)), httpx.Response(409, json=body))
    assert isinstance(conflict, KeyConflict)
    assert (conflict.key, conflict.job_id, conflict.reason) == ("x", "old", "not so")
    detail = {"field": "job_id", "code": "C", "message": "", "state": "RUNNING", "event": "RETRY"}
    body = {"code": "INVALID_REQUEST", "message": "so it is", "details": [detail]}
    refused = error_of(ONE, httpx.Response(409, json=body))
    assert isinstance(refused, InvalidTransition)
    assert (refused.job_id, refused.state, refused.event) == ("a", "RUNNING", "RETRY")


def test_a_job_in_the_wrong_state_is_told_of_in_the_servers_words() -> None:
    error = error_of(ONE, told(409, "INVALID_REQUEST", "job_id"))
    assert isinstance(error, InvalidTransition)
    assert (str(error), error.job_id) == ("so it is", "a")


@pytest.mark.parametrize("retry_after", ["PT1M30S", 90])
def test_a_quota_tells_how_much_is_used_and_when_to_come_again(retry_after: str | int) -> None:
    quota = {"limit": "pending_jobs", "current": 7, "maximum": 7, "retry_after": retry_after}
    body = {"code": "QUOTA_EXCEEDED", "message": "full", "quota": quota}
    error = error_of(ONE, httpx.Response(429, json=body))
    assert isinstance(error, QuotaExceeded)
    assert (error.limit, error.current, error.maximum) == ("pending_jobs", 7, 7)
    assert error.retry_after_s == 90.0


def test_a_batch_that_never_fits_is_told_in_the_servers_words() -> None:
    quota = {"limit": "pending_jobs", "current": 0, "maximum": 1}
    body = {"code": "QUOTA_EXCEEDED", "message": "never fits", "quota": quota}
    error = error_of(CALL, httpx.Response(429, json=body))
    assert isinstance(error, QuotaExceeded)
    assert (str(error), error.retry_after_s, error.jobs) == ("never fits", None, 2)
    assert error.is_hopeless_for(1)


def test_a_server_error_can_be_found_in_the_log() -> None:
    assert "(request r)" in str(error_of(ONE, told(500, "INTERNAL_ERROR")))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 500, 503])
def test_every_error_has_the_request_and_the_findings(status: int) -> None:
    error = error_of(ONE, told(status, "INVALID_REQUEST", "type"))
    assert error.request_id == "r"
    assert error.findings == (Fault("type", "INVALID_REQUEST", "is bad"),)


def test_an_answer_without_a_document_has_the_request_of_its_header() -> None:
    response = httpx.Response(502, text="<html>", headers={"x-request-id": "h"})
    assert error_of(ONE, response).request_id == "h"


@pytest.mark.parametrize(
    "response",
    [httpx.Response(404, text="<html>who?</html>"), httpx.Response(404, json={"detail": "no"})],
)
def test_a_404_of_something_else_is_no_missing_job(response: httpx.Response) -> None:
    error = error_of(ONE, response)
    assert isinstance(error, ServerError)
    assert "the URL does not lead to the REST API" in str(error)


def test_a_path_that_the_server_does_not_know_is_no_missing_job() -> None:
    detail = {"field": "", "code": "NO_SUCH_PATH", "message": "there is no such path"}
    body = {"code": "NOT_FOUND", "message": "GET /x/v1/jobs/a: not found", "details": [detail]}
    assert type(error_of(ONE, httpx.Response(404, json=body))) is ServerError


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("http://a:1", ""),
        ("http://a:1/v1", "/"),
        ("http://a:1/v1/", "/"),
        ("https://a/queue/v1", "/queue"),
        ("https://a/queue%2Fv2", "/queue%2Fv2"),
    ],
)
def test_the_address_of_the_api_is_that_of_the_server(given: str, path: str) -> None:
    assert str(base_url(given)).endswith(path)
    assert not base_url(given).path.endswith("/v1")


@pytest.mark.parametrize("name", ["get", "explain", "failure", "log", "cancel", "retry", "delete"])
def test_an_empty_id_is_refused_before_anything_is_sent(name: str) -> None:
    with QueueClient("http://127.0.0.1:1") as queue:
        with pytest.raises(InvalidArgument, match="job_id: must not be empty"):
            getattr(queue, name)("")
        with pytest.raises(InvalidArgument, match="job_ids: must not hold an empty id"):
            queue.cancel_jobs(["a", ""])


def test_an_answer_of_something_else_is_an_error() -> None:
    with pytest.raises(ServerError, match="not that of a queue operator"):
        answer(ONE, httpx.Response(200, text="<html>hello</html>"), QueueStats)


def test_fields_of_a_newer_server_are_ignored() -> None:
    body = {
        "job_id": "a",
        "namespace": "n",
        "type": "t",
        "state": "RUNNING",
        "attempt": 1,
        "priority": "NORMAL",
        "news": {"a": 1},
    }
    assert answer(ONE, httpx.Response(200, json=body), JobStatus).job_id == "a"


def test_what_the_client_takes_can_be_had_from_it() -> None:
    assert set(client.__all__) >= CHOICES
    for name in client.__all__:
        assert getattr(client, name).__name__ == name
    high = Submission(type="t", payload=1, priority=client.Priority.HIGH)
    assert high.document()["priority"] == "HIGH"


def test_ids_are_quoted() -> None:
    assert job_path("a/b?c") == "/v1/jobs/a%2Fb%3Fc"
    assert job_path("ü", "/cancel") == "/v1/jobs/%C3%BC/cancel"
    assert job_path("..") == "/v1/jobs/%2E%2E"


@pytest.mark.parametrize(
    ("given", "document"),
    [
        (Submission(type="t", payload=None), {"payload": None}),
        (Submission(type="t", payload={"a": [1]}), {"payload": {"a": [1]}}),
        (Submission(type="t", payload_bytes=b"\x00"), {"payload_base64": "AA=="}),
        (
            Submission(type="t", payload=None, delay=timedelta(minutes=5)),
            {"payload": None, "delay": "PT5M"},
        ),
        (
            Submission(type="t", payload=None, scheduled_at=datetime(2030, 1, 1, tzinfo=UTC)),
            {"payload": None, "scheduled_at": "2030-01-01T00:00:00Z"},
        ),
        (
            Submission(
                type="t",
                payload=None,
                backoff=Backoff(strategy=BackoffStrategy.CUSTOM, delays=(timedelta(seconds=1),)),
            ),
            {"payload": None, "backoff": {"strategy": "CUSTOM", "delays": ["PT1S"]}},
        ),
        (
            Submission(
                type="t", payload=None, depends_on=("a", "b"), dependency_type=DependencyMode.CHAIN
            ),
            {"payload": None, "depends_on": ["a", "b"], "dependency_type": "CHAIN"},
        ),
        (
            Submission(type="t", payload=None, idempotency_key="k", callback_url="https://a/b"),
            {"payload": None, "idempotency_key": "k", "callback_url": "https://a/b"},
        ),
    ],
)
def test_a_submission_as_it_is_sent(given: Submission, document: dict[str, Any]) -> None:
    assert given.document() == {"type": "t", **document}
    written = json.loads(json.dumps(given.document()))
    assert Submission.from_document(written) == given


def test_one_payload_is_required() -> None:
    with pytest.raises(ValidationError, match="give payload or payload_bytes"):
        Submission(type="t")


def test_two_payloads_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValidationError, match="not both"):
        Submission(type="t", payload=1, payload_bytes=b"")


@pytest.mark.parametrize(
    ("document", "match"),
    [
        ({"type": "t", "payload": 1, "payload_base64": "AA=="}, "not both"),
        ({"type": "t", "payload_base64": "?"}, "is not base64"),
        ({"type": "t", "payload_bytes": "AA=="}, "payload_base64"),
        ({"type": "t", "payloads": 1}, "payloads"),
        ({"payload": 1}, "type"),
    ],
)
def test_what_is_no_submission_is_said_to_be_none(document: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Submission.from_document(document)
