"""The OpenAPI document, made of the operations and of the models that they take and give."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from queue_operator import __version__
from queue_operator.api import examples, schemas
from queue_operator.api.operation import ANYBODY, Operation
from queue_operator.api.schemas.base import TEXT_PATTERN
from queue_operator.domain.limits import DEFAULT_LIMITS

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_REFERENCE: Final = "#/components/schemas/{model}"
_ALWAYS: Final = frozenset({400, 401, 403, 500, 503})
_WITH_BODY: Final = frozenset({408, 413, 415})
_QUOTAS: Final = frozenset({429})
_ABOUT: Final = """\
Submit jobs, look at them, cancel and retry them. Every operation takes the `namespace` whose jobs
it is about, and needs a bearer token that may do what it does there.
"""
_DESCRIPTIONS: Final = {
    200: "Done.",
    201: "Stored.",
    204: "Deleted.",
}
_JOB_ID: Final[dict[str, Any]] = {
    "name": "job_id",
    "in": "path",
    "required": True,
    "description": "A slash in an id is written `%2F`.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": DEFAULT_LIMITS.id_characters,
        "pattern": TEXT_PATTERN,
    },
}

_MESSAGE_ID: Final[dict[str, Any]] = {
    **_JOB_ID,
    "name": "message_id",
    "description": "That of a message, the `webhook-id` that its receiver sees.",
}

LAST_EVENT_ID: Final[dict[str, Any]] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The `id` of the last event that came: what came since is told first.",
    "schema": {"type": "string", "format": "cursor"},
}


def document(operations: Sequence[Operation[Any]]) -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Queue Operator", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [{"name": name} for name in dict.fromkeys(one.subject for one in operations)],
        "paths": paths,
        "components": {
            "schemas": _schemas(operations),
            "responses": {"Error": _error()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation[Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.subject],
        "summary": operation.summary,
        "description": f"{inspect.getdoc(operation.run)}\n\n{_need(operation)}",
        "parameters": list(_parameters(operation)),
        "responses": {
            str(status): _answer(operation, status) for status in sorted(operation.answers)
        }
        | {
            str(status): {"$ref": "#/components/responses/Error"}
            for status in sorted(error_statuses(operation))
        },
    }
    if operation.body is not None:
        content = {
            "schema": _reference(operation.body.model),
            "example": examples.REQUESTS[operation.id],
        }
        told["requestBody"] = {"required": operation.body.required, "content": {JSON: content}}
    return told


def _need(operation: Operation[Any]) -> str:
    if operation.verb == ANYBODY:
        return "Needs a token, and no right."
    return f"Needs the verb `{operation.verb}` on `queuejobs`."


def error_statuses(operation: Operation[Any]) -> frozenset[int]:
    """Of the errors that the operation may answer with."""
    statuses = _ALWAYS | operation.errors
    if operation.body is not None:
        statuses |= _WITH_BODY
    if operation.verb == "create":
        statuses |= _QUOTAS
    return statuses


def _answer(operation: Operation[Any], status: int) -> dict[str, Any]:
    told: dict[str, Any] = {"description": _DESCRIPTIONS[status]}
    model = operation.answers[status]
    if operation.streams and model is not None:
        schema = {"type": "string", "description": f"Each `data` is a `{model.__name__}`."}
        shown = examples.STREAMS[operation.id]
        told["content"] = {EVENTS: {"schema": schema, "example": shown}}
    elif model is not None:
        example = examples.ANSWERS[operation.id][status]
        told["content"] = {JSON: {"schema": _reference(model), "example": example}}
    return told


def _parameters(operation: Operation[Any]) -> Iterator[dict[str, Any]]:
    if "{job_id}" in operation.path:
        yield {**_JOB_ID, "example": examples.JOB_IDS.get(operation.id, examples.USUAL_JOB_ID)}
    if "{message_id}" in operation.path:
        yield {**_MESSAGE_ID, "example": examples.MESSAGE_ID}
    if operation.streams:
        yield LAST_EVENT_ID
    schema = operation.query.model_json_schema(ref_template=_REFERENCE)
    for name, found in schema["properties"].items():
        given = _without_null(found)
        description = given.pop("description", None)
        given.pop("title", None)
        parameter = {"name": name, "in": "query", "required": False, "schema": given}
        if description:
            parameter["description"] = description
        yield parameter


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out where a field would be null."""
    options = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    plain = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    if schema.get("default") is not None:
        plain["default"] = schema["default"]
    if len(options) == 1:
        return {**options[0], **plain}
    return {**plain, "anyOf": options} if options else plain


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def _error() -> dict[str, Any]:
    content = {"schema": _reference(schemas.APIError), "example": examples.ERROR}
    return {"description": "What went wrong.", "content": {JSON: content}}


def _schemas(operations: Sequence[Operation[Any]]) -> dict[str, Any]:
    """Of all models, and of what is in them."""
    models: dict[type[BaseModel], Any] = {schemas.APIError: "serialization"}
    for operation in operations:
        models |= {one: "serialization" for one in operation.answers.values() if one is not None}
        if operation.body is not None:
            models[operation.body.model] = "validation"
    _, extra = models_json_schema([*models.items()], ref_template=_REFERENCE)
    found: dict[str, Any] = extra["$defs"]
    for operation in operations:
        parameters = operation.query.model_json_schema(ref_template=_REFERENCE)
        for name, schema in parameters.get("$defs", {}).items():
            found.setdefault(name, schema)
    return dict(sorted(found.items()))
