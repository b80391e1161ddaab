"""Which function handles which type, and how payloads and results become values."""

import inspect
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import to_jsonable_python

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    MAX_ATTEMPTS_BOUND,
    MAX_DURATION_S,
    check_json_depth,
    check_text,
)
from queue_operator.worker.context import JobContext
from queue_operator.worker.errors import (
    INVALID_PAYLOAD,
    RESULT_NOT_STORABLE,
    InvalidHandler,
    PermanentError,
)

JSON = "application/json"
OCTETS = "application/octet-stream"

PayloadReader = Callable[[bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """A registered handler. None means that nothing was set for the type."""

    type: str
    function: Callable[..., Any]
    read_payload: PayloadReader | None
    is_async: bool
    timeout_s: float | None = None
    max_attempts: int | None = None
    concurrency: int | None = None

    def arguments(self, context: JobContext) -> tuple[object, ...]:
        """Raises PermanentError when the payload is not what the handler takes."""
        if self.read_payload is None:
            return (context,)
        return (context, self.read_payload(context.payload))


class RegistrationStatus(StrEnum):
    """`RegistrationResult.status` of the handler registration model."""

    REGISTERED = "REGISTERED"
    REPLACED = "REPLACED"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """`previous` says that the type had a handler. `reason` is set when INVALID."""

    type: str
    status: RegistrationStatus
    previous: bool
    reason: str = ""


class Registry:
    """The handlers of one worker, by type."""

    def __init__(self) -> None:
        self._specs: dict[str, HandlerSpec] = {}

    def add(self, spec: HandlerSpec) -> bool:
        """True when the type had a handler before."""
        previous = spec.type in self._specs
        self._specs[spec.type] = spec
        return previous

    def get(self, type_: str) -> HandlerSpec | None:
        return self._specs.get(type_)

    def specs(self) -> tuple[HandlerSpec, ...]:
        return tuple(self._specs.values())


def build_spec(
    type_: str,
    function: Callable[..., Any],
    *,
    timeout: float | timedelta | None,
    max_attempts: int | None,
    concurrency: int | None,
) -> HandlerSpec:
    """Raises InvalidHandler naming the argument that is wrong."""
    try:
        check_text("type", type_, DEFAULT_LIMITS.id_characters)
    except InvalidArgument as error:
        raise InvalidHandler(error.field, error.reason) from None
    timeout_s = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if timeout_s is not None and not (_is_number(timeout_s) and 0 < timeout_s <= MAX_DURATION_S):
        raise InvalidHandler(
            "timeout",
            f"must be seconds or a timedelta, above 0 and at most 100 years, not {timeout!r}",
        )
    _check_count("max_attempts", max_attempts, MAX_ATTEMPTS_BOUND)
    _check_count("concurrency", concurrency, 2**31)
    if not callable(function):
        raise InvalidHandler("handler", f"must be a function, not {function!r}")
    return HandlerSpec(
        type=type_,
        function=function,
        read_payload=_payload_reader(function),
        is_async=_is_async(function),
        timeout_s=timeout_s,
        max_attempts=max_attempts,
        concurrency=concurrency,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_count(field: str, value: int | None, bound: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= bound:
        raise InvalidHandler(field, f"must be a whole number from 1 to {bound}, not {value!r}")


def _is_async(function: Callable[..., Any]) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004  (the method itself is wanted)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidHandler("handler", "must return its result, not yield")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _payload_reader(function: Callable[..., Any]) -> PayloadReader | None:
    parameter = _payload_parameter(function)
    if parameter is None:
        return None
    annotation = _resolve(function, parameter)
    if annotation is bytes:
        return bytes
    if annotation in (inspect.Parameter.empty, Any, object):
        return _read_json
    return _model_reader(annotation)


def _payload_parameter(function: Callable[..., Any]) -> inspect.Parameter | None:
    """The second parameter, None for a handler that takes the context only."""
    kinds = inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())
    positional = [
        p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    required = [
        p.name
        for p in parameters
        if p.default is kinds.empty and p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    ]
    if not positional or len(required) > 2 or not set(required) <= {p.name for p in positional[:2]}:
        raise InvalidHandler(
            "handler", f"must take (ctx) or (ctx, payload), not {inspect.signature(function)}"
        )
    return positional[1] if len(positional) > 1 else None


def _resolve(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    # Only this annotation is evaluated: the one of `ctx` may name a type that its module
    # imports for the type checker alone.
    lone = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(lone, globalns=names)[parameter.name]
    except (NameError, TypeError, SyntaxError) as error:
        raise InvalidHandler(
            parameter.name, f"its annotation {parameter.annotation!r} cannot be resolved: {error}"
        ) from None


def _model_reader(annotation: Any) -> PayloadReader:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise InvalidHandler(
            "payload", f"pydantic cannot validate {annotation!r}: {error}"
        ) from None

    def read(payload: bytes) -> object:
        try:
            return adapter.validate_json(payload or b"{}")
        except ValidationError as error:
            raise _invalid_payload(_faults(error)) from None

    return read


def _faults(error: ValidationError) -> str:
    """One clause per field; without the values, which may be private."""
    return "; ".join(
        f"{'.'.join(str(part) for part in fault['loc']) or 'payload'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    )


def _read_json(payload: bytes) -> object:
    if not payload:
        return None
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise _invalid_payload(f"is not JSON: {error}") from None


def _invalid_payload(reason: str) -> PermanentError:
    return PermanentError(f"the payload does not fit the handler: {reason}", code=INVALID_PAYLOAD)


def encode_result(value: object, max_bytes: int) -> tuple[bytes, str]:
    """The bytes to store and their content type; of None, nothing and "".

    Raises PermanentError with code RESULT_NOT_STORABLE: what the handler returned cannot
    be stored, and running it again would not change that.
    """
    body, content_type = _encode(value)
    if len(body) > max_bytes:
        raise PermanentError(
            f"the result has {len(body)} bytes; the limit is {max_bytes}: "
            "store it elsewhere and return a reference",
            code=RESULT_NOT_STORABLE,
        )
    return body, content_type


def _encode(value: object) -> tuple[bytes, str]:
    if value is None:
        return b"", ""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), OCTETS
    try:
        document = _document(value).encode()
        check_json_depth("result", document)
        return document, JSON
    except (TypeError, ValueError, RecursionError, InvalidArgument) as error:
        raise PermanentError(
            f"the result, a {type(value).__name__}, is not JSON that can be stored: {error}",
            code=RESULT_NOT_STORABLE,
        ) from None


def _document(value: object) -> str:
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return json.dumps(
        value,
        allow_nan=False,
        ensure_ascii=False,
        separators=(",", ":"),
        default=to_jsonable_python,
    )
