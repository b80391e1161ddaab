"""From a gRPC call to a session: credentials, hello, stream, and errors as statuses."""

import asyncio
import logging
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from queue_operator.auth.protocol import Authenticator, Identity
from queue_operator.domain.errors import (
    InvalidArgument,
    PayloadTooLarge,
    QueueError,
    Unauthenticated,
)
from queue_operator.domain.lease import heartbeat_interval_s
from queue_operator.queue.protocol import Queue, Stream
from queue_operator.rpc.hello import spec_of
from queue_operator.rpc.session import Session, SessionLimits
from queue_operator.settings import Settings
from queue_operator.wire import convert
from queue_operator.wire.status import ERROR_CODE_KEY, status_code
from queue_operator.wire.v1 import worker_pb2 as pb

logger = logging.getLogger(__name__)

SERVICE: Final = pb.DESCRIPTOR.services_by_name["WorkerPlane"].full_name
HELLO_TIMEOUT_S: Final = 10.0


class Unreadable:
    """Bytes that are no WorkerMessage; kept apart so that the session can say so."""

    def __init__(self, error: InvalidArgument) -> None:
        self.error = error


class WorkerCall:
    """`session.Call` on a gRPC context."""

    def __init__(self, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        self._context = context

    async def read(self) -> pb.WorkerMessage | None:
        message = await self._context.read()
        if isinstance(message, Unreadable):
            raise message.error
        return message if isinstance(message, pb.WorkerMessage) else None

    async def write(self, message: pb.ServerMessage) -> None:
        await self._context.write(message)


class WorkerPlaneServicer:
    """Serves `queueoperator.v1.WorkerPlane`."""

    def __init__(self, queue: Queue, authenticator: Authenticator, settings: Settings) -> None:
        self._queue = queue
        self._authenticator = authenticator
        self._ttl_s = settings.queue.lease_ttl_s
        self._message_bytes = settings.grpc.message_bytes
        limits = settings.limits
        self._hello_limits = limits.to_limits()
        self._limits = SessionLimits(
            wire=convert.WireLimits(
                result_bytes=limits.result_bytes,
                error_message_bytes=limits.error_message_bytes,
                stack_trace_bytes=limits.stack_trace_bytes,
                progress_message_bytes=limits.progress_message_bytes,
                id_characters=limits.id_characters,
            ),
            message_bytes=settings.grpc.message_bytes,
        )
        self._sessions: set[Session] = set()
        self._leaving = False

    def handler(self) -> grpc.GenericRpcHandler:
        """Our own reader of messages: gRPC's would hide what is wrong with a bad one."""
        method = grpc.stream_stream_rpc_method_handler(
            self.session,
            request_deserializer=self._parse,
            response_serializer=pb.ServerMessage.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Session": method})

    def say_goodbye(self) -> None:
        """Every worker is sent elsewhere, and new ones are too."""
        self._leaving = True
        for session in self._sessions:
            session.say_goodbye("the server is shutting down", reconnect=True)

    async def session(
        self, requests: object, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> None:
        try:
            await self._serve(context)
        except QueueError as error:
            await context.abort(status_code(error), error.message, ((ERROR_CODE_KEY, error.code),))

    async def _serve(self, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        identity = await self._authenticator.authenticate(_bearer_token(context))
        call = WorkerCall(context)
        stream = await self._open(await self._hello(call), identity)
        session = Session(stream, call, self._limits)
        self._sessions.add(session)
        try:
            await call.write(pb.ServerMessage(welcome=self._welcome(stream)))
            if self._leaving:
                self.say_goodbye()
            await session.run()
        finally:
            self._sessions.discard(session)
            await stream.close()

    async def _hello(self, call: WorkerCall) -> pb.Hello:
        try:
            first = await asyncio.wait_for(call.read(), HELLO_TIMEOUT_S)
        except TimeoutError:
            first = None
        if first is None or first.WhichOneof("message") != "hello":
            raise InvalidArgument("hello", "the first message of a session must be a Hello")
        return first.hello

    async def _open(self, hello: pb.Hello, identity: Identity) -> Stream:
        try:
            spec = spec_of(hello, identity, self._hello_limits)
            held = convert.held_from_wire(hello.held, namespace=spec.namespace)
        except InvalidArgument as error:
            raise InvalidArgument(f"hello.{error.field}", error.reason) from None
        return await self._queue.open_stream(spec, held)

    def _welcome(self, stream: Stream) -> pb.Welcome:
        spec = stream.spec
        return pb.Welcome(
            session_id=spec.assignee_id,
            lease_ttl=convert.duration_to_wire(self._ttl_s),
            heartbeat_interval=convert.duration_to_wire(heartbeat_interval_s(self._ttl_s)),
            capacity=spec.capacity,
            worker_name=spec.worker_name,
            namespace=spec.namespace,
            max_result_bytes=self._limits.wire.result_bytes,
        )

    def _parse(self, data: bytes) -> pb.WorkerMessage | Unreadable:
        if len(data) > self._message_bytes:
            return Unreadable(PayloadTooLarge("message", len(data), self._message_bytes))
        try:
            return pb.WorkerMessage.FromString(data)
        except DecodeError:
            return Unreadable(
                InvalidArgument("message", f"is not a {pb.WorkerMessage.DESCRIPTOR.full_name}")
            )


def _bearer_token(context: "grpc.aio.ServicerContext[Any, Any]") -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            scheme, _, token = str(value).partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                raise Unauthenticated("send the metadata 'authorization: Bearer TOKEN'")
            return token.strip()
    return None
