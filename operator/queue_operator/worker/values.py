"""Payloads read into what a handler takes, and what it returns or submits written as bytes."""

import inspect
import json
from collections.abc import Callable
from typing import Any, Final, Never, NoReturn

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.texts import kind_of
from queue_operator.domain.validation import check_json_depth
from queue_operator.worker.content import JSON, OCTETS
from queue_operator.worker.documents import Writer, document_of, faults
from queue_operator.worker.errors import (
    INVALID_PAYLOAD,
    INVALID_RESULT,
    RESULT_NOT_STORABLE,
    InvalidHandler,
    PermanentError,
)
from queue_operator.worker.exactness import inexact

UNTYPED: Final = (inspect.Parameter.empty, Any, object)

PayloadReader = Callable[[bytes], object]
ResultWriter = Callable[[object], tuple[bytes, str]]

_UNWRITABLE: Final = (TypeError, ValueError, RecursionError, InvalidArgument)


def payload_reader(annotation: Any) -> PayloadReader:
    """Raises InvalidHandler for an annotation that pydantic cannot validate."""
    if annotation is bytes:
        return bytes
    if annotation in UNTYPED:
        return _read_json
    adapter = _adapter("payload", annotation)

    def read(payload: bytes) -> object:
        try:
            value = adapter.validate_json(payload or b"{}")
        except ValidationError as error:
            raise _invalid_payload(faults(error, "payload")) from None
        if (place := inexact(adapter, value, payload)) is not None:
            raise _invalid_payload(
                f"{place}: has more digits than a number of JSON keeps; submit it as text"
            )
        return value

    return read


def result_writer(annotation: Any) -> ResultWriter:
    """Raises InvalidHandler for an annotation that pydantic cannot validate."""
    if annotation in (*UNTYPED, Never, NoReturn):
        return write_result
    adapter = _adapter("return", annotation)
    writer = Writer(adapter)

    def write(value: object) -> tuple[bytes, str]:
        checked = _checked(adapter, annotation, value)
        if checked is None or _is_octets(checked):
            return write_result(checked)
        return _result(value, lambda: writer.document(checked))

    return write


def encode_result(
    value: object, max_bytes: int, write: ResultWriter | None = None
) -> tuple[bytes, str]:
    """The bytes to store and their content type; of None, the JSON null.

    Raises PermanentError with code INVALID_RESULT or RESULT_NOT_STORABLE: what the handler
    returned cannot be stored, and running it again would not change that.
    """
    body, content_type = (write or write_result)(value)
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


def write_result(value: object) -> tuple[bytes, str]:
    """For handlers that do not say what they return."""
    if _is_octets(value):
        return bytes(value), OCTETS  # type: ignore[call-overload]
    return _result(value, lambda: document_of(value))


def write_payload(value: object) -> tuple[bytes, str]:
    """Bytes as they are, of a model what the same model reads, of None nothing.

    Raises InvalidArgument for what cannot be written.
    """
    if value is None:
        return b"", ""
    if _is_octets(value):
        return bytes(value), OCTETS  # type: ignore[call-overload]
    return write_document("payload", value)


def write_document(field: str, value: object) -> tuple[bytes, str]:
    """As JSON, also None and texts. Raises InvalidArgument for what cannot be written."""
    try:
        return _checked_depth(document_of(value, readable=True)), JSON
    except _UNWRITABLE as error:
        raise InvalidArgument(
            field, f"{kind_of(value)} is not JSON that can be stored: {_reason(error)}"
        ) from None


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
        raise _invalid_result(annotation, faults(error, "result")) from None


def _is_octets(value: object) -> bool:
    return isinstance(value, bytes | bytearray | memoryview)


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


def _result(value: object, write: Callable[[], bytes]) -> tuple[bytes, str]:
    try:
        return _checked_depth(write()), JSON
    except _UNWRITABLE as error:
        raise PermanentError(
            f"the result, {kind_of(value)}, is not JSON that can be stored: {_reason(error)}",
            code=RESULT_NOT_STORABLE,
        ) from None


def _checked_depth(document: bytes) -> bytes:
    check_json_depth("value", document)
    return document


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, InvalidArgument) else str(error)
