"""The way of every request: who calls, what is asked, may they, then the operation."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI, Request, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from queue_operator.api.operation import ANYBODY, Call, Operation
from queue_operator.api.queries import parse_query
from queue_operator.api.services import Services
from queue_operator.auth.protocol import QUEUE_JOBS
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import check_text

JOB_ID: Final = "job_id"


class Door:
    """The operations of one path, by method."""

    def __init__(self, operations: Mapping[str, Operation[Any]]) -> None:
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        services = cast(Services, request.app.state.services)
        operation = self._operations[request.method]
        token = _bearer_token(request)
        identity = await services.authenticator.authenticate(token)
        query = parse_query(request.scope["query_string"], operation.query)
        namespace = identity.namespace if query.namespace is None else query.namespace
        check_text("namespace", namespace, services.limits.id_characters)
        if operation.verb != ANYBODY:
            await services.authorizer.authorize(identity, operation.verb, QUEUE_JOBS, namespace)
        job_id = _job_id(request.scope["path_params"].get(JOB_ID, ""), services)
        return await operation.run(
            Call(operation, request, services, identity, namespace, query, job_id, token)
        )


def install(app: FastAPI, operations: Sequence[Operation[Any]]) -> None:
    """Serves the operations."""
    paths: dict[str, dict[str, Operation[Any]]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = operation
    for path, methods in paths.items():
        route = Route(path, Door(methods), methods=[*methods])
        # Otherwise the framework would let HEAD in beside GET.
        route.methods = set(methods)
        app.router.routes.append(route)


def _bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _job_id(escaped: str, services: Services) -> str:
    """The path is routed as it was sent: only so is a slash of an id told from one of the path."""
    if not escaped:
        return ""
    try:
        job_id = unquote_to_bytes(escaped).decode()
    except UnicodeDecodeError:
        raise InvalidArgument(JOB_ID, "is not UTF-8") from None
    check_text(JOB_ID, job_id, services.limits.id_characters)
    return job_id
