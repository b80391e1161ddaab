"""Payloads read into what a handler takes, and what it returns written as bytes."""

import inspect
import json
from collections.abc import Callable, Set
from typing import Any, Final, Never, NoReturn

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import to_jsonable_python

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.validation import check_json_depth
from queue_operator.worker.content import JSON, OCTETS, kind_of
from queue_operator.worker.errors import (
    INVALID_PAYLOAD,
    INVALID_RESULT,
    RESULT_NOT_STORABLE,
    InvalidHandler,
    PermanentError,
)

UNTYPED: Final = (inspect.Parameter.empty, Any, object)

_FAULTS_TOLD: Final = 10

PayloadReader = Callable[[bytes], object]
ResultWriter = Callable[[object], tuple[bytes, str]]


def payload_reader(annotation: Any) -> PayloadReader:
    """Raises InvalidHandler for an annotation that pydantic cannot validate."""
    if annotation is bytes:
        return bytes
    if annotation in UNTYPED:
        return _read_json
    adapter = _adapter("payload", annotation)

    def read(payload: bytes) -> object:
        try:
            return adapter.validate_json(payload or b"{}")
        except ValidationError as error:
            raise _invalid_payload(_faults(error, "payload")) from None

    return read


def result_writer(annotation: Any) -> ResultWriter:
    """Raises InvalidHandler for an annotation that pydantic cannot validate."""
    if annotation in (*UNTYPED, Never, NoReturn):
        return write_value
    adapter = _adapter("return", annotation)

    def write(value: object) -> tuple[bytes, str]:
        checked = _checked(adapter, annotation, value)
        if checked is None or _is_octets(checked):
            return write_value(checked)
        return _storable(value, lambda: adapter.dump_json(checked))

    return write


def encode_result(
    value: object, max_bytes: int, write: ResultWriter | None = None
) -> tuple[bytes, str]:
    """The bytes to store and their content type; of None, nothing and "".

    Raises PermanentError with code INVALID_RESULT or RESULT_NOT_STORABLE: what the handler
    returned cannot be stored, and running it again would not change that.
    """
    body, content_type = (write or write_value)(value)
    if len(body) > max_bytes:
        raise PermanentError(
            f"the result has {len(body)} bytes; the limit is {max_bytes}: "
            "store it elsewhere and return a reference",
            code=RESULT_NOT_STORABLE,
        )
    return body, content_type


def decode_result(body: bytes, content_type: str) -> object:
    """What a handler returned, as whoever reads the job would see it."""
    if content_type == JSON:
        return json.loads(body)
    return body if content_type else None


def write_value(value: object) -> tuple[bytes, str]:
    """For handlers that do not say what they return."""
    if value is None:
        return b"", ""
    if _is_octets(value):
        return bytes(value), OCTETS  # type: ignore[call-overload]
    return _storable(value, lambda: _document(value).encode())


def _adapter(field: str, annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidHandler(field, f"pydantic cannot validate {annotation!r}: {reason}") from None


def _checked(adapter: TypeAdapter[Any], annotation: Any, value: object) -> object:
    # Pydantic would take text for bytes.
    if annotation is bytes and not _is_octets(value):
        raise _invalid_result(annotation, f"it is {kind_of(value)}")
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise _invalid_result(annotation, _faults(error, "result")) from None


def _is_octets(value: object) -> bool:
    return isinstance(value, bytes | bytearray | memoryview)


def _faults(error: ValidationError, whole: str) -> str:
    """One clause per field; without the values, which may be private."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    clauses = [
        f"{'.'.join(str(part) for part in fault['loc']) or whole}: {fault['msg']}"
        for fault in faults[:_FAULTS_TOLD]
    ]
    if len(faults) > _FAULTS_TOLD:
        clauses.append(f"and {len(faults) - _FAULTS_TOLD} more")
    return "; ".join(clauses)


def _read_json(payload: bytes) -> object:
    if not payload:
        return None
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise _invalid_payload(f"is not JSON: {error}") from None


def _invalid_payload(reason: str) -> PermanentError:
    return PermanentError(f"the payload does not fit the handler: {reason}", code=INVALID_PAYLOAD)


def _invalid_result(annotation: Any, reason: str) -> PermanentError:
    return PermanentError(
        f"the result is not the {inspect.formatannotation(annotation)} "
        f"that the handler's annotation promises: {reason}",
        code=INVALID_RESULT,
    )


def _storable(value: object, write: Callable[[], bytes]) -> tuple[bytes, str]:
    try:
        document = write()
        check_json_depth("result", document)
        return document, JSON
    except (TypeError, ValueError, RecursionError, InvalidArgument) as error:
        raise PermanentError(
            f"the result, {kind_of(value)}, is not JSON that can be stored: {error}",
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
        default=_jsonable,
    )


def _jsonable(value: object) -> object:
    if isinstance(value, Set):
        raise TypeError(f"{kind_of(value)} has no order: return a sorted list")
    return to_jsonable_python(value)
