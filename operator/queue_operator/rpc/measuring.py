"""Counts each call when it has ended, a stream as one, however many messages it carried."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from queue_operator.metrics.doors import UNMATCHED, GrpcFigures
from queue_operator.rpc.door import Context
from queue_operator.rpc.gate import Handler
from queue_operator.wire.v1 import queue_pb2, worker_pb2

_NAMES: Final = {code.value[0]: code.name.lower() for code in grpc.StatusCode}
_CANCELLED: Final = _NAMES[grpc.StatusCode.CANCELLED.value[0]]
_UNKNOWN: Final = _NAMES[grpc.StatusCode.UNKNOWN.value[0]]
_UNIMPLEMENTED: Final = _NAMES[grpc.StatusCode.UNIMPLEMENTED.value[0]]
_DEADLINE: Final = _NAMES[grpc.StatusCode.DEADLINE_EXCEEDED.value[0]]


_METHODS: Final = {
    f"/{service.full_name}/{method.name}": (
        f"{service.name}/{method.name}",
        not (method.client_streaming or method.server_streaming),
    )
    for file in (queue_pb2, worker_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""By its full name what a method is called, and whether it is unary."""


class Measuring(grpc.aio.ServerInterceptor):
    """The outermost one."""

    def __init__(
        self, figures: GrpcFigures, monotonic: Callable[[], float] = time.perf_counter
    ) -> None:
        self._figures = figures
        self._monotonic = monotonic

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        started_s = self._monotonic()
        method, is_unary = _METHODS.get(handler_call_details.method, (UNMATCHED, False))

        def ended(code: str) -> None:
            took_s = self._monotonic() - started_s if is_unary else None
            self._figures.ended(method, code, took_s)

        try:
            handler = await continuation(handler_call_details)
        except BaseException:
            ended(_CANCELLED)
            raise
        if handler is None:
            ended(_UNIMPLEMENTED)
            return None
        return _telling(handler, ended)


def _telling(handler: Any, ended: Callable[[str], None]) -> Handler:
    """The same handler, which tells the code with which its call ended. All of ours are coroutines:
    those of streams write to the context.
    """
    make, answer = _kind(handler)

    async def told(request: Any, context: Context) -> Any:
        code = _UNKNOWN
        try:
            found = await answer(request, context)
            code = _code(context)
            return found
        except asyncio.CancelledError:
            left_s = context.time_remaining()
            code = _CANCELLED if left_s is None or left_s > 0 else _DEADLINE
            raise
        except grpc.aio.AbortError:
            code = _code(context)
            raise
        finally:
            ended(code)

    return make(  # type: ignore[no-any-return]
        told,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _kind(handler: Any) -> tuple[Callable[..., Any], Callable[[Any, Context], Awaitable[Any]]]:
    if handler.stream_stream is not None:
        return grpc.stream_stream_rpc_method_handler, handler.stream_stream
    if handler.unary_stream is not None:
        return grpc.unary_stream_rpc_method_handler, handler.unary_stream
    if handler.stream_unary is not None:
        return grpc.stream_unary_rpc_method_handler, handler.stream_unary
    return grpc.unary_unary_rpc_method_handler, handler.unary_unary


def _code(context: Context) -> str:
    """Without one, none was set, and all is well."""
    code: Any = context.code()
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code or 0
    return _NAMES.get(number, _UNKNOWN)
