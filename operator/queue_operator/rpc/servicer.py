"""From a gRPC call to a session: credentials, hello, stream, and errors as statuses."""

import asyncio
import logging
from typing import Final

import grpc

from queue_operator.auth.protocol import CONNECT, QUEUE_WORKERS, Identity
from queue_operator.domain.errors import (
    InvalidArgument,
    PayloadTooLarge,
    QueueError,
    Unavailable,
)
from queue_operator.domain.lease import heartbeat_interval_s
from queue_operator.observing import WORKER
from queue_operator.queue.protocol import EndReason, Stream, StreamHost
from queue_operator.rpc.backlog import Backlog
from queue_operator.rpc.door import Context, Door, Unreadable, read_message, refuse
from queue_operator.rpc.hello import spec_of
from queue_operator.rpc.session import (
    MOST_FIELDS,
    Call,
    Oversized,
    Session,
    SessionLimits,
    check_held,
)
from queue_operator.settings import Settings
from queue_operator.wire import convert
from queue_operator.wire.v1 import worker_pb2 as pb

logger = logging.getLogger(__name__)

SERVICE: Final = pb.DESCRIPTOR.services_by_name["WorkerPlane"].full_name
HELLO_TIMEOUT_S: Final = 10.0
BREAK_S: Final = 0.1
"""So much later than its end one may hear that a connection broke."""


class ConnectionLost(Unavailable):
    """Nothing can be written to the worker any more."""


class WorkerCall:
    """`session.Call` on a gRPC context."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def read(self) -> pb.WorkerMessage | Oversized | None:
        message = await self._context.read()
        if isinstance(message, Unreadable):
            raise message.error
        return message if isinstance(message, pb.WorkerMessage | Oversized) else None

    async def write(self, message: pb.ServerMessage) -> None:
        try:
            await self._context.write(message)
        except grpc.aio.BaseError as error:
            raise ConnectionLost(str(error)) from error


class WorkerPlaneServicer:
    """Serves `queueoperator.v1.WorkerPlane`."""

    def __init__(self, queue: StreamHost, door: Door, settings: Settings) -> None:
        self._queue = queue
        self._door = door
        self._ttl_s = settings.queue.lease_ttl_s
        limits = settings.limits
        self._hello_limits = limits.to_limits()
        self._limits = SessionLimits(
            wire=convert.WireLimits(
                result_bytes=min(limits.result_bytes, settings.grpc.message_bytes),
                error_message_bytes=limits.error_message_bytes,
                stack_trace_bytes=limits.stack_trace_bytes,
                progress_message_bytes=limits.progress_message_bytes,
                id_characters=limits.id_characters,
            ),
            message_bytes=settings.grpc.message_bytes,
            checkpoint_bytes=limits.checkpoint_bytes,
            payload_bytes=limits.payload_bytes,
        )
        self._backlog = Backlog(settings.grpc.backlog_bytes)
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

    async def session(self, requests: object, context: Context) -> None:
        try:
            await self._serve(context)
        except ConnectionLost as error:
            logger.info("a session ends, as its connection did: %s", error)
        except QueueError as error:
            await refuse(context, error)
        except Exception as error:
            logger.exception("a session met a fault of the server")
            await refuse(context, QueueError(str(error)))

    async def _serve(self, context: Context) -> None:
        identity = await self._door.identify(context)
        await self.serve(WorkerCall(context), identity)

    async def serve(self, call: Call, identity: Identity) -> None:
        """One session, over gRPC or whatever else carries its messages.

        Raises QueueError when the worker must be told that the call failed.
        """
        stream = await self._open(await self._hello(call), identity)
        WORKER.set(stream.spec.worker_name)
        session = Session(stream, call, self._limits, self._backlog)
        self._sessions.add(session)
        reason = EndReason.CLOSED
        try:
            await call.write(pb.ServerMessage(welcome=self._welcome(stream)))
            if self._leaving:
                self.say_goodbye()
            await session.run()
            if not session.leaves:
                # Who has said its last may do so without draining. Of a connection that broke this
                # comes first, and that it did at once.
                await asyncio.sleep(BREAK_S)
        except (ConnectionLost, asyncio.CancelledError):
            reason = EndReason.BROKEN
            raise
        finally:
            self._sessions.discard(session)
            await stream.close(reason)

    async def _hello(self, call: Call) -> pb.Hello:
        try:
            first = await asyncio.wait_for(call.read(), HELLO_TIMEOUT_S)
        except TimeoutError:
            first = None
        if isinstance(first, Oversized):
            raise PayloadTooLarge("message", first.size, self._limits.message_bytes)
        if first is None or first.WhichOneof("message") != "hello":
            raise InvalidArgument("hello", "the first message of a session must be a Hello")
        return first.hello

    async def _open(self, hello: pb.Hello, identity: Identity) -> Stream:
        try:
            spec = spec_of(hello, identity, self._hello_limits)
            check_held(len(hello.held), spec.capacity)
            held = convert.held_from_wire(
                hello.held, namespace=spec.namespace, limits=self._limits.wire
            )
        except InvalidArgument as error:
            raise InvalidArgument(f"hello.{error.field}", error.reason) from None
        await self._door.admit(identity, CONNECT, QUEUE_WORKERS, (spec.namespace,))
        return await self._queue.open_stream(spec, held)

    def _parse(self, data: bytes) -> pb.WorkerMessage | Oversized | Unreadable:
        message = read_message(pb.WorkerMessage, data, MOST_FIELDS, within=True)
        if isinstance(message, Unreadable) or len(data) <= self._limits.message_bytes:
            return message
        return Oversized(message, len(data))

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
            max_checkpoint_bytes=self._limits.checkpoint_bytes,
            max_payload_bytes=self._limits.payload_bytes,
            max_message_bytes=self._limits.message_bytes,
        )
