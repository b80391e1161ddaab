"""Builds the REST application."""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import anyio
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from queue_operator import __version__
from queue_operator.api import errors, schemas
from queue_operator.api.routes import router
from queue_operator.api.services import Services
from queue_operator.api.tracing import RequestTracing
from queue_operator.auth.protocol import Authenticator, Authorizer
from queue_operator.domain.ids import ENTROPY_BITS, uuid7
from queue_operator.queue.protocol import Queue
from queue_operator.settings import Settings

_REFERENCE: Final = "#/components/schemas/{model}"
_BODIES: Final = (schemas.JobSubmission, schemas.BatchSubmission, schemas.CancellationRequest)
_ALWAYS: Final = (400, 401, 403, 429, 500, 503)
_WITH_BODY: Final = (408, 413, 415)
_ERROR: Final = {
    "description": "What went wrong.",
    "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model="APIError")}}},
}


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> str:
    return uuid7(time.time_ns(), secrets.randbits(ENTROPY_BITS))


def create_app(
    queue: Queue,
    authenticator: Authenticator,
    authorizer: Authorizer,
    settings: Settings,
    *,
    now: Callable[[], datetime] = _utc_now,
    new_id: Callable[[], str] = _new_id,
) -> FastAPI:
    """The application for `queue`, which the caller keeps open and closes.

    `now` (aware, UTC) only decides how a job is shown; `new_id` names jobs without an id.
    """
    app = document_app()
    app.state.services = Services(
        queue=queue,
        authenticator=authenticator,
        authorizer=authorizer,
        settings=settings,
        limits=settings.limits.to_limits(),
        now=now,
        new_id=new_id,
        parsing=anyio.CapacityLimiter(1),
    )
    return app


def document_app() -> FastAPI:
    """The routes without anything behind them, for the OpenAPI document."""
    app = FastAPI(
        title="Queue Operator",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
    )
    app.include_router(router)
    app.add_middleware(RequestTracing)
    errors.install(app)
    app.openapi = lambda: openapi(app)  # type: ignore[method-assign]
    return app


def openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    components = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        components.pop(name, None)
    for model, mode in ((schemas.APIError, "serialization"), *((b, "validation") for b in _BODIES)):
        _, extra = models_json_schema([(model, mode)], ref_template=_REFERENCE)  # type: ignore[list-item]
        components.update(extra["$defs"])
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["components"]["responses"] = {"Error": _ERROR}
    document["security"] = [{"token": []}]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _describe_errors(operation["responses"], _error_statuses(path, method))
    return document


def _error_statuses(path: str, method: str) -> list[int]:
    statuses = list(_ALWAYS)
    if method == "post":
        statuses += _WITH_BODY
    if "{job_id}" in path:
        statuses.append(HTTPStatus.NOT_FOUND)
    elif method == "post":
        statuses.append(HTTPStatus.CONFLICT)
    return sorted(statuses)


def _describe_errors(responses: dict[str, Any], statuses: list[int]) -> None:
    # Faulty parameters are 400 here, not the framework's 422.
    responses.pop("422", None)
    for status in statuses:
        responses[str(status)] = {"$ref": "#/components/responses/Error"}
