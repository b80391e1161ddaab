"""An operation: what it is called, what it takes, who may call it, and what it does."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

import anyio
from fastapi import Request, Response
from pydantic import BaseModel
from pydantic_core import to_json

from queue_operator.api.body import read_json
from queue_operator.api.schemas import NamespaceQuery
from queue_operator.api.services import Services
from queue_operator.auth.protocol import QUEUE_JOBS, Identity
from queue_operator.domain.traces import trace_of
from queue_operator.tracing.protocol import Sending

Q = TypeVar("Q", bound=NamespaceQuery)
T = TypeVar("T")

ANYBODY: Final = ""
"""The verb of an operation that needs no right, only somebody who is known."""
_IN_LOOP_BYTES: Final = 32 * 1024
"""Larger bodies and results are handled in a thread, one at a time."""


@dataclass(slots=True)
class Call(Generic[Q]):
    """One request of somebody who may make it. `job_id` is "" where the path has none, and
    `token` what the caller showed.
    """

    operation: "Operation[Q]"
    request: Request
    services: Services
    identity: Identity
    namespace: str
    query: Q
    job_id: str
    token: str | None = None

    async def body(self, limit: int) -> bytes:
        """At most `limit` bytes, and at most what the settings allow."""
        most = min(limit, self.services.settings.rest.body_bytes)
        wanted = self.operation.body
        required = wanted is not None and wanted.required
        return await read_json(self.request, most, required=required)

    async def review(self, verb: str) -> None:
        """Asks for a right beside the operation's own. Raises Forbidden."""
        await self.services.authorizer.authorize(self.identity, verb, QUEUE_JOBS, self.namespace)

    def change(self, **what: Any) -> AbstractContextManager[dict[str, Any]]:
        """Around a change: it is told before, and after with what is put into the mapping."""
        return self.services.audit.change(
            self.identity,
            request_id=str(self.request.scope.get("request_id", "")),
            verb=self.operation.verb,
            operation=self.operation.id,
            namespace=self.namespace,
            **what,
        )

    def sending(self) -> AbstractContextManager[Sending]:
        """Around a submission, of whatever trace the caller is in."""
        headers = self.request.headers
        given = trace_of(headers.get("traceparent"), ",".join(headers.getlist("tracestate")))
        return self.services.tracing.sending("rest", given)

    async def apart(self, work: Callable[[], T], size: int) -> T:
        """What `work` gives, which handles `size` bytes of JSON."""
        if size <= _IN_LOOP_BYTES:
            return work()
        return await anyio.to_thread.run_sync(work, limiter=self.services.parsing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What is in the request."""

    model: type[BaseModel]
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[Q]):
    """`verb` is what the caller must be allowed to do to `queuejobs`, or ANYBODY, `answers` the
    model by status (None: no body), and `errors` the statuses beside those that any operation may
    have. `subject` is the heading under which the document has it. One that
    `streams` answers with events, each of which has the model.
    """

    id: str
    method: str
    path: str
    verb: str
    subject: str
    summary: str
    run: Callable[[Call[Q]], Awaitable[Response]]
    query: type[Q]
    answers: Mapping[int, type[BaseModel] | None]
    body: Body | None = None
    errors: frozenset[int] = field(default_factory=frozenset)
    streams: bool = False


def render(answer: BaseModel, status: int = HTTPStatus.OK) -> Response:
    """As JSON. Fields that a view left unset do not apply (an output of null does)."""
    text = answer.model_dump_json(exclude_unset=True)
    return Response(text, status, media_type="application/json")


def render_plain(answer: Mapping[str, Any], status: int = HTTPStatus.OK) -> Response:
    """As `render`, of an answer that is plain already."""
    return Response(to_json(answer), status, media_type="application/json")
