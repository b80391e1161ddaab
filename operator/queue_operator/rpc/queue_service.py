"""The gRPC Queue: for every call the same way from the message to the queue and back."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from queue_operator.auth.audit import LEFT
from queue_operator.auth.protocol import QUEUE_JOBS_STATUS, Identity
from queue_operator.domain.errors import (
    Forbidden,
    InvalidArgument,
    QueueError,
    QuotaExceeded,
    Unavailable,
)
from queue_operator.domain.job import Job
from queue_operator.domain.lease import Held
from queue_operator.queue.bulk import MOST_JOBS
from queue_operator.queue.hub import EventHub
from queue_operator.queue.protocol import HostedQueue, JobBatches
from queue_operator.rpc.changes import Changes, count_of
from queue_operator.rpc.door import Context, Door, Unreadable, reader, refuse
from queue_operator.rpc.following import Following
from queue_operator.rpc.queue_calls import (
    METHODS,
    OUTCOME,
    Method,
    Run,
    check_entries,
    check_numbers,
    may_not_set,
    messages_of,
)
from queue_operator.rpc.session import BYTES_PER_MESSAGE
from queue_operator.rpc.traced import sending
from queue_operator.settings import Settings
from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Tracing
from queue_operator.wire.v1 import queue_pb2 as pb

logger = logging.getLogger(__name__)

SERVICE: Final = pb.DESCRIPTOR.services_by_name["Queue"].full_name
STREAM_ID_KEY: Final = "stream-id"
"""Initial metadata of a stream that is registered."""
_OTHER_FIELDS: Final = 1000
REPEAT_AFTER_S: Final = 1.0
"""For callers who came when there were too many."""

Answer = Callable[[Any, Context], Awaitable[Message | None]]
M = TypeVar("M", bound=Message)


class QueueServicer:
    """Serves `queueoperator.v1.Queue`."""

    def __init__(
        self,
        queue: HostedQueue,
        door: Door,
        settings: Settings,
        tracing: Tracing = OFF,
        events: EventHub | None = None,
    ) -> None:
        self._following = Following(door, events, settings.limits)
        self._queue = queue
        self._tracing = tracing
        self._door = door
        self._changes = Changes()
        self._limits = settings.limits
        self._message_bytes = settings.grpc.message_bytes
        # What a call may have most of, and the few other fields that it has.
        self._most_fields = max(settings.limits.batch_jobs, MOST_JOBS) + _OTHER_FIELDS
        self._most_calls = settings.grpc.calls_in_flight
        self._calls = 0
        self._streams: dict[str, JobBatches] = {}
        self._leaving = False

    def handler(self) -> grpc.GenericRpcHandler:
        """Of all methods of the service."""
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: self._unary(method.request, self._counted(self._call(name, method)))
            for name, method in METHODS.items()
        }
        handlers["EndStream"] = self._unary(pb.EndStreamRequest, self._end_stream)
        handlers["StreamJobs"] = grpc.unary_stream_rpc_method_handler(
            self._refusing(self._stream_jobs),
            request_deserializer=self._reader(pb.StreamJobsRequest),
            response_serializer=pb.JobBatch.SerializeToString,
        )
        handlers["WatchJobs"] = grpc.unary_stream_rpc_method_handler(
            self._refusing(self._following.watch_jobs),
            request_deserializer=self._reader(pb.WatchJobsRequest),
            response_serializer=pb.JobEventMessage.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def leave(self) -> None:
        """Every stream ends after what it has begun to write, and there are no new ones."""
        self._leaving = True
        streams = list(self._streams.values())
        await asyncio.gather(*(stream.aclose() for stream in streams), return_exceptions=True)

    async def finish(self, grace_s: float) -> None:
        """Once nobody is answered any more: what was begun is brought to its end."""
        await self._changes.finish(grace_s)

    def _reader(self, request: type[M]) -> Callable[[bytes], M | Unreadable]:
        return reader(request, self._message_bytes, self._most_fields)

    def _unary(self, request: type[Message], answer: Answer) -> "grpc.RpcMethodHandler[Any, Any]":
        return grpc.unary_unary_rpc_method_handler(
            self._refusing(answer),
            request_deserializer=self._reader(request),
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _refusing(self, answer: Answer) -> Answer:
        async def answer_or_refuse(request: Any, context: Context) -> Message | None:
            try:
                if isinstance(request, Unreadable):
                    await self._door.identify(context)
                    raise request.error
                return await answer(request, context)
            except QueueError as error:
                await refuse(context, error)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                logger.exception("a gRPC call met a fault of the server")
                await refuse(context, QueueError(str(error)))

        return answer_or_refuse

    def _call(self, name: str, method: Method) -> Answer:
        async def call(request: Any, context: Context) -> Message:
            identity = await self._door.identify(context)
            namespace = self._door.namespace(context, identity)
            right, concerned = method.right, method.namespaces(request, namespace)
            await self._door.admit(identity, right.verb, right.resource, concerned)
            check_numbers(method, request, self._limits)
            run = await self._run_for(identity, method, request, concerned)
            if method.submitted is not None:
                run = self._traced(run, context, method.submitted(request))
            if (audited := method.audited) is None:
                return await run(self._queue, request, namespace)

            async def change() -> Message:
                with self._changes.told(
                    identity, right.verb, name, concerned, **audited(request)
                ) as told:
                    answer = await run(self._queue, request, namespace)
                    told.update(count_of(request, answer))
                    return answer

            return await self._changes.to_its_end(change())

        return call

    async def _run_for(
        self, identity: Identity, method: Method, request: Any, concerned: Collection[str]
    ) -> Run:
        """How the call is answered to who asks. Raises Forbidden, naming the field."""
        field = method.reserved(request)
        if field:
            try:
                await self._door.admit(identity, OUTCOME.verb, OUTCOME.resource, concerned)
            except Forbidden as error:
                if method.run_without is None:
                    raise may_not_set(field) from error
                return method.run_without
        return method.run

    def _traced(self, run: Run, context: Context, jobs: Sequence[pb.Job]) -> Run:
        async def run_traced(queue: HostedQueue, request: Any, namespace: str) -> Message:
            with sending(self._tracing, context, jobs):
                return await run(queue, request, namespace)

        return run_traced

    def _counted(self, answer: Answer) -> Answer:
        """The limit of gRPC itself counts sessions and streams too, and those may be thousands."""

        async def answer_one_more(request: Any, context: Context) -> Message | None:
            under_way = self._calls + self._changes.left
            if under_way >= self._most_calls:
                what = "calls that this server answers at a time"
                raise QuotaExceeded(what, under_way, self._most_calls, REPEAT_AFTER_S)
            self._calls += 1
            try:
                return await answer(request, context)
            finally:
                self._calls -= 1

        return answer_one_more

    # Streams

    async def _admit_stream(self, context: Context) -> tuple[Identity, str]:
        identity = await self._door.identify(context)
        namespace = self._door.namespace(context, identity)
        await self._door.admit(identity, OUTCOME.verb, QUEUE_JOBS_STATUS, (namespace,))
        return identity, namespace

    async def _stream_jobs(self, request: pb.StreamJobsRequest, context: Context) -> None:
        identity, namespace = await self._admit_stream(context)
        check_entries("tags", len(request.tags), self._limits.tags)
        if self._leaving:
            raise Unavailable("the server is shutting down")
        what = {"assignee_id": request.assignee_id, "filter": {"tags": list(request.tags)}}
        with self._changes.told(
            identity, OUTCOME.verb, "StreamJobs", (namespace,), cut=LEFT, **what
        ) as told:
            told["count"] = 0
            await self._stream(request, namespace, context, told)

    async def _stream(
        self, request: pb.StreamJobsRequest, namespace: str, context: Context, told: dict[str, Any]
    ) -> None:
        async with self._queue.stream_jobs(
            request.assignee_id,
            list(request.tags),
            request.max_assigned_jobs,
            namespace=namespace,
        ) as stream:
            stream_id = uuid.uuid4().hex
            self._streams[stream_id] = stream
            try:
                await context.send_initial_metadata(((STREAM_ID_KEY, stream_id),))
                async for jobs in stream:
                    told["count"] += await self._write(jobs, context)
            finally:
                del self._streams[stream_id]

    async def _write(self, jobs: Sequence[Job], context: Context) -> int:
        unwritten = {job.id: job for job in jobs}
        try:
            for part, message in messages_of(jobs, BYTES_PER_MESSAGE):
                await context.write(message)
                for job in part:
                    del unwritten[job.id]
        finally:
            if unwritten:
                # The caller is gone, and this task is cut off with it.
                await asyncio.shield(self._queue.give_back([*map(_held, unwritten.values())]))
        return len(jobs)

    async def _end_stream(self, request: pb.EndStreamRequest, context: Context) -> Message:
        identity, namespace = await self._admit_stream(context)
        stream = self._streams.get(request.stream_id)
        if stream is None:
            raise InvalidArgument("stream_id", "is not open on this server")
        what = {"stream_id": request.stream_id}
        with self._changes.told(identity, OUTCOME.verb, "EndStream", (namespace,), **what):
            await stream.aclose()
        return pb.EndStreamResponse()


def _held(job: Job) -> Held:
    return Held(job.id, job.token, job.namespace)
