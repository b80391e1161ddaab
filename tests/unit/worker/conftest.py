"""A gRPC server that says what a test tells it to, and a session without any I/O."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import grpc
import pytest

from queue_operator.metrics.worker import WorkerFigures
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.wire.v1 import worker_pb2_grpc as wire_grpc
from queue_operator.worker import Worker, WorkerIdentity, WorkerSettings
from queue_operator.worker.figures import ENDS
from queue_operator.worker.handlers import Registry, build_spec
from queue_operator.worker.runner import Run
from queue_operator.worker.session import Session

PATIENCE_S = 20.0


def assignment(job_id: str, token: str, type_: str = "work", **fields: Any) -> wire.Assignment:
    timeout_s = fields.pop("timeout_s", None)
    made = wire.Assignment(job_id=job_id, token=token, type=type_, attempt=1, **fields)
    if timeout_s is not None:
        made.timeout.FromTimedelta(timedelta(seconds=timeout_s))
    return made


def assigned(*assignments: wire.Assignment) -> wire.ServerMessage:
    return wire.ServerMessage(assignments=wire.AssignmentBatch(assignments=assignments))


def cancel(job_id: str, token: str, *, force: bool = False) -> wire.ServerMessage:
    request = wire.CancelRequest(job_id=job_id, token=token, force=force)
    return wire.ServerMessage(cancels=wire.CancelBatch(cancels=[request]))


def ack(*outcomes: wire.Outcome, error_code: str = "") -> wire.ServerMessage:
    acks = [
        wire.OutcomeAck(job_id=outcome.job_id, token=outcome.token, error_code=error_code)
        for outcome in outcomes
    ]
    return wire.ServerMessage(outcome_acks=wire.OutcomeAcks(acks=acks))


def lease(
    job_id: str, token: str, status: wire.LeaseStatus.ValueType, **fields: bool
) -> wire.ServerMessage:
    answer = wire.LeaseAnswer(job_id=job_id, token=token, status=status, **fields)
    return wire.ServerMessage(lease_answers=wire.LeaseAnswers(answers=[answer]))


def welcome(heartbeat_s: float = 0.05) -> wire.ServerMessage:
    made = wire.Welcome(worker_name="w", namespace="default", max_result_bytes=1024 * 1024)
    made.heartbeat_interval.FromTimedelta(timedelta(seconds=heartbeat_s))
    return wire.ServerMessage(welcome=made)


class Say:
    """The messages of the server, for tests to build."""

    assignment = staticmethod(assignment)
    assigned = staticmethod(assigned)
    cancel = staticmethod(cancel)
    ack = staticmethod(ack)
    lease = staticmethod(lease)
    welcome = staticmethod(welcome)

    @staticmethod
    def goodbye(*, reconnect: bool) -> wire.ServerMessage:
        return wire.ServerMessage(goodbye=wire.Goodbye(reason="a test", reconnect=reconnect))


@pytest.fixture
def say() -> type[Say]:
    return Say


class Connection:
    """One session stream as the server sees it."""

    def __init__(self, hello: wire.Hello, metadata: dict[str, str]) -> None:
        self.hello = hello
        self.metadata = metadata
        self.inbox: queue.Queue[wire.WorkerMessage | None] = queue.Queue()
        self.outbox: queue.Queue[wire.ServerMessage | grpc.StatusCode | None] = queue.Queue()
        self.seen: list[wire.WorkerMessage] = []
        self.closed_in_good_order = False

    def send(self, *messages: wire.ServerMessage) -> None:
        for message in messages:
            self.outbox.put(message)

    def close(self) -> None:
        self.outbox.put(None)

    def abort(self, code: grpc.StatusCode) -> None:
        self.outbox.put(code)

    def next(self, kind: str) -> Any:
        """The next message of this kind; others are kept in `seen`."""
        until_s = time.monotonic() + 2 * PATIENCE_S
        while True:
            message = self.inbox.get(timeout=max(until_s - time.monotonic(), 0.0))
            assert message is not None, f"the worker closed the stream before it sent {kind}"
            self.seen.append(message)
            if message.WhichOneof("message") == kind:
                return getattr(message, kind)

    def outcomes(self, count: int) -> list[wire.Outcome]:
        found: list[wire.Outcome] = []
        while len(found) < count:
            found += self.next("outcomes").outcomes
        return found

    def settle(self, count: int = 1) -> list[wire.Outcome]:
        """Waits for that many outcomes and acknowledges them."""
        found = self.outcomes(count)
        self.send(ack(*found))
        return found

    def ended(self) -> None:
        """Waits until the worker has closed its side."""
        while (message := self.inbox.get(timeout=PATIENCE_S)) is not None:
            self.seen.append(message)


class Server(wire_grpc.WorkerPlaneServicer):
    def __init__(self) -> None:
        self.connections: queue.Queue[Connection] = queue.Queue()
        self.refusal: grpc.StatusCode | None = None
        self.refused: queue.Queue[grpc.StatusCode] = queue.Queue()
        self._open: list[Connection] = []
        # As the real one, it lets workers ping as often as they do.
        self._grpc = grpc.server(
            ThreadPoolExecutor(8), options=[("grpc.http2.max_ping_strikes", 0)]
        )
        wire_grpc.add_WorkerPlaneServicer_to_server(self, self._grpc)
        self.port = self._grpc.add_insecure_port("127.0.0.1:0")
        self._grpc.start()

    def Session(self, requests: Any, context: Any) -> Iterator[wire.ServerMessage]:
        if (code := self.refusal) is not None:
            # As the real one it hears the worker out: a hello that cannot be sent to its end any
            # more is a fault of the connection to gRPC's client, whatever the status was.
            next(requests, None)
            self.refused.put(code)
            context.abort(code, "no")
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        connection = Connection(next(requests).hello, metadata)
        self._open.append(connection)
        self.connections.put(connection)
        threading.Thread(target=self._pump, args=(requests, connection), daemon=True).start()
        while (message := connection.outbox.get()) is not None:
            if isinstance(message, grpc.StatusCode):
                context.abort(message, "cut by the test")
            else:
                yield message

    @staticmethod
    def _pump(requests: Iterator[wire.WorkerMessage], connection: Connection) -> None:
        # A worker that is cut off ends the iteration with an exception; that is its end too.
        with contextlib.suppress(Exception):
            for message in requests:
                connection.inbox.put(message)
            connection.closed_in_good_order = True
        connection.inbox.put(None)
        connection.close()

    def accept(self, *, heartbeat_s: float = 0.05) -> Connection:
        """Waits for the worker to connect and welcomes it."""
        connection = self.connections.get(timeout=PATIENCE_S)
        connection.send(welcome(heartbeat_s))
        return connection

    def stop(self) -> None:
        for connection in self._open:
            connection.close()
        self._grpc.stop(None).wait()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def settings(server: Server) -> WorkerSettings:
    return WorkerSettings(
        server=f"127.0.0.1:{server.port}",
        worker_name="w",
        health_port=0,
        metrics_port=0,
        reconnect_initial_s=0.01,
        reconnect_max_s=0.02,
        refused_s=0.2,
        ack_wait_s=PATIENCE_S,
        grace_s=PATIENCE_S,
    )


Running = Callable[[Worker], "Future[int]"]


@pytest.fixture
def run() -> Iterator[Running]:
    """Runs workers in threads; gives what `Worker.run` returns or raises."""
    started: list[tuple[Worker, Future[int]]] = []
    pool = ThreadPoolExecutor(4)

    def start(worker: Worker) -> "Future[int]":
        future = pool.submit(worker.run)
        started.append((worker, future))
        return future

    yield start
    for worker, future in started:
        if not future.done():
            worker.stop()
            worker.stop()
    pool.shutdown()


class ManualTimer:
    def __init__(self, delay_s: float, action: Callable[[], None]) -> None:
        self.delay_s = delay_s
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Rig:
    """A session whose handlers end when the test says so; they begin unless `begins` is False."""

    def __init__(self) -> None:
        self.figures = WorkerFigures(
            ("0.1", "worker-1", "there:1"),
            ENDS,
            lambda: self.session.standing(connected=True),
        )
        self.started: list[Run] = []
        self.interrupted: list[Run] = []
        self.timers: list[ManualTimer] = []
        self.wakes = 0
        self.done = 0
        self.begins = True
        self.registry = registry = Registry()
        for type_ in ("work", "other"):
            registry.add(
                build_spec(type_, lambda ctx: None, timeout=1.5, max_attempts=3, concurrency=2)
            )
        self.session = Session(
            WorkerSettings(tags=frozenset({"gpu", "eu"}), capacity=7, pod_uid="uid-1"),
            WorkerIdentity("s1", "worker-1", "team-a", "node-1", frozenset({"gpu", "eu"})),
            registry,
            self,
            schedule=self._schedule,
            post=lambda action: action(),
            wake=self._wake,
            done=self._done,
            figures=self.figures,
        )

    def start(self, run: Run) -> None:
        self.started.append(run)
        if self.begins:
            assert run.begin()

    def interrupt(self, run: Run) -> None:
        self.interrupted.append(run)

    def _schedule(self, delay_s: float, action: Callable[[], None]) -> ManualTimer:
        self.timers.append(ManualTimer(delay_s, action))
        return self.timers[-1]

    def _wake(self) -> None:
        self.wakes += 1

    def _done(self) -> None:
        self.done += 1

    def assign(self, job_id: str, token: str, **fields: Any) -> Run:
        self.session.receive(assigned(assignment(job_id, token, **fields)))
        return self.started[-1]

    def sent(self, kind: str) -> list[Any]:
        """The messages of one kind that are due now."""
        return [
            getattr(message, kind)
            for message in self.session.take_messages()
            if message.WhichOneof("message") == kind
        ]

    def outcomes(self) -> list[wire.Outcome]:
        return [outcome for batch in self.sent("outcomes") for outcome in batch.outcomes]

    def held(self) -> list[tuple[str, str]]:
        return [(held.job_id, held.token) for held in self.session.held()]


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def worker_with(settings: WorkerSettings) -> Callable[..., Worker]:
    """A worker of the given parts; the other names are types."""

    def make(
        *middleware: Any, lifespan: Any = None, close_s: float = PATIENCE_S, **handlers: Any
    ) -> Worker:
        worker = Worker(replace(settings, close_s=close_s), lifespan=lifespan)
        for type_, function in handlers.items():
            worker.handler(type_)(function)
        for one in middleware:
            worker.middleware(one)
        return worker

    return make
