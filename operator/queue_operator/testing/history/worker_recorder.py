"""Records what a worker process says and is told on its connections, and what it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from queue_operator.testing.history.calls import digest, stand_before
from queue_operator.testing.history.records import Kind, Log
from queue_operator.wire.v1 import worker_pb2 as wire


class WorkerSession(Protocol):
    """The session of a worker process, as its connection uses it."""

    def hello(self) -> wire.Hello: ...

    def receive(self, message: wire.ServerMessage) -> None: ...

    def take_messages(self) -> list[wire.WorkerMessage]: ...


W = TypeVar("W", bound=WorkerSession)


def record_session(session: W, log: Log) -> W:
    """All connections of the session, from now on."""
    stand_before(session, _SessionRecorder(session, log), "hello", "receive", "take_messages")
    return session


@contextmanager
def recorded_handler(log: Log, job_id: str, assignee_id: str) -> Iterator[None]:
    """Around a handler's work: when it began and when it was over, however it ends."""
    log.write(Kind.HANDLER_STARTED, job_id, assignee_id=assignee_id)
    try:
        yield
    finally:
        log.write(Kind.HANDLER_ENDED, job_id, assignee_id=assignee_id)


class _SessionRecorder:
    def __init__(self, session: WorkerSession, log: Log) -> None:
        self._hello, self._receive = session.hello, session.receive
        self._take = session.take_messages
        self._log = log
        self._name = ""
        self._sent: dict[tuple[str, str], str] = {}

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
        return messages

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
            self._write(Kind.ASSIGNED, job.job_id, job.token, attempt=job.attempt)
        for request in message.cancels.cancels:
            self._write(Kind.CANCEL_RECEIVED, request.job_id, request.token)
        for ack in message.outcome_acks.acks:
            self._acknowledged(ack)
        for answer in message.lease_answers.answers:
            status = wire.LeaseStatus.Name(answer.status).removeprefix("LEASE_STATUS_")
            self._write(Kind.LEASE_ANSWERED, answer.job_id, answer.token, status=status)
        self._receive(message)

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
