"""Builds the REST application."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
from fastapi import FastAPI

from queue_operator import __version__
from queue_operator.api import answering, documentation, page
from queue_operator.api.document import document
from queue_operator.api.door import install
from queue_operator.api.naming import new_job_id
from queue_operator.api.routes import OPERATIONS
from queue_operator.api.services import Services
from queue_operator.api.tracing import RequestTracing
from queue_operator.auth.audit import Audit
from queue_operator.auth.protocol import Authenticator, Authorizer
from queue_operator.queue.hub import EventHub, hub_of
from queue_operator.queue.operations import Operations
from queue_operator.queue.protocol import HostedQueue
from queue_operator.queue.watching import Watch
from queue_operator.settings import Settings
from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Tracing


def _utc_now() -> datetime:
    return datetime.now(UTC)


def create_app(
    queue: HostedQueue,
    authenticator: Authenticator,
    authorizer: Authorizer,
    settings: Settings,
    *,
    now: Callable[[], datetime] = _utc_now,
    new_id: Callable[[], str] = new_job_id,
    tracing: Tracing = OFF,
    events: EventHub | None = None,
) -> FastAPI:
    """The application for `queue`, which the caller keeps open and closes.

    `now` (aware, UTC) only decides how a job is shown; `new_id` names jobs without an id. Without
    `events` those who follow jobs have a hub of this application's own, which is never closed.
    """
    app = document_app()
    app.state.services = Services(
        jobs=Operations(queue, now),
        watch=Watch(queue, now),
        authenticator=authenticator,
        authorizer=authorizer,
        audit=Audit(),
        settings=settings,
        limits=settings.to_limits(),
        now=now,
        new_id=new_id,
        parsing=anyio.CapacityLimiter(1),
        tracing=tracing,
        events=events or hub_of(queue, settings.rest.streams, settings.rest.streams_per_caller),
    )
    if settings.ui.enabled:
        page.install(app)
    return app


def document_app() -> FastAPI:
    """The operations without anything behind them, for the OpenAPI document."""
    app = FastAPI(
        title="Queue Operator",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
        # The product has metrics of its own; to look for others costs time on each request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    install(app, OPERATIONS)
    documentation.install(app)
    app.add_middleware(RequestTracing)
    answering.install(app)
    app.openapi = lambda: openapi(app)  # type: ignore[method-assign]
    return app


def openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = document(OPERATIONS)
    return app.openapi_schema
