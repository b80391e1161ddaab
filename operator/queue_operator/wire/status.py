"""Errors of the domain as gRPC statuses and back: the error table of every gRPC door."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import grpc
from google.protobuf.message import DecodeError

from queue_operator.domain.errors import (
    AccessRefused,
    DuplicateJob,
    Fault,
    Forbidden,
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    MessageNotFound,
    MissingPrivilege,
    PayloadTooLarge,
    PositionExpired,
    QueueError,
    QuotaExceeded,
    SchemaMismatch,
    StaleLease,
    Unauthenticated,
    Unavailable,
    with_findings,
)
from queue_operator.domain.units import told, with_unit, without_unit
from queue_operator.wire.queue_convert import duration_to_wire, seconds_from_wire
from queue_operator.wire.v1 import queue_pb2 as pb

ERROR_CODE_KEY: Final = "queueoperator-error-code"
"""Trailing metadata that carries the stable code of a QueueError."""
ERROR_KEY: Final = "queueoperator-error-bin"
"""Trailing metadata that carries a whole `queueoperator.v1.Error`."""

Metadata = tuple[tuple[str, str | bytes], ...]

_TEXT_BYTES: Final = 1024
_IDS_BYTES: Final = 2048
_FINDINGS_BYTES: Final = 1024
"""HTTP/2 peers take some 8 KiB of trailing metadata, unless told otherwise."""

_CODES: Final[dict[type[QueueError], grpc.StatusCode]] = {
    QueueError: grpc.StatusCode.INTERNAL,
    InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    DuplicateJob: grpc.StatusCode.ALREADY_EXISTS,
    KeyConflict: grpc.StatusCode.ALREADY_EXISTS,
    JobNotFound: grpc.StatusCode.NOT_FOUND,
    PositionExpired: grpc.StatusCode.OUT_OF_RANGE,
    MessageNotFound: grpc.StatusCode.NOT_FOUND,
    InvalidTransition: grpc.StatusCode.FAILED_PRECONDITION,
    StaleLease: grpc.StatusCode.ABORTED,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    QuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
}


def status_code(error: QueueError) -> grpc.StatusCode:
    """The code of the nearest class that has one; a subclass inherits its parent's."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def trailers(error: QueueError) -> Metadata:
    """The trailing metadata of a call that failed with `error`."""
    return (
        (ERROR_CODE_KEY, error.code),
        (ERROR_KEY, error_to_wire(error).SerializeToString()),
    )


def status_text(error: QueueError) -> str:
    """The message, cut to what fits into a status."""
    return _cut(told(error, without_unit))


def _cut(text: str) -> str:
    return text.encode(errors="replace")[:_TEXT_BYTES].decode(errors="ignore")


# As messages


def _retry_after_s(of: pb.Error) -> float | None:
    given = of.HasField("retry_after")
    return seconds_from_wire("retry_after", of.retry_after) if given else None


_BUILDERS: Final[Mapping[type[QueueError], Callable[[pb.Error], QueueError]]] = {
    PayloadTooLarge: lambda of: PayloadTooLarge(of.field, of.size, of.limit),
    DuplicateJob: lambda of: DuplicateJob(tuple(of.job_ids), tuple(of.indexes)),
    KeyConflict: lambda of: KeyConflict(
        of.key, of.job_id, of.field, tuple(of.indexes), tuple(of.job_ids)
    ),
    InvalidArgument: lambda of: InvalidArgument(with_unit(of.field), of.reason),
    JobNotFound: lambda of: JobNotFound(of.job_id, of.namespace),
    PositionExpired: lambda of: PositionExpired(of.message),
    MessageNotFound: lambda of: MessageNotFound(of.key, of.namespace),
    InvalidTransition: lambda of: InvalidTransition(of.job_id, of.state, of.event),
    StaleLease: lambda of: StaleLease(of.job_id),
    QuotaExceeded: lambda of: QuotaExceeded(
        of.quota, of.current, of.maximum, _retry_after_s(of), of.size
    ),
    Unauthenticated: lambda of: Unauthenticated(of.message),
    Forbidden: lambda of: Forbidden(of.message),
    AccessRefused: lambda of: AccessRefused(of.message),
    SchemaMismatch: lambda of: SchemaMismatch(of.message),
    MissingPrivilege: lambda of: MissingPrivilege(of.message),
    Unavailable: lambda of: Unavailable(of.message),
    QueueError: lambda of: QueueError(of.message),
}
_KINDS: Final = {kind.__name__: kind for kind in _BUILDERS}


def error_to_wire(error: QueueError) -> pb.Error:
    """The nearest kind that both sides know, with what it needs to be made again."""
    kind = next(kind for kind in type(error).__mro__ if kind in _BUILDERS)
    message = pb.Error(kind=kind.__name__, code=error.code, message=status_text(error))
    match error:
        case InvalidArgument():
            _argument_to_wire(error, message)
        case JobNotFound():
            message.job_id, message.namespace = error.job_id, error.namespace
        case MessageNotFound():
            message.key, message.namespace = error.message_id, error.namespace
        case InvalidTransition():
            message.job_id, message.state = error.job_id, error.state
            message.event = error.event
        case StaleLease():
            message.job_id = getattr(error, "job_id", "")
        case QuotaExceeded():
            message.quota, message.current = error.limit, error.current
            message.maximum, message.size = error.maximum, error.jobs
            if error.retry_after_s is not None:
                message.retry_after.CopyFrom(duration_to_wire(error.retry_after_s))
    _findings_to_wire(error, message)
    return message


def _findings_to_wire(error: QueueError, message: pb.Error) -> None:
    """As many as fit beside the rest."""
    message.found, used = len(error.findings), 0
    for fault in error.findings:
        finding = pb.Finding(
            field=_cut(without_unit(fault.field)),
            code=fault.code,
            message=_cut(fault.message),
            job_id=fault.job_id.encode(errors="replace").decode(),
        )
        used += finding.ByteSize()
        if used > _FINDINGS_BYTES:
            break
        message.findings.append(finding)


def _argument_to_wire(error: InvalidArgument, message: pb.Error) -> None:
    message.field, message.reason = _cut(without_unit(error.field)), _cut(error.reason)
    match error:
        case PayloadTooLarge():
            message.size, message.limit = error.size, error.limit
        case DuplicateJob():
            message.indexes.extend(error.indexes)
            message.job_ids.extend(_few(error.job_ids))
            message.ClearField("reason")
        case KeyConflict():
            message.key, message.job_id = error.key, error.job_id
            if error.indexes:
                message.indexes.extend(error.indexes)
                message.job_ids.extend(_few(error.job_ids))
            message.ClearField("reason")


def _few(job_ids: Iterable[str]) -> list[str]:
    """All of them or none: who sent the batch knows which ids its positions have."""
    ids = list(job_ids)
    return ids if sum(len(job_id.encode()) for job_id in ids) <= _IDS_BYTES else []


def error_from_wire(message: pb.Error) -> QueueError:
    """The exception of the same class; one of a newer server is a plain QueueError."""
    error = _BUILDERS[_KINDS.get(message.kind, QueueError)](message)
    if not message.found:
        return error
    findings = [
        Fault(with_unit(one.field), one.code, one.message, one.job_id) for one in message.findings
    ]
    return with_findings(error, findings, message.found)


# At the client

_CLASSES: Final[Mapping[grpc.StatusCode, Callable[[str], QueueError]]] = {
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Forbidden,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Unavailable,
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.INVALID_ARGUMENT: lambda text: InvalidArgument("message", text),
}
_SIZES: Final = re.compile(r"larger than max \((\d+) vs\.? (\d+)\)")


def error_from_status(
    code: grpc.StatusCode, text: str, trailing: Iterable[tuple[str, str | bytes]]
) -> QueueError:
    """What a failed call means: the error of the server, else what gRPC itself found."""
    for key, value in trailing:
        if key == ERROR_KEY and isinstance(value, bytes):
            try:
                return error_from_wire(pb.Error.FromString(value))
            except DecodeError:
                break
    if sizes := _SIZES.search(text):
        return PayloadTooLarge("message", int(sizes[1]), int(sizes[2]))
    return _CLASSES.get(code, QueueError)(explained(code, text))


def explained(code: grpc.StatusCode, text: str) -> str:
    """A status of gRPC itself in words that say what to do, where that is known."""
    said = f"{code.name}: {text}" if text else code.name
    return f"{said}; {NO_GRPC}" if _NO_HTTP_2 in text else said


_NO_HTTP_2: Final = "Expected SETTINGS frame"
NO_GRPC: Final = (
    "what answers there is no gRPC: if the address is that of REST (port 8080 unless set "
    "otherwise), give the one of gRPC (port 50051)"
)
