"""Puts the server together: the one place that knows every part.

The parent process runs the servers and the queue in one event loop. The kopf controller runs
in a child process, because kopf cancels every task of its loop when it ends, and so does the sender
of messages, so that it takes nothing from the path of jobs; a supervisor starts each again whenever
it ends.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

from queue_operator.api.app import create_app
from queue_operator.api.health import create_health_app
from queue_operator.api.measuring import Measured
from queue_operator.api.server import CONNECTIONS, RestServer
from queue_operator.api.views.jobs import job_status
from queue_operator.auth.factory import build as build_auth
from queue_operator.backends.ending import end_tasks
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.webhooks import Message
from queue_operator.controller.credentials import Credentials
from queue_operator.controller.startup import run_controller
from queue_operator.controller.vitals import Vitals
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.metrics.exporter import Exporter, Metrics
from queue_operator.metrics.instrumented import instrument
from queue_operator.metrics.replica import ReplicaFigures, Survey
from queue_operator.metrics.streams import StreamFigures
from queue_operator.metrics.webhooks import WebhookFigures
from queue_operator.observing.lines import TEXT_WITH_PROCESS, configure
from queue_operator.queue.clock import SystemClock
from queue_operator.queue.hub import EventHub
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import LogSettings, Settings
from queue_operator.supervisor.child import Children
from queue_operator.supervisor.controller import ControllerChild
from queue_operator.supervisor.sender import SenderChild
from queue_operator.tracing.opening import Options, open_tracing
from queue_operator.tracing.protocol import Tracing
from queue_operator.webhooks.figures import Vitals as SenderVitals
from queue_operator.webhooks.guard import Guard
from queue_operator.webhooks.posting import Poster
from queue_operator.webhooks.process import POOL_SIZE, run_sender
from queue_operator.webhooks.pruning import Pruner
from queue_operator.webhooks.secrets import Secrets
from queue_operator.webhooks.signing import signed_headers
from queue_operator.wire.certificate_files import ServerFiles
from queue_operator.wire.listening import allow_open_files

logger = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 10.0
_OTHER_FILES: Final = 500
"""Connections to the database and the API server, those of the metrics, certificates, logs."""


def configure_logging(settings: LogSettings, process: str = "server") -> None:
    """One line per record on standard error; `process` is the name of this one in them."""
    configure(settings.level, settings.format, process, TEXT_WITH_PROCESS)
    # Libraries tell of every reconnect; what matters of it is logged by us, once.
    for noisy in ("psycopg.pool", "uvicorn.error", "kubernetes", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


def _tracing(settings: Settings, replica: str) -> Tracing:
    """Nothing of OpenTelemetry is imported where there are none."""
    given = settings.tracing
    options = Options(
        service="queue-operator",
        endpoint=given.endpoint,
        ratio=given.sample_ratio,
        attributes={"service.instance.id": replica},
    )
    return open_tracing(options)


async def open_store(settings: Settings, *, pool_size: int | None = None) -> PostgresBackend:
    """The backend of the settings. Raises Unavailable when it cannot be reached."""
    database = settings.database
    return await PostgresBackend.open(
        database.dsn.get_secret_value(),
        pool_size=pool_size or database.pool_size,
        limits=settings.to_limits(),
        cancel_timeout_s=settings.queue.cancel_timeout_s,
        connect_timeout_s=database.connect_timeout_s,
        statement_timeout_s=database.statement_timeout_s,
        pooler=database.pooler,
        listen_dsn=database.listen_dsn.get_secret_value() if database.listen_dsn else None,
    )


class Doors:
    """Whether REST and gRPC are open: what the readiness of this replica is about. A database that
    is away later is no reason to close: callers are told to come again.
    """

    def __init__(self) -> None:
        self.open = False

    async def check(self) -> None:
        if not self.open:
            raise Unavailable("REST and gRPC are not open yet")


class StoreGate:
    """Stands for the store in the probes, also before it could be reached."""

    def __init__(self) -> None:
        self._store: PostgresBackend | None = None
        self._last_error = Unavailable("the database has not been reached yet")

    async def ping(self) -> None:
        if self._store is None:
            raise self._last_error
        await self._store.ping()

    async def open(self, settings: Settings) -> PostgresBackend:
        """Tries until the store is there; says so at the first failure and at each new one."""
        delay_s, said = _FIRST_RETRY_S, ""
        while self._store is None:
            try:
                self._store = await open_store(settings)
            except Unavailable as error:
                self._last_error = error
                if str(error) != said:
                    said = str(error)
                    logger.warning("%s; trying again until it is there", error)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _LAST_RETRY_S)
        return self._store


async def serve(settings: Settings) -> int:
    """Runs everything until SIGTERM or SIGINT; gives an exit code. The controller may end and begin
    again meanwhile. Raises Unauthenticated where it could never reach a cluster.
    """
    if settings.controller.enabled:
        Credentials.load()
    connections = settings.rest.connections + settings.grpc.connections + CONNECTIONS
    if lacking := allow_open_files(connections + settings.database.pool_size + _OTHER_FILES):
        logger.warning("%s", lacking)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _asked_to_stop, number, stop)
    clock = SystemClock()
    controller = ControllerChild(settings.controller, partial(_run_controller, settings), clock)
    sender = SenderChild(settings.webhooks, partial(send_messages, settings), clock)
    async with AsyncExitStack() as stack:
        gate, doors = StoreGate(), Doors()
        await stack.enter_async_context(_health(settings, doors, gate, controller))
        opened = await _unless(stop, gate.open(settings))
        if opened is None:
            return 0
        await stack.enter_async_context(_servers(settings, opened, controller, sender))
        doors.open = True
        await stop.wait()
        doors.open = False
    return 0


def _asked_to_stop(number: signal.Signals, stop: asyncio.Event) -> None:
    logger.info("stopping: %s", number.name)
    stop.set()


@asynccontextmanager
async def _health(
    settings: Settings, doors: Doors, store: StoreGate, controller: ControllerChild
) -> AsyncIterator[None]:
    parts = {"store": store.ping}
    if controller.enabled:
        parts["controller"] = controller.check
    server = RestServer(create_health_app(doors.check, parts), settings.health, "HEALTH")
    await server.start()
    try:
        yield
    finally:
        await server.stop()


@asynccontextmanager
async def _servers(
    settings: Settings, store: PostgresBackend, controller: ControllerChild, sender: SenderChild
) -> AsyncIterator[None]:
    """The queue and its doors; stopped in reverse, so that workers hear of it first."""
    replica = settings.replica or f"{socket.gethostname()}-{os.getpid()}"
    metrics = Metrics(replica)
    backend = instrument(store, metrics.recorder)
    clock, tracing = SystemClock(), _tracing(settings, replica)
    authenticator, authorizer = build_auth(settings.auth)
    queue = QueueService(
        backend,
        settings.queue,
        quotas=settings.quotas,
        replica=replica,
        limits=settings.to_limits(),
    )
    exporter = Exporter(
        metrics,
        settings.metrics,
        clock,
        figures=instrument(store.figures, metrics.recorder),
        streams=queue,
    )
    ours = ReplicaFigures(metrics.registry, store, controller.figures)
    survey = Survey(metrics.registry, backend, clock, lambda: metrics.snapshot.leads())
    hub = EventHub(
        instrument(store.followed, metrics.recorder),
        streams=settings.rest.streams,
        each=settings.rest.streams_per_caller,
    )
    StreamFigures(metrics.registry, hub)
    outbox = instrument(store.webhooks, metrics.recorder)
    messages = WebhookFigures(
        metrics.registry, outbox, sender.figures, clock, lambda: metrics.snapshot.leads()
    )
    pruner = Pruner(outbox, settings.webhooks, clock, lambda: metrics.snapshot.leads())
    rest = RestServer(
        Measured(
            create_app(queue, authenticator, authorizer, settings, tracing=tracing, events=hub),
            ours.http,
        ),
        settings.rest,
        connections=settings.rest.connections,
        keep_alive_s=settings.rest.keep_alive_s,
        files=ServerFiles.of(settings.rest),
    )
    plane = WorkerPlaneServer(
        queue, authenticator, settings, authorizer, tracing, figures=ours.grpc, events=hub
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, tracing.close, settings.tracing.flush_s)
        stack.push_async_callback(queue.close)
        await queue.start()
        for loop in (ours.watching(clock), survey.looking(), messages.looking(), pruner.pruning()):
            await stack.enter_async_context(loop)
        await exporter.start()
        stack.push_async_callback(exporter.stop)
        children = Children(controller, sender)
        stack.push_async_callback(children.ended)
        await rest.start()
        stack.push_async_callback(rest.stop)
        grpc_port = await plane.start()
        stack.push_async_callback(plane.stop)
        # Streams do not end by themselves: whoever has one goes on at another replica.
        stack.push_async_callback(hub.close)
        # They take some seconds to end, in which the doors close.
        stack.callback(children.end)
        children.begin()
        logger.info("serving: REST on port %s, gRPC on port %s", rest.port, grpc_port)
        yield


def _run_controller(settings: Settings, vitals: Vitals) -> None:
    configure_logging(settings.logs, "controller")

    async def open_backend() -> PostgresBackend:
        return await open_store(settings)

    tracing = _tracing(settings, settings.replica or socket.gethostname())
    try:
        raise SystemExit(run_controller(settings, open_backend, vitals=vitals, tracing=tracing))
    finally:
        tracing.close(settings.tracing.flush_s)


def send_messages(settings: Settings, vitals: SenderVitals) -> None:
    """The body of the process that tells receivers of jobs that ended: runs until SIGTERM."""
    configure_logging(settings.logs, "sender")
    given = settings.webhooks
    secrets, guard = Secrets(given.secrets_dir), Guard(given.reach())

    async def open_backend() -> PostgresBackend:
        return await open_store(settings, pool_size=POOL_SIZE)

    def open_poster() -> Poster:
        return Poster(guard, total_s=given.total_s, answer_bytes=given.answer_bytes)

    def sign(message: Message, at: datetime, body: bytes) -> Mapping[str, str]:
        return signed_headers(message.id, at, body, secrets.of(message.namespace))

    run_sender(given, open_backend, open_poster, sign, _rendered, vitals)


def _rendered(job: Job, now: datetime) -> bytes:
    """As REST answers it."""
    return job_status(job, now).model_dump_json(exclude_unset=True).encode()


async def _unless(
    stop: asyncio.Event, opening: Coroutine[None, None, PostgresBackend]
) -> PostgresBackend | None:
    """What `opening` gives, or None when `stop` is set before."""
    work, stopped = asyncio.create_task(opening), asyncio.create_task(stop.wait())
    await _first(work, stopped)
    return None if work.cancelled() else work.result()


async def _first(*tasks: asyncio.Task[Any]) -> None:
    """Waits for one of the tasks, then ends the others."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await end_tasks(tasks)
