"""One worker's session: reads what it says, writes what the queue has for it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

from queue_operator.backends.protocol import ProgressReport, SpawnRequest
from queue_operator.domain.errors import (
    InvalidArgument,
    PayloadTooLarge,
    QueueError,
    StaleLease,
    Unavailable,
)
from queue_operator.domain.job import Assignment, Progress, Submitted
from queue_operator.domain.lease import Held, LeaseAnswer
from queue_operator.domain.outcome import Outcome, Settled
from queue_operator.domain.validation import check_text
from queue_operator.observing import about
from queue_operator.queue.protocol import EndReason, Push, Stream
from queue_operator.rpc.backlog import Backlog
from queue_operator.rpc.hello import types_of
from queue_operator.wire import convert
from queue_operator.wire.v1 import worker_pb2 as pb

logger = logging.getLogger(__name__)

JOBS_PER_MESSAGE: Final = 1024
BYTES_PER_MESSAGE: Final = 3 * 1024 * 1024
"""Assignments of one message stay below this, and so below the 4 MiB that gRPC clients take
unless told otherwise; a job larger than that travels alone.
"""
OUTCOME_MESSAGES_IN_FLIGHT: Final = 16
"""A worker that sends more before the first is stored has to wait: its transport fills up."""
TAKEN_OVERSIZED: Final = frozenset({"outcomes", "checkpoints", "spawns", "heartbeat"})
ENTRIES_PER_MESSAGE: Final = 10_000
"""Of everything but the jobs of a heartbeat, which are bounded by the worker's capacity."""
MOST_FIELDS: Final = 50_000
"""Of a message, at one level below: more are not even read."""
_SLICE: Final = 500
"""So many entries are worked on before others have their turn."""
ASK_MESSAGES_IN_FLIGHT: Final = 4
"""The same for checkpoints and children, which may fill their messages."""
HELD_PER_SLOT: Final = 4
HELD_AT_LEAST: Final = 1000
"""A worker names the jobs it runs. Handlers that are deaf to their end are among them, so these
may be more than its capacity for a while, but not many times that.
"""


def most_held(capacity: int, brought: int = 0) -> int:
    return max(HELD_AT_LEAST, HELD_PER_SLOT * capacity) + brought


def check_held(named: int, capacity: int) -> None:
    """Of a hello, in which a worker may bring as many again as a heartbeat names. Raises
    InvalidArgument.
    """
    most = 2 * most_held(capacity)
    if named > most:
        reason = f"names {named} jobs; of a worker of capacity {capacity} at most {most} are taken"
        raise InvalidArgument("held", reason)


@dataclass(frozen=True, slots=True)
class Oversized:
    """A message that is over the limit, and yet was read."""

    message: pb.WorkerMessage
    size: int


class Call(Protocol):
    """The two ends of the gRPC call. `read` gives None when the worker has said its last."""

    async def read(self) -> pb.WorkerMessage | Oversized | None: ...

    async def write(self, message: pb.ServerMessage) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """What the session tells the worker and holds it to."""

    wire: convert.WireLimits
    message_bytes: int
    checkpoint_bytes: int
    payload_bytes: int


class Session:
    """Runs until the worker leaves, the stream ends or the server says goodbye."""

    def __init__(self, stream: Stream, call: Call, limits: SessionLimits, backlog: Backlog) -> None:
        self._stream = stream
        self._call = call
        self._limits = limits
        self._backlog = backlog
        self._unstored = 0
        self._capacity = stream.spec.capacity
        self._namespace = stream.spec.namespace
        self._writing = asyncio.Lock()
        self._leaving = asyncio.Event()
        self._goodbye = pb.Goodbye()
        self._in_flight = asyncio.Semaphore(OUTCOME_MESSAGES_IN_FLIGHT)
        self._asks_in_flight = asyncio.Semaphore(ASK_MESSAGES_IN_FLIGHT)
        self._answers: set[asyncio.Task[None]] = set()
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held: list[Held] | None = None
        self._heartbeating = False
        self._drains = False

    def say_goodbye(self, reason: str, *, reconnect: bool) -> None:
        """Ends the session after what the worker already sent has been answered."""
        self._goodbye = pb.Goodbye(reason=reason, reconnect=reconnect)
        self._leaving.set()

    @property
    def leaves(self) -> bool:
        """Worker or server has said that the session is about to end."""
        return self._drains or self._leaving.is_set()

    async def run(self) -> None:
        """Raises QueueError when the worker must be told that the call failed."""
        tasks = [
            asyncio.create_task(self._read_all()),
            asyncio.create_task(self._push_all()),
            asyncio.create_task(self._leave()),
        ]
        try:
            ends: list[asyncio.Future[None]] = [*tasks, self._fault]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in done:
                end.result()
        finally:
            self._fault.cancel()
            for task in (*tasks, *self._answers):
                task.cancel()
            await asyncio.gather(*tasks, *self._answers, return_exceptions=True)

    async def _leave(self) -> None:
        await self._leaving.wait()
        await self._stream.close()
        await self._answered()
        await self._write(pb.ServerMessage(goodbye=self._goodbye))

    async def _answered(self) -> None:
        while self._answers:
            await asyncio.gather(*self._answers, return_exceptions=True)

    async def _write(self, message: pb.ServerMessage) -> None:
        async with self._writing:
            await self._call.write(message)

    # To the worker

    async def _push_all(self) -> None:
        await self._write_lease_answers(self._stream.adopted)
        while (push := await self._stream.next()) is not None:
            for part, message in self._assignment_messages(push.assignments):
                await self._write(message)
                self._stream.delivered(part)
            if push.cancels:
                cancels = [convert.cancel_to_wire(request) for request in push.cancels]
                await self._write(pb.ServerMessage(cancels=pb.CancelBatch(cancels=cancels)))
        await self._explain_end()

    async def _explain_end(self) -> None:
        match self._stream.end_reason:
            case EndReason.REPLACED:
                raise StaleSession(self._stream.spec.assignee_id)
            case EndReason.QUEUE_CLOSED:
                self.say_goodbye(EndReason.QUEUE_CLOSED.value, reconnect=True)
            case EndReason.DISCONNECTED:
                self.say_goodbye(EndReason.DISCONNECTED.value, reconnect=False)
        # The goodbye is on its way; it waits for the last answers.
        await asyncio.get_running_loop().create_future()

    def _assignment_messages(
        self, assignments: Iterable[Assignment]
    ) -> Iterator[tuple[Push, pb.ServerMessage]]:
        room = min(BYTES_PER_MESSAGE, self._limits.message_bytes * 3 // 4)
        jobs: list[Assignment] = []
        message = pb.ServerMessage()
        used = 0
        for job in assignments:
            size = convert.add_assignment(message.assignments, job).ByteSize()
            if jobs and (len(jobs) == JOBS_PER_MESSAGE or used + size > room):
                # It goes into the next one.
                del message.assignments.assignments[-1]
                yield Push(assignments=tuple(jobs)), message
                jobs, message, used = [], pb.ServerMessage(), 0
                convert.add_assignment(message.assignments, job)
            jobs.append(job)
            used += size
        if jobs:
            yield Push(assignments=tuple(jobs)), message

    async def _write_lease_answers(self, answers: Sequence[LeaseAnswer]) -> None:
        if answers:
            wire = [convert.lease_answer_to_wire(answer) for answer in answers]
            await self._write(pb.ServerMessage(lease_answers=pb.LeaseAnswers(answers=wire)))

    # From the worker

    async def _read_all(self) -> None:
        while (message := await self._call.read()) is not None:
            if isinstance(message, Oversized):
                await self._take_oversized(message)
            else:
                await self._take(message)
        await self._answered()

    async def _take_oversized(self, oversized: Oversized) -> None:
        """The worker is told, and nothing is lost that is answered item by item: each of those
        has a limit of its own. Nor do jobs lose their leases because they are many.
        """
        kind = oversized.message.WhichOneof("message") or ""
        error = PayloadTooLarge(kind, oversized.size, self._limits.message_bytes)
        logger.warning("%s sent too much: %s", self._stream.spec.worker_name, error)
        told = pb.TooLarge(
            kind=kind, size=error.size, limit=error.limit, error_message=error.message
        )
        await self._write(pb.ServerMessage(too_large=told))
        if kind in TAKEN_OVERSIZED:
            await self._take(oversized.message)

    async def _take(self, message: pb.WorkerMessage) -> None:
        _check_entries(message)
        match message.WhichOneof("message"):
            case "outcomes":
                await self._in_flight.acquire()
                # Before the next message is read: they apply in their order.
                outcomes, refused = await self._outcomes(message.outcomes)
                await self._answer_stored(message, self._settle(outcomes, refused))
            case "heartbeat":
                self._beat(message.heartbeat)
            case "checkpoints":
                await self._ask(message, partial(self._keep, message.checkpoints))
            case "spawns":
                await self._ask(message, partial(self._spawn, message.spawns))
            case "types":
                self._stream.retype(types_of(message.types.types, self._limits.wire.id_characters))
            case "drain":
                # What it held before it drained says nothing about what it will not start.
                self._held, self._drains = None, True
                self._stream.drain()
            case "hello":
                raise InvalidArgument("hello", "must come once, as the first message")
            case _:
                self._note(message)

    def _note(self, message: pb.WorkerMessage) -> None:
        """What the worker tells without waiting for an answer."""
        match message.WhichOneof("message"):
            case "progress":
                self._stream.report_progress(self._reports(message.progress))
            case "logs":
                logs, limits = message.logs, self._limits.wire
                self._stream.ship_logs(
                    convert.logs_from_wire(logs, namespace=self._namespace, limits=limits)
                )
            case "cancel_receipts":
                received = self._held_jobs(message.cancel_receipts.received, "received")
                self._stream.confirm_cancels(received)
            case _:
                logger.debug("ignoring a message of a kind this version does not know")

    def _answer(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._answers.add(task)
        task.add_done_callback(self._answer_ended)
        return task

    def _answer_ended(self, task: asyncio.Task[None]) -> None:
        """Nobody waits for an answer: one that failed ends the session."""
        self._answers.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._fault.done():
            logger.debug("an answer failed as its session ended", exc_info=error)
        else:
            self._fault.set_exception(error)

    async def _settle(self, outcomes: list[Outcome], acks: list[pb.OutcomeAck]) -> None:
        try:
            settled = await self._stream.settle(outcomes)
            acks += [
                convert.ack_to_wire(answer, outcome.token or "")
                for outcome, answer in zip(outcomes, settled, strict=True)
            ]
            self._tell_refusals(acks)
            await self._write(pb.ServerMessage(outcome_acks=pb.OutcomeAcks(acks=acks)))
        except Unavailable:
            logger.info("%s must send its outcomes again", self._stream.spec.worker_name)
        finally:
            self._in_flight.release()

    def _tell_refusals(self, acks: list[pb.OutcomeAck]) -> None:
        """The worker tells of each at a higher level."""
        if not logger.isEnabledFor(logging.DEBUG):
            return
        for ack in acks:
            if ack.error_code:
                logger.debug(
                    "the outcome of job %s is refused: %s %s",
                    ack.job_id,
                    ack.error_code,
                    ack.error_message,
                    extra=about(self._namespace, ack.job_id),
                )

    async def _outcomes(self, batch: pb.OutcomeBatch) -> tuple[list[Outcome], list[pb.OutcomeAck]]:
        outcomes: list[Outcome] = []
        refused: list[pb.OutcomeAck] = []
        for index, message in enumerate(batch.outcomes):
            if index % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            try:
                outcomes.append(
                    convert.outcome_from_wire(
                        message, namespace=self._namespace, limits=self._limits.wire
                    )
                )
            except InvalidArgument as error:
                named = InvalidArgument(f"outcomes[{index}].{error.field}", error.reason)
                answer = Settled(message.job_id, self._namespace, error=named)
                refused.append(convert.ack_to_wire(answer, message.token))
        return outcomes, refused

    async def _ask(
        self,
        message: pb.WorkerMessage,
        work: Callable[[], Coroutine[None, None, pb.ServerMessage]],
    ) -> None:
        """Answers what a handler waits for, once it is stored."""
        await self._asks_in_flight.acquire()
        kind = message.WhichOneof("message") or ""
        await self._answer_stored(message, self._reply(kind, work))

    async def _answer_stored(
        self, message: pb.WorkerMessage, work: Coroutine[None, None, None]
    ) -> None:
        """Answers a message that has to be kept until it is stored."""
        size = message.ByteSize()
        try:
            await self._backlog.add(size, alone=not self._unstored)
        except BaseException:
            work.close()
            raise
        self._unstored += 1
        self._answer(work).add_done_callback(lambda _: self._stored(size))

    def _stored(self, size: int) -> None:
        self._unstored -= 1
        self._backlog.remove(size)

    async def _reply(
        self, kind: str, work: Callable[[], Coroutine[None, None, pb.ServerMessage]]
    ) -> None:
        try:
            await self._write(await work())
        except Unavailable:
            logger.info("%s must send its %s again", self._stream.spec.worker_name, kind)
        finally:
            self._asks_in_flight.release()

    async def _keep(self, batch: pb.CheckpointBatch) -> pb.ServerMessage:
        reports = [
            convert.checkpoint_from_wire(message, namespace=self._namespace)
            for message in batch.checkpoints
        ]
        answers = await self._stream.checkpoint(reports)
        acks = map(convert.checkpoint_ack_to_wire, answers, reports)
        return pb.ServerMessage(checkpoint_acks=pb.CheckpointAcks(acks=acks))

    async def _spawn(self, batch: pb.SpawnBatch) -> pb.ServerMessage:
        readable: list[tuple[pb.Spawn, SpawnRequest]] = []
        answers: list[pb.SpawnAnswer] = []
        for message in batch.spawns:
            # A payload that is JSON is read, and may be large.
            await asyncio.sleep(0)
            try:
                request = convert.spawn_from_wire(
                    message,
                    namespace=self._namespace,
                    payload_bytes=self._limits.payload_bytes,
                )
                readable.append((message, request))
            except InvalidArgument as error:
                refused = Submitted(job_id="", error=error)
                answers.append(convert.spawn_answer_to_wire(refused, message))
        stored = await self._stream.spawn([request for _, request in readable])
        answers += [
            convert.spawn_answer_to_wire(answer, message)
            for (message, _), answer in zip(readable, stored, strict=True)
        ]
        return pb.ServerMessage(spawn_answers=pb.SpawnAnswers(answers=answers))

    def _beat(self, heartbeat: pb.Heartbeat) -> None:
        """One renewal at a time; of those that arrive meanwhile only the newest counts."""
        self._check_room(len(heartbeat.held))
        self._held = self._held_jobs(heartbeat.held, "held")
        if not self._heartbeating:
            self._heartbeating = True
            self._answer(self._renew())

    def _check_room(self, named: int) -> None:
        # Who has less capacity than before goes on with what it has.
        self._capacity = max(self._capacity, self._stream.spec.capacity)
        capacity, brought = self._capacity, len(self._stream.adopted)
        most = most_held(capacity, brought)
        if named > most:
            reason = (
                f"names {named} jobs; of a worker of capacity {capacity} at most {most} are taken"
            )
            raise InvalidArgument("heartbeat.held", reason)

    async def _renew(self) -> None:
        try:
            while (held := self._held) is not None:
                self._held = None
                await self._write_lease_answers(await self._stream.heartbeat(held))
        except Unavailable:
            logger.info("the leases of %s were not renewed", self._stream.spec.worker_name)
        finally:
            self._heartbeating = False

    def _held_jobs(self, messages: Iterable[pb.HeldJob], field: str) -> list[Held]:
        return convert.held_from_wire(
            messages, namespace=self._namespace, field=field, limits=self._limits.wire
        )

    def _reports(self, batch: pb.ProgressBatch) -> list[ProgressReport]:
        now = datetime.now(UTC)
        limit = self._limits.wire.progress_message_bytes
        return [
            ProgressReport(
                job_id=report.job_id,
                token=report.token,
                namespace=self._namespace,
                progress=Progress(
                    min(report.percent, 100), convert.cut_storable(report.message, limit), now
                ),
            )
            for report in batch.progress
            if self._could_be(report.job_id)
        ]

    def _could_be(self, job_id: str) -> bool:
        """Whether a job can have this id: one that the store cannot read spoils its batch."""
        try:
            check_text("job_id", job_id, self._limits.wire.id_characters)
        except InvalidArgument:
            return False
        return True


def _check_entries(message: pb.WorkerMessage) -> None:
    """Raises InvalidArgument for more of them than a message may have."""
    kind = message.WhichOneof("message") or ""
    if kind in ("", "hello", "heartbeat"):
        return
    for field, value in getattr(message, kind).ListFields():
        if len(value) > ENTRIES_PER_MESSAGE:
            text = (
                f"has {len(value)} entries; the limit is {ENTRIES_PER_MESSAGE}: send less at once"
            )
            raise InvalidArgument(f"{kind}.{field.name}", text)


class StaleSession(StaleLease):
    """The worker has opened a newer connection; nothing more comes through this one."""

    def __init__(self, session_id: str) -> None:
        QueueError.__init__(self, f"session {session_id!r} was {EndReason.REPLACED}")
