"""Errors of the domain as gRPC statuses: the error table of every gRPC door."""

from typing import Final

import grpc

from queue_operator.domain.errors import (
    DuplicateJob,
    Forbidden,
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    QueueError,
    QuotaExceeded,
    StaleLease,
    Unauthenticated,
    Unavailable,
)

ERROR_CODE_KEY: Final = "queueoperator-error-code"
"""Trailing metadata that carries the stable code of a QueueError."""

_CODES: Final[dict[type[QueueError], grpc.StatusCode]] = {
    QueueError: grpc.StatusCode.INTERNAL,
    InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    DuplicateJob: grpc.StatusCode.ALREADY_EXISTS,
    KeyConflict: grpc.StatusCode.ALREADY_EXISTS,
    JobNotFound: grpc.StatusCode.NOT_FOUND,
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
