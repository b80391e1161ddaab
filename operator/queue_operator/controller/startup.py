"""Putting the controller together, and ending it: kopf and our loops in one event loop."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

import uvloop

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.protocol import Topic
from queue_operator.controller import handlers
from queue_operator.controller.credentials import Credentials
from queue_operator.controller.deferred import Deferred
from queue_operator.controller.intake import Intake, IntakeRules
from queue_operator.controller.kube import ApiError, KubeClient
from queue_operator.controller.pacing import MonotonicClock, backoff_s
from queue_operator.controller.ports import BackendFactory, ControllerBackend, ControllerStats
from queue_operator.controller.preflight import check_cluster
from queue_operator.controller.projection import StatusWriter
from queue_operator.controller.queueworker import WorkerMirror
from queue_operator.controller.readmission import Readmission
from queue_operator.controller.resync import Resync
from queue_operator.controller.sightings import Sightings
from queue_operator.domain.errors import QueueError, Unavailable
from queue_operator.queue.quotas import Quotas
from queue_operator.settings import Settings

logger = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
CLOSE_TIMEOUT_S: Final = 2.0
LINGER_S: Final = 0.1
"""TLS connections that a cancelled request drops say goodbye in the background."""

_Result = TypeVar("_Result")


def run_controller(
    settings: Settings,
    backend_factory: BackendFactory,
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    stats: ControllerStats | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> int:
    """The body of the controller's process: runs until SIGTERM or SIGINT, gives an exit code.

    `on_ready` is called once resources are watched.

    1 when the API server stays away, the resources are not installed or kopf fails, after
    one line in the log that says what to do. A supervisor should start it again.
    """
    # One line per event and object is kopf's habit; at our rates it would drown the log.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            _guarded(
                settings, backend_factory, kubeconfig, context, stats or ControllerStats(), on_ready
            )
        )


async def _guarded(
    settings: Settings,
    backend_factory: BackendFactory,
    kubeconfig: str | None,
    context: str | None,
    stats: ControllerStats,
    on_ready: Callable[[], None],
) -> int:
    stop, ready = asyncio.Event(), asyncio.Event()
    telling = asyncio.create_task(_tell(ready, on_ready))
    try:
        await serve_controller(
            settings,
            backend_factory,
            stop=stop,
            kubeconfig=kubeconfig,
            context=context,
            stats=stats,
            ready=ready,
            take_signals=True,
        )
    except (QueueError, ApiError) as error:
        logger.error("the controller ends: %s", error)
        return EXIT_FAILED
    except Exception:
        logger.exception("the controller ends")
        return EXIT_FAILED
    finally:
        telling.cancel()
    return EXIT_OK


async def _tell(ready: asyncio.Event, on_ready: Callable[[], None]) -> None:
    await ready.wait()
    on_ready()


async def serve_controller(
    settings: Settings,
    backend_factory: BackendFactory,
    *,
    stop: asyncio.Event,
    kubeconfig: str | None = None,
    context: str | None = None,
    stats: ControllerStats | None = None,
    ready: asyncio.Event | None = None,
    take_signals: bool = False,
) -> None:
    """Runs until `stop` is set; sets `ready` once resources are watched.

    Raises NotReady or Unavailable at the start, and whatever ended kopf later.
    """
    if take_signals:
        _stop_on_signals(stop)
    credentials = Credentials.load(kubeconfig, context)
    async with KubeClient(credentials) as kube:
        started = await _or_stop(_start(settings, backend_factory, kube), stop)
        if started is None:
            return
        backend, cluster_uid = started
        controller = Controller(settings, backend, kube, cluster_uid, stats or ControllerStats())
        try:
            await controller.run(credentials, stop, ready or asyncio.Event(), take_signals)
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(backend.close(), CLOSE_TIMEOUT_S)


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def _start(
    settings: Settings, backend_factory: BackendFactory, kube: KubeClient
) -> tuple[ControllerBackend, str]:
    cluster_uid = await check_cluster(kube, MonotonicClock())
    failures = 0
    while True:
        try:
            return await backend_factory(), cluster_uid
        except Unavailable as error:
            failures += 1
            if failures == 1:
                logger.warning("the controller waits for the database: %s", error)
            await asyncio.sleep(backoff_s(failures))


async def _or_stop(work: Coroutine[Any, Any, _Result], stop: asyncio.Event) -> _Result | None:
    """The result of `work`, or None when `stop` is set first."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        await _cancel((task, stopped))


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await end_tasks(tasks)


def _raise_first(tasks: Collection[asyncio.Task[Any]]) -> None:
    """A loop of ours never ends by itself: if one did, that is the reason we end."""
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()):
            raise error
    for task in tasks:
        if task.done():
            raise Unavailable(f"{task.get_name()} ended; the controller must be started again")


def _rules(settings: Settings, cluster_uid: str) -> IntakeRules:
    limits = settings.limits
    return IntakeRules(
        cluster_uid,
        replace(limits.to_limits(), payload_bytes=limits.resource_payload_bytes),
        limits.json_depth,
    )


class Controller:
    """The parts of one running controller."""

    def __init__(
        self,
        settings: Settings,
        backend: ControllerBackend,
        kube: KubeClient,
        cluster_uid: str,
        stats: ControllerStats,
    ) -> None:
        clock = MonotonicClock()
        sightings, deferred = Sightings(), Deferred()
        quotas = Quotas(backend, settings.quotas, clock, settings.limits.to_limits())
        served = settings.controller.namespaces
        self._backend = backend
        self._settings = settings
        self.writer = StatusWriter(
            backend,
            kube,
            sightings,
            cluster_uid=cluster_uid,
            namespaces=served,
            rate_per_s=settings.controller.status_writes_per_s,
            clock=clock,
            stats=stats,
        )
        self.intake = Intake(
            backend,
            kube,
            self.writer,
            sightings,
            _rules(settings, cluster_uid),
            quotas,
            deferred,
            settings.controller,
            clock,
            stats,
        )
        self.readmission = Readmission(deferred, quotas, self.intake, kube, clock)
        self.resync = Resync(
            backend,
            kube,
            self.intake,
            self.writer,
            sightings,
            deferred,
            cluster_uid=cluster_uid,
            namespaces=served,
            clock=clock,
            stats=stats,
        )
        self.workers = WorkerMirror(backend, kube, namespaces=served, clock=clock, stats=stats)

    async def run(
        self,
        credentials: Credentials,
        stop: asyncio.Event,
        ready: asyncio.Event,
        take_signals: bool,
    ) -> None:
        # kopf, when it ends, also ends every task that was started after it: ours come first.
        loops = [
            asyncio.create_task(self.intake.run(), name="intake"),
            asyncio.create_task(self.readmission.run(), name="readmission"),
            asyncio.create_task(self.writer.run(), name="status writer"),
            asyncio.create_task(self.workers.run(), name="worker mirror"),
            asyncio.create_task(self._listen(), name="listener"),
            asyncio.create_task(
                self.resync.run(self._settings.controller.resync_s), name="comparison"
            ),
            asyncio.create_task(self._started(stop, ready, take_signals), name="readiness"),
        ]
        stopped = asyncio.create_task(stop.wait(), name="stop")
        served = self._settings.controller.namespaces
        watch = asyncio.create_task(
            handlers.watch(self.intake, credentials, served, ready), name="watch"
        )
        vital = [*loops[:-1], watch]
        try:
            await asyncio.wait((stopped, *vital), return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                _raise_first(vital)
        finally:
            await _cancel((*loops, stopped))
            await _cancel((watch,))
            await asyncio.sleep(LINGER_S)

    async def _started(self, stop: asyncio.Event, ready: asyncio.Event, take_signals: bool) -> None:
        await ready.wait()
        logger.info("watching QueueJobs")
        if take_signals:
            # kopf has taken them; its own end would leave our loops running.
            _stop_on_signals(stop)

    async def _listen(self) -> None:
        wake = {Topic.MIRROR: self.writer.notice, Topic.SESSION: self.workers.notice}
        failures = 0
        while True:
            try:
                async for news in self._backend.listen():
                    failures = 0
                    for topic in news.keys() & wake.keys():
                        wake[topic]()
            except Unavailable:
                failures += 1
            await asyncio.sleep(backoff_s(failures + 1))
