"""Requests and answers, the same for both clients."""

import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from queue_operator.client.models import APIError, BatchResult, Submission, SubmissionResult
from queue_operator.domain.errors import (
    DuplicateJob,
    Forbidden,
    InvalidArgument,
    JobNotFound,
    QueueError,
    Unauthenticated,
    Unavailable,
)
from queue_operator.domain.ids import ENTROPY_BITS, uuid7

M = TypeVar("M", bound=BaseModel)

_BATCH_INDEX: Final = re.compile(r"jobs\[(\d+)\]")
_ACCEPTED: Final = "ACCEPTED"
_DUPLICATE: Final = "DUPLICATE"


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `job_ids` are those it is about; `made_ids` those that the client made,
    which nobody else can have stored.
    """

    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    job_ids: tuple[str, ...] = ()
    made_ids: frozenset[str] = frozenset()


class ServerError(QueueError):
    """The server failed in a way it did not expect; `request_id` finds it in its log."""

    def __init__(self, message: str, request_id: str) -> None:
        super().__init__(f"{message} (request {request_id})" if request_id else message)
        self.request_id = request_id


def base_url(url: str) -> httpx.URL:
    """Raises InvalidArgument for what is none."""
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        found = httpx.URL()
    if found.scheme not in ("http", "https") or not found.host:
        reason = f"{url!r} must be that of the REST port, as in http://localhost:8080"
        raise InvalidArgument("url", reason)
    return found


def unreachable(failure: httpx.TransportError | None) -> Unavailable:
    """What no answer means."""
    text = f"the queue operator cannot be reached: {failure}"
    if isinstance(failure, httpx.RemoteProtocolError):
        text += (
            "; if the URL is that of the gRPC port (50051 unless set otherwise), "
            "give the one of REST (8080)"
        )
    return Unavailable(text)


def submit(submission: Submission, namespace: str | None) -> Call:
    documents, made = _documents([submission])
    job_ids = (documents[0]["job_id"],)
    return Call("POST", "/v1/jobs", _params(namespace), documents[0], job_ids, made)


def submit_batch(submissions: Iterable[Submission], atomic: bool, namespace: str | None) -> Call:
    documents, made = _documents(submissions)
    job_ids = tuple(document["job_id"] for document in documents)
    body = {"jobs": documents, "atomic": atomic}
    return Call("POST", "/v1/jobs/batch", _params(namespace), body, job_ids, made)


def get(job_id: str, include_result: bool, namespace: str | None) -> Call:
    params = _params(namespace)
    if include_result:
        params["include_result"] = "true"
    return Call("GET", _job_path(job_id), params, job_ids=(job_id,))


def cancel(job_id: str, reason: str, force: bool, namespace: str | None) -> Call:
    body = {"reason": reason, "force": force}
    return Call("POST", f"{_job_path(job_id)}/cancel", _params(namespace), body, (job_id,))


def stats(tags: Sequence[str], namespace: str | None) -> Call:
    params = _params(namespace)
    if tags:
        params["tag"] = list(tags)
    return Call("GET", "/v1/stats", params)


def answer(call: Call, response: httpx.Response, model: type[M]) -> M:
    """The typed answer. Raises the domain's error for what the server refused, and
    ServerError for what no queue operator says.
    """
    if not response.is_success:
        raise error_of(call, response)
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        text = f"{call.method} {call.path}: the answer is not that of a queue operator"
        raise ServerError(text, response.headers.get("x-request-id", "")) from error


def submit_answer(call: Call, response: httpx.Response, *, retried: bool) -> SubmissionResult:
    """As `answer`. After a retry, an id of ours that exists already means that an earlier
    try was stored and only its answer was lost.
    """
    try:
        return answer(call, response, SubmissionResult)
    except DuplicateJob:
        if not (retried and call.made_ids):
            raise
        return _accepted(call.job_ids[0])


def batch_answer(call: Call, response: httpx.Response, *, retried: bool) -> BatchResult:
    """As `submit_answer`, for each job of the batch."""
    try:
        result = answer(call, response, BatchResult)
    except DuplicateJob as error:
        if not (retried and call.made_ids.intersection(error.job_ids)):
            raise
        # An atomic batch is stored whole or not at all.
        return _tally([_accepted(job_id) for job_id in call.job_ids])
    if not retried:
        return result
    return _tally([_stored_earlier(call, item) for item in result.results])


def error_of(call: Call, response: httpx.Response) -> QueueError:
    """The error that the server's answer stands for."""
    try:
        told = APIError.model_validate_json(response.content)
    except ValidationError:
        text = f"{call.method} {call.path} was answered with status {response.status_code}"
        told = APIError(code="", message=text)
    match told.code:
        case "DUPLICATE":
            return _duplicate(call, told)
        case "INVALID_REQUEST":
            return _invalid(told)
        case "NOT_FOUND" if len(call.job_ids) == 1:
            return _not_found(call, told)
        case "UNAUTHORIZED":
            return Unauthenticated(told.message)
        case "FORBIDDEN":
            return Forbidden(told.message)
        case _ if response.status_code in (429, 502, 503, 504):
            return Unavailable(told.message)
        case _:
            return ServerError(told.message, told.request_id)


def _documents(submissions: Iterable[Submission]) -> tuple[list[dict[str, Any]], frozenset[str]]:
    documents, made = [], set()
    for submission in submissions:
        document = submission.document()
        if submission.job_id is None:
            # Made before the first try, so that a second one cannot store the job twice.
            document["job_id"] = uuid7(time.time_ns(), secrets.randbits(ENTROPY_BITS))
            made.add(document["job_id"])
        documents.append(document)
    return documents, frozenset(made)


def _params(namespace: str | None) -> dict[str, Any]:
    return {} if namespace is None else {"namespace": namespace}


def _job_path(job_id: str) -> str:
    # As segments of their own, dots would be taken for a way through the path.
    segment = job_id.replace(".", "%2E") if job_id in (".", "..") else quote(job_id, safe="")
    return f"/v1/jobs/{segment}"


def _not_found(call: Call, told: APIError) -> JobNotFound:
    """Only the server knows the caller's own namespace, so it is in the message at most."""
    error = JobNotFound(call.job_ids[0], call.params.get("namespace", ""))
    error.args = (told.message,)
    return error


def _duplicate(call: Call, told: APIError) -> DuplicateJob:
    found = [_BATCH_INDEX.match(detail.field) for detail in told.details]
    indexes = tuple(int(match[1]) for match in found if match) or (0,)
    return DuplicateJob(tuple(call.job_ids[index] for index in indexes), indexes)


def _invalid(told: APIError) -> InvalidArgument:
    if not told.details or not told.details[0].field:
        return InvalidArgument("request", told.message)
    first = told.details[0]
    others = [f"{detail.field}: {detail.message}" for detail in told.details[1:]]
    return InvalidArgument(first.field, "; ".join([first.message, *others]))


def _accepted(job_id: str) -> SubmissionResult:
    return SubmissionResult(job_id=job_id, status=_ACCEPTED)


def _stored_earlier(call: Call, item: SubmissionResult) -> SubmissionResult:
    is_ours = item.job_id in call.made_ids
    if is_ours and item.job_id and item.error is not None and item.error.code == _DUPLICATE:
        return _accepted(item.job_id)
    return item


def _tally(results: Sequence[SubmissionResult]) -> BatchResult:
    accepted = sum(item.status == _ACCEPTED for item in results)
    return BatchResult(
        total=len(results),
        accepted=accepted,
        rejected=len(results) - accepted,
        results=tuple(results),
    )
