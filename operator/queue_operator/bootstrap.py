"""Puts the server together: the one place that knows every part.

The parent process runs the servers and the queue in one event loop. The kopf controller runs
in a child process, because kopf cancels every task of its loop when it ends. Either of them
ending ends both.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from ctypes import c_longlong
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Any, Final

from queue_operator.api.app import create_app
from queue_operator.api.health import create_health_app
from queue_operator.api.server import RestServer
from queue_operator.auth.factory import build as build_auth
from queue_operator.backends.ending import end_tasks
from queue_operator.backends.postgres import PostgresBackend
from queue_operator.controller.ports import ControllerStats
from queue_operator.controller.startup import run_controller
from queue_operator.domain.errors import Unavailable
from queue_operator.metrics.exporter import Exporter, Metrics
from queue_operator.metrics.instrumented import instrument
from queue_operator.queue.clock import SystemClock
from queue_operator.queue.service import QueueService
from queue_operator.rpc.server import WorkerPlaneServer
from queue_operator.settings import ControllerSettings, Settings
from queue_operator.wire.certificate_files import ServerFiles

logger = logging.getLogger(__name__)

CONTROLLER_STOP_S: Final = 8.0
# Spawned, not forked: gRPC does not survive a fork.
SPAWN: Final = multiprocessing.get_context("spawn")
_SIGNALLED: Final = 128
_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 10.0


def configure_logging(level: int = logging.INFO) -> None:
    """One line per record on standard error."""
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(processName)s %(name)s: %(message)s"
    )
    # Libraries tell of every reconnect; what matters of it is logged by us, once.
    for noisy in ("psycopg.pool", "uvicorn.error", "kubernetes", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


async def open_store(settings: Settings) -> PostgresBackend:
    """The backend of the settings. Raises Unavailable when it cannot be reached."""
    database = settings.database
    return await PostgresBackend.open(
        database.dsn.get_secret_value(),
        pool_size=database.pool_size,
        limits=settings.limits.to_limits(),
        cancel_timeout_s=settings.queue.cancel_timeout_s,
        connect_timeout_s=database.connect_timeout_s,
        statement_timeout_s=database.statement_timeout_s,
        pooler=database.pooler,
        listen_dsn=database.listen_dsn.get_secret_value() if database.listen_dsn else None,
    )


class ControllerGate:
    """What the controller's process tells: whether it watches resources, for the readiness probe,
    and how many of them are over a quota, for the metrics.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._needed = settings.enabled
        self.watching = SPAWN.Event()
        self.over_quota = SPAWN.RawValue(c_longlong)

    async def check(self) -> None:
        if self._needed and not self.watching.is_set():
            raise Unavailable("the controller does not watch resources yet")

    def waiting(self) -> int | None:
        """For room in a quota; None where no controller runs."""
        return self.over_quota.value if self._needed else None


class StoreGate:
    """Stands for the store in the readiness probe, also before it could be reached."""

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
    """Runs everything until SIGTERM, SIGINT or the end of the controller; gives an exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _asked_to_stop, number, stop)
    async with AsyncExitStack() as stack:
        gate, watching = StoreGate(), ControllerGate(settings.controller)
        await stack.enter_async_context(_health(settings, gate, watching))
        opened = await _unless(stop, gate.open(settings))
        if opened is None:
            return 0
        await stack.enter_async_context(_servers(settings, opened, watching))
        if not settings.controller.enabled:
            await stop.wait()
            return 0
        controller = await stack.enter_async_context(_controller(settings, watching))
        ended = asyncio.create_task(_sentinel(controller))
        await _first(asyncio.create_task(stop.wait()), ended)
        if not stop.is_set():
            logger.error("the controller ended with exit code %s", controller.exitcode)
            return _exit_code(controller)
    return 0


def _asked_to_stop(number: signal.Signals, stop: asyncio.Event) -> None:
    logger.info("stopping: %s", number.name)
    stop.set()


@asynccontextmanager
async def _health(
    settings: Settings, store: StoreGate, controller: ControllerGate
) -> AsyncIterator[None]:
    app = create_health_app(store, {"controller": controller.check})
    server = RestServer(app, settings.health, "HEALTH")
    await server.start()
    try:
        yield
    finally:
        await server.stop()


@asynccontextmanager
async def _servers(
    settings: Settings, store: PostgresBackend, controller: ControllerGate
) -> AsyncIterator[None]:
    """The queue and its doors; stopped in reverse, so that workers hear of it first."""
    replica = settings.replica or f"{socket.gethostname()}-{os.getpid()}"
    metrics = Metrics(replica)
    backend = instrument(store, metrics.recorder)
    authenticator, authorizer = build_auth(settings.auth)
    queue = QueueService(
        backend,
        settings.queue,
        quotas=settings.quotas,
        replica=replica,
        limits=settings.limits.to_limits(),
    )
    exporter = Exporter(
        metrics,
        settings.metrics,
        SystemClock(),
        depths=store,
        streams=queue,
        over_quota=controller.waiting,
    )
    rest = RestServer(
        create_app(queue, authenticator, authorizer, settings),
        settings.rest,
        keep_alive_s=settings.rest.keep_alive_s,
        files=ServerFiles.of(settings.rest),
    )
    plane = WorkerPlaneServer(queue, authenticator, settings, authorizer)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(queue.close)
        await queue.start()
        await exporter.start()
        stack.push_async_callback(exporter.stop)
        await rest.start()
        stack.push_async_callback(rest.stop)
        grpc_port = await plane.start()
        stack.push_async_callback(plane.stop)
        logger.info("serving: REST on port %s, gRPC on port %s", rest.port, grpc_port)
        yield


@asynccontextmanager
async def _controller(settings: Settings, gate: ControllerGate) -> AsyncIterator[BaseProcess]:
    process = SPAWN.Process(
        target=_run_controller, args=(settings, gate.watching, gate.over_quota), name="controller"
    )
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.to_thread(process.join, CONTROLLER_STOP_S)
        if process.is_alive():
            logger.warning("the controller did not end in time and is killed")
            process.kill()
            await asyncio.to_thread(process.join)


def _exit_code(ended: BaseProcess) -> int:
    """Of the server whose controller has ended, which is never a success."""
    code = ended.exitcode or 1
    # A signal is a negative number here; a shell and Kubernetes write it as 128 and more.
    return code if code > 0 else _SIGNALLED - code


def _run_controller(settings: Settings, watching: Event, over_quota: c_longlong) -> None:
    configure_logging()
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()

    async def open_backend() -> PostgresBackend:
        return await open_store(settings)

    stats = ControllerStats(over_quota=over_quota)
    raise SystemExit(run_controller(settings, open_backend, stats=stats, on_ready=watching.set))


def _end_with_parent() -> None:
    """A parent that is killed can tell nobody; without this its controller would go on."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        logger.error("the server is gone, and the controller ends with it")
        os.kill(os.getpid(), signal.SIGTERM)


async def _sentinel(process: BaseProcess) -> None:
    """Returns when the process has ended."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(process.sentinel, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process.sentinel)
    process.join()


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
