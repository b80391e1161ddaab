"""Requests and answers, the same for both clients."""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from queue_operator.client.encoding import encode
from queue_operator.client.environment import CertificateFiles, EnvironmentProxy
from queue_operator.client.models import APIError, ErrorDetail, QuotaError
from queue_operator.domain.errors import (
    DuplicateJob,
    Fault,
    Forbidden,
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    MessageNotFound,
    QueueError,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
)
from queue_operator.tracing.current import headers as tracing_headers
from queue_operator.wire.clear import warn_of_token

logger = logging.getLogger(__name__)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_BATCH_INDEX: Final = re.compile(r"jobs\[(\d+)\]")
_CONFLICT: Final = 409
_MISSING: Final = 404
_NO_SUCH_PATH: Final = "NO_SUCH_PATH"
"""The code of a fault: the server has no such operation, whatever the job."""

NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Failures of requests of which the server saw nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `content` is its body, as JSON. `job_ids` are those it is about, "" for an id
    that only the server knows; `keys` the idempotency keys of its jobs; `message_id` the message
    that it is about. `is_repeatable`: done twice it does no more than done once.
    """

    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)
    content: bytes | None = None
    job_ids: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    is_repeatable: bool = True
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a call, or why there is none. `chunk` is what came next of a stream."""

    response: httpx.Response | None = None
    failure: httpx.RequestError | None = None
    chunk: bytes = b""


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """A call, and what its answer means; `parse` is told whether it was sent more than once."""

    call: Call
    parse: Callable[[httpx.Response, bool], T]


class ServerError(QueueError):
    """The server failed in a way it did not expect; `request_id` finds it in its log."""

    def __init__(self, message: str, request_id: str) -> None:
        super().__init__(f"{message} (request {request_id})" if request_id else message)
        self.request_id = request_id


def base_url(url: str) -> httpx.URL:
    """That of the server, also where the one of its API is given, which ends with /v1. Raises
    InvalidArgument for what is none.
    """
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        found = httpx.URL()
    if found.scheme not in ("http", "https") or not found.host:
        reason = f"{url!r} must be that of the REST port, as in http://localhost:8080"
        raise InvalidArgument("url", reason)
    path = found.path.rstrip("/")
    return found.copy_with(path=path.removesuffix("/v1") or "/") if path.endswith("/v1") else found


def connection(url: str, files: CertificateFiles, *, with_token: bool) -> dict[str, Any]:
    """How a client of httpx reaches `url`, as `base_url`. Raises InvalidArgument also for what
    the environment says of proxies and authorities and nobody can use.
    """
    found = base_url(url)
    if with_token and found.scheme == "http":
        remedy = "give an https URL, once the server has a certificate"
        warn_of_token(logger, str(found), found.host, remedy)
    proxy = EnvironmentProxy.for_url(found)
    return {
        "base_url": found,
        # Reading all authorities takes longer than a request, and without TLS nobody asks them:
        # no redirect is followed.
        "verify": files.context() if found.scheme == "https" else False,
        "follow_redirects": False,
        # httpx would take up every proxy of the environment, also those that are for others.
        "trust_env": False,
        "proxy": proxy and proxy.url,
    }


_UNTRUSTED: Final = ("unable to get local issuer certificate", "self-signed certificate")
"""What OpenSSL says of a certificate whose authority nobody named."""


def unreachable(call: Call, failure: httpx.RequestError | None) -> Unavailable:
    """What no answer means."""
    text = f"the queue operator cannot be reached{_by_way_of(failure)}: {failure}"
    if not (call.is_repeatable or isinstance(failure, NOT_SENT)):
        text = f"the queue operator did not answer, and may have done it or not: {failure}"
    if isinstance(failure, httpx.RemoteProtocolError):
        text += (
            "; if the server has a certificate, the URL begins with https; if it is that of the "
            "gRPC port (50051 unless set otherwise), give the one of REST (8080)"
        )
    if any(words in str(failure) for words in _UNTRUSTED):
        text += "; give the file of the authority that signed it as ca_file (--ca-file)"
    return Unavailable(text)


def _by_way_of(asked: httpx.RequestError | httpx.Response | None) -> str:
    """Which proxy stands in between, if one does."""
    try:
        proxy = EnvironmentProxy.for_url(asked.request.url) if asked is not None else None
    except (RuntimeError, InvalidArgument):
        return ""
    return f" by way of the proxy of {proxy}" if proxy else ""


def headers_of(call: Call, authorization: Mapping[str, str]) -> dict[str, str]:
    """The headers of `call`, which say what span it is made in."""
    kind = {} if call.content is None else {"Content-Type": "application/json"}
    return {**kind, **authorization, **tracing_headers()}


def params_of(namespace: str | None, **others: Any) -> dict[str, Any]:
    """The query of a call; what is None is left out. Raises InvalidArgument for what is no text."""
    given = {"namespace": namespace, **others}
    for name, value in given.items():
        try:
            encode(value)
        except InvalidArgument as error:
            raise InvalidArgument(name, error.reason) from None
    return {name: value for name, value in given.items() if value is not None}


def job_path(job_id: str, suffix: str = "") -> str:
    """Where a job is found, and what is done with it. Raises InvalidArgument for an empty id,
    which would name all jobs, and for one that is no text.
    """
    return f"/v1/jobs/{segment('job_id', job_id)}{suffix}"


def segment(field: str, name: str) -> str:
    """A name as a part of a path of its own. Raises InvalidArgument, which names `field`."""
    if not name:
        raise InvalidArgument(field, "must not be empty")
    # As segments of their own, dots would be taken for a way through the path.
    try:
        return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
    except UnicodeEncodeError:
        raise InvalidArgument(field, "half a character (a lone surrogate) is no text") from None


def parsed(call: Call, model: type[M]) -> Operation[M]:
    """An operation whose answer is a `model`."""
    return Operation(call, lambda response, _: answer(call, response, model))


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


def error_of(call: Call, response: httpx.Response) -> QueueError:
    """The error that the server's answer stands for."""
    told = _told(call, response)
    error = _meant(call, response.status_code, told)
    error.request_id = told.request_id
    error.findings = tuple(Fault(one.field, one.code, one.message) for one in told.details)
    return error


def _meant(call: Call, status: int, told: APIError) -> QueueError:
    if _leads_elsewhere(status, told):
        text = f"{told.message}: the URL does not lead to the REST API of a queue operator"
        return ServerError(text, told.request_id)
    match told.code:
        case "DUPLICATE":
            return _duplicate(call, told)
        case "INVALID_REQUEST":
            return _invalid(call, status, told)
        case "NOT_FOUND" if len(call.job_ids) == 1:
            return _not_found(call, told)
        case "NOT_FOUND" if call.message_id:
            missing = MessageNotFound(call.message_id, call.params.get("namespace", ""))
            return _said(missing, told.message)
        case "UNAUTHORIZED":
            return Unauthenticated(told.message)
        case "FORBIDDEN":
            return Forbidden(told.message)
        case "QUOTA_EXCEEDED" if told.quota is not None:
            return _over_quota(call, told.quota, told.message)
        case _ if status in (429, 502, 503, 504):
            return Unavailable(told.message)
        case _:
            return ServerError(told.message, told.request_id)


def _leads_elsewhere(status: int, told: APIError) -> bool:
    is_strange = not told.code or any(one.code == _NO_SUCH_PATH for one in told.details)
    return status == _MISSING and is_strange


def _told(call: Call, response: httpx.Response) -> APIError:
    try:
        return APIError.model_validate_json(response.content)
    except ValidationError:
        text = f"{call.method} {call.path} was answered with status {response.status_code}"
        text += _by_way_of(response)
        return APIError(code="", message=text, request_id=response.headers.get("x-request-id", ""))


E = TypeVar("E", bound=QueueError)


def _said(error: E, message: str, detail: ErrorDetail | None = None) -> E:
    """`error` in the server's own words, which know more."""
    error.args = (message,)
    if isinstance(error, InvalidArgument) and detail is not None:
        error.field, error.reason = detail.field, detail.message
    return error


def _not_found(call: Call, told: APIError) -> JobNotFound:
    """Only the server knows the caller's own namespace, so it is in the message at most."""
    return _said(JobNotFound(call.job_ids[0], call.params.get("namespace", "")), told.message)


def _duplicate(call: Call, told: APIError) -> DuplicateJob | KeyConflict:
    found = [_BATCH_INDEX.match(detail.field) for detail in told.details]
    indexes = tuple(int(match[1]) for match in found if match) or (0,)
    first = told.details[0] if told.details else None
    if first is not None and first.field.endswith("idempotency_key"):
        key = call.keys[indexes[0]] if indexes[0] < len(call.keys) else ""
        return _said(KeyConflict(key, first.job_id or "", first.field), told.message, first)
    job_ids = tuple(call.job_ids[index] for index in indexes if index < len(call.job_ids))
    return _said(DuplicateJob(job_ids, indexes), told.message, first)


def _invalid(call: Call, status: int, told: APIError) -> QueueError:
    if status == _CONFLICT:
        known = told.details[0] if told.details else ErrorDetail()
        job_id = known.job_id or (call.job_ids[0] if call.job_ids else "")
        return _said(InvalidTransition(job_id, known.state or "", known.event or ""), told.message)
    if not told.details or not told.details[0].field:
        return InvalidArgument("request", told.message)
    first = told.details[0]
    others = [f"{detail.field}: {detail.message}" for detail in told.details[1:]]
    return InvalidArgument(first.field, "; ".join([first.message, *others]))


def _over_quota(call: Call, quota: QuotaError, message: str) -> QuotaExceeded:
    after = quota.retry_after
    after_s = None if after is None else after.total_seconds()
    jobs = len(call.job_ids)
    error = QuotaExceeded(quota.limit, quota.current, quota.maximum, after_s, jobs)
    return error if after_s is not None else _said(error, message)
