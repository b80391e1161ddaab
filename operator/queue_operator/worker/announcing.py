"""What a worker says that it can run."""

from collections.abc import Iterable

from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.handlers import HandlerSpec


def handler_types(specs: Iterable[HandlerSpec]) -> list[wire.HandlerType]:
    """With what their registrations ask for."""
    return [_handler_type(spec) for spec in specs]


def _handler_type(spec: HandlerSpec) -> wire.HandlerType:
    announced = wire.HandlerType(
        type=spec.type, concurrency=spec.concurrency or 0, max_attempts=spec.max_attempts or 0
    )
    if spec.timeout_s is not None:
        announced.timeout.FromNanoseconds(round(spec.timeout_s * 1e9))
    return announced
