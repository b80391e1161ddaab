"""Every error has its gRPC status."""

import grpc
import pytest

from queue_operator.domain import errors
from queue_operator.wire.status import status_code

CODES = [
    (errors.InvalidArgument("f", "r"), grpc.StatusCode.INVALID_ARGUMENT),
    (errors.PayloadTooLarge("f", 2, 1), grpc.StatusCode.INVALID_ARGUMENT),
    (errors.DuplicateJob(("j",)), grpc.StatusCode.ALREADY_EXISTS),
    (errors.KeyConflict("k", "j"), grpc.StatusCode.ALREADY_EXISTS),
    (errors.JobNotFound("j", "n"), grpc.StatusCode.NOT_FOUND),
    (errors.MessageNotFound("m", "n"), grpc.StatusCode.NOT_FOUND),
    (errors.PositionExpired(), grpc.StatusCode.OUT_OF_RANGE),
    (errors.InvalidTransition("j", "s", "e"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.StaleLease("j"), grpc.StatusCode.ABORTED),
    (errors.Unauthenticated("u"), grpc.StatusCode.UNAUTHENTICATED),
    (errors.Forbidden("f"), grpc.StatusCode.PERMISSION_DENIED),
    (errors.QuotaExceeded("l", 1, 1, 1.0), grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable("u"), grpc.StatusCode.UNAVAILABLE),
    (errors.AccessRefused("a"), grpc.StatusCode.UNAVAILABLE),
    (errors.SchemaMismatch("s"), grpc.StatusCode.UNAVAILABLE),
    (errors.MissingPrivilege("m"), grpc.StatusCode.UNAVAILABLE),
    (errors.QueueError("q"), grpc.StatusCode.INTERNAL),
]


@pytest.mark.parametrize(("error", "code"), CODES)
def test_each_error_maps_to_its_code(error: errors.QueueError, code: grpc.StatusCode) -> None:
    assert status_code(error) is code


def test_no_error_is_left_out() -> None:
    def below(kind: type[errors.QueueError]) -> set[type[errors.QueueError]]:
        own = {k for k in kind.__subclasses__() if k.__module__ == errors.__name__}
        return own.union(*(below(k) for k in own))

    assert below(errors.QueueError) <= {type(error) for error, _ in CODES}
