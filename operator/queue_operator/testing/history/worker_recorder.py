"""Records what a worker process says and is told on its connections, and what it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from queue_operator.testing.history.calls import (
    checkpoint_digest,
    digest,
    stand_before,
    text_digest,
)
from queue_operator.testing.history.records import Kind, Log
from queue_operator.wire.v1 import worker_pb2 as wire


class WorkerSession(Protocol):
    """The session of a worker process, as its connection uses it."""

    def hello(self) -> wire.Hello: ...

    def receive(self, message: wire.ServerMessage) -> None: ...

    def take_messages(self) -> list[wire.WorkerMessage]: ...

    def finished(self, run: Any, ending: Any, /) -> None: ...


class Launcher(Protocol):
    """What starts the handlers of a session."""

    def start(self, run: Any, /) -> None: ...


W = TypeVar("W", bound=WorkerSession)


def record_session(session: W, launcher: Launcher, log: Log) -> W:
    """All connections of the session, and all handlers that its launcher runs, from now on."""
    recorder = _SessionRecorder(session, launcher, log)
    stand_before(session, recorder, "hello", "receive", "take_messages", "finished")
    stand_before(launcher, recorder, "start")
    return session


@contextmanager
def recorded_handler(
    log: Log, job_id: str, assignee_id: str, token: str, checkpoint: bytes | None = None
) -> Iterator[None]:
    """Around the work of a handler of another kind of worker: when it began and when it was over,
    however it ends. `checkpoint` is what it starts from.
    """
    seen = checkpoint_digest(checkpoint)
    log.write(Kind.HANDLER_STARTED, job_id, token, assignee_id=assignee_id, checkpoint=seen)
    try:
        yield
    finally:
        log.write(Kind.HANDLER_ENDED, job_id, assignee_id=assignee_id)


class _SessionRecorder:
    def __init__(self, session: WorkerSession, launcher: Launcher, log: Log) -> None:
        self._hello, self._receive = session.hello, session.receive
        self._take, self._finished = session.take_messages, session.finished
        self._start = launcher.start
        self._log = log
        self._name = ""
        self._sent: dict[tuple[str, str], str] = {}
        self._states: dict[tuple[str, str, int], str] = {}

    def hello(self) -> wire.Hello:
        message = self._hello()
        self._name = message.session_id
        self._log.write(
            Kind.STREAM_OPENED,
            assignee_id=self._name,
            capacity=message.capacity,
            held=[job.job_id for job in message.held],
        )
        return message

    def take_messages(self) -> list[wire.WorkerMessage]:
        messages = self._take()
        for message in messages:
            for outcome in message.outcomes.outcomes:
                self._said(outcome)
            self._asked(message)
        return messages

    def _asked(self, message: wire.WorkerMessage) -> None:
        for one in message.checkpoints.checkpoints:
            state = self._states[one.job_id, one.token, one.number] = digest(one.data)
            about = one.job_id, one.token
            self._write(Kind.CHECKPOINT_SENT, *about, number=one.number, state=state)
        for spawn in message.spawns.spawns:
            self._write(Kind.SPAWN_SENT, spawn.parent_id, spawn.token, key=spawn.key)
        for line in message.logs.lines:
            text = text_digest(line.message)
            self._write(Kind.LINE_SENT, line.job_id, line.token, number=line.number, text=text)

    def start(self, run: Any) -> None:
        checkpoint = checkpoint_digest(run.context.last_checkpoint())
        self._write(Kind.HANDLER_STARTED, run.job_id, run.token, checkpoint=checkpoint)
        self._start(run)

    def finished(self, run: Any, ending: Any) -> None:
        # Under the token that it has in the end: it may have gone on under a newer one.
        self._write(Kind.HANDLER_ENDED, run.job_id, run.token)
        self._finished(run, ending)

    def _said(self, outcome: wire.Outcome) -> None:
        kind = wire.OutcomeKind.Name(outcome.kind).removeprefix("OUTCOME_KIND_")
        self._sent[outcome.job_id, outcome.token] = kind
        self._log.write(
            Kind.OUTCOME_SENT,
            outcome.job_id,
            outcome.token,
            assignee_id=self._name,
            outcome=kind,
            result=digest(outcome.result),
            code=outcome.error.code,
        )

    def receive(self, message: wire.ServerMessage) -> None:
        for job in message.assignments.assignments:
            checkpoint = checkpoint_digest(job.checkpoint if job.HasField("checkpoint") else None)
            about = job.job_id, job.token
            self._write(Kind.ASSIGNED, *about, attempt=job.attempt, checkpoint=checkpoint)
        for request in message.cancels.cancels:
            self._write(Kind.CANCEL_RECEIVED, request.job_id, request.token)
        for ack in message.outcome_acks.acks:
            self._acknowledged(ack)
        for kept in message.checkpoint_acks.acks:
            self._kept(kept)
        for child in message.spawn_answers.answers:
            if not child.error_code:
                about = child.parent_id, child.token
                self._write(Kind.SPAWN_ACKNOWLEDGED, *about, key=child.key, child=child.job_id)
        for answer in message.lease_answers.answers:
            status = wire.LeaseStatus.Name(answer.status).removeprefix("LEASE_STATUS_")
            self._write(Kind.LEASE_ANSWERED, answer.job_id, answer.token, status=status)
        self._receive(message)

    def _kept(self, ack: wire.CheckpointAck) -> None:
        state = self._states.get((ack.job_id, ack.token, ack.number))
        if state is not None and not ack.error_code:
            self._write(Kind.CHECKPOINT_ACKNOWLEDGED, ack.job_id, ack.token, state=state)

    def _acknowledged(self, ack: wire.OutcomeAck) -> None:
        self._write(
            Kind.OUTCOME_REFUSED if ack.error_code else Kind.OUTCOME_ACKNOWLEDGED,
            ack.job_id,
            ack.token,
            outcome=self._sent.get((ack.job_id, ack.token), ""),
            state=ack.state,
            error=ack.error_code,
        )

    def _write(self, kind: Kind, job_id: str, token: str, **said: str | int) -> None:
        self._log.write(kind, job_id, token, assignee_id=self._name, **said)
