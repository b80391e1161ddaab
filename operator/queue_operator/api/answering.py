"""The one shape in which all errors are told."""

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import FastAPI, HTTPException, Request, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from queue_operator.api.errors import (
    INVALID_REQUEST,
    NO_SUCH_PATH,
    NOT_FOUND,
    OURS,
    RETRY_AFTER_S,
    details_of,
    message_of,
    quota_of,
    status_of,
)
from queue_operator.api.schemas import APIError, ErrorDetail, QuotaError
from queue_operator.domain.errors import (
    QueueError,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
)

log = logging.getLogger(__name__)


def install(app: FastAPI) -> None:
    """Makes every error of the application answer in the shape of `APIError`."""
    app.add_exception_handler(QueueError, _on_queue_error)
    app.add_exception_handler(StarletteHTTPException, _on_http_error)


def respond(
    request: Request,
    status: int,
    code: str,
    message: str,
    details: Sequence[ErrorDetail] = (),
    headers: Mapping[str, str] | None = None,
    quota: QuotaError | None = None,
) -> Response:
    """An error answer. Whoever looks for a refusal by its id finds it in the log of level debug:
    a caller's own faults may be many, and are told to the caller whole.
    """
    request_id = str(request.scope.get("request_id", ""))
    place = f"{request.method} {request.url.path}"
    log.debug("request %s: %s: %d %s: %s", request_id, place, status, code, message)
    body = APIError(
        code=code, message=message, details=list(details), request_id=request_id, quota=quota
    )
    text = body.model_dump_json(exclude_none=True)
    return Response(text, status, dict(headers or {}), media_type="application/json")


async def _on_queue_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueueError)  # noqa: S101  (the table of handlers says so)
    status, code = status_of(error)
    message = message_of(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # Its text names hosts and accounts, and the caller may be a stranger.
        log.warning("request %s: %s", request.scope.get("request_id"), error)
        message = OURS[status]
    return respond(
        request, status, code, message, details_of(error), _headers(error), quota_of(error)
    )


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)  # noqa: S101  (likewise)
    status = error.status_code
    code = NOT_FOUND if status == HTTPStatus.NOT_FOUND else INVALID_REQUEST
    message, details = error.detail, list[ErrorDetail]()
    if not isinstance(error, HTTPException):
        # Raised by the router, in words that do not say what to do.
        message = f"{request.method} {request.url.path}: {HTTPStatus(status).phrase.lower()}"
        if status == HTTPStatus.NOT_FOUND:
            details = [ErrorDetail(field="", code=NO_SUCH_PATH, message="there is no such path")]
    return respond(request, status, code, message, details, error.headers)


def _headers(error: QueueError) -> dict[str, str]:
    if isinstance(error, QuotaExceeded):
        after_s = error.retry_after_s
        return {} if after_s is None else {"Retry-After": str(max(1, math.ceil(after_s)))}
    if isinstance(error, Unavailable):
        return {"Retry-After": str(RETRY_AFTER_S)}
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": "Bearer"}
    return {}
