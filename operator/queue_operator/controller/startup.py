"""Putting the controller together, and ending it: kopf and our loops in one event loop."""

import asyncio
import contextlib
import logging
import signal
import traceback
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import aiohttp
import uvloop

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.protocol import Topic
from queue_operator.controller import handlers
from queue_operator.controller.catching_up import CatchUp
from queue_operator.controller.credentials import Credentials
from queue_operator.controller.deferred import Deferred
from queue_operator.controller.edits import FinishedEdits
from queue_operator.controller.figures import counting
from queue_operator.controller.intake import Intake
from queue_operator.controller.kube import API, ApiError, KubeClient
from queue_operator.controller.ownership import Ownership
from queue_operator.controller.pacing import MonotonicClock, backoff_s
from queue_operator.controller.ports import BackendFactory, ControllerBackend, ControllerStats
from queue_operator.controller.preflight import await_cluster
from queue_operator.controller.projection import StatusWriter
from queue_operator.controller.readmission import Readmission
from queue_operator.controller.recorder import EventRecorder
from queue_operator.controller.resync import Resync
from queue_operator.controller.sighting import IntakeRules
from queue_operator.controller.sightings import Sightings
from queue_operator.controller.vitals import BEAT_S, Standing, Vitals
from queue_operator.controller.workermirror import WorkerMirror
from queue_operator.domain.errors import QueueError, Unavailable
from queue_operator.metrics.lag import watch_lag
from queue_operator.queue.quotas import Quotas
from queue_operator.settings import Settings
from queue_operator.tracing.off import OFF
from queue_operator.tracing.protocol import Tracing

logger = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
CLOSE_TIMEOUT_S: Final = 2.0
LOOK_S: Final = 10.0
LINGER_S: Final = 0.1
"""TLS connections that a cancelled request drops say goodbye in the background."""
_KOPF: Final = "/kopf/"

_Result = TypeVar("_Result")


def run_controller(
    settings: Settings,
    backend_factory: BackendFactory,
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    stats: ControllerStats | None = None,
    vitals: Vitals | None = None,
    tracing: Tracing = OFF,
) -> int:
    """The body of the controller's process: runs until SIGTERM or SIGINT, gives an exit code.

    1 when kopf or a loop of ours fails, after one line in the log. A supervisor starts it again.
    """
    # One line per event and object is kopf's habit; at our rates it would drown the log.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    for module in ("running", "orchestration"):
        logging.getLogger(f"kopf._core.reactor.{module}").addFilter(_without_story)
    vitals = vitals or Vitals()
    given = stats or ControllerStats(
        over_quota=vitals.over_quota,
        refused_namespaces=vitals.refused,
        figures=vitals.figures,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            _guarded(settings, backend_factory, kubeconfig, context, given, vitals, tracing)
        )


def _without_story(record: logging.LogRecord) -> bool:
    """What ends a task of kopf is told in a line; where it came from helps nobody."""
    record.exc_info = None
    return True


def _unless_of_kopf(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Of several tasks of kopf that end with one error, nobody asks all; and at its end a callback
    of its fails that wants to cancel a request, and a watch that does not let itself be closed.
    """
    if not _is_of_kopf(context):
        loop.default_exception_handler(context)


def _is_of_kopf(context: dict[str, Any]) -> bool:
    task = context.get("future")
    if isinstance(task, asyncio.Task):
        code = getattr(task.get_coro(), "cr_code", None)
        return code is not None and _KOPF in code.co_filename
    code = getattr(context.get("asyncgen"), "ag_code", None)
    if code is not None:
        return _KOPF in code.co_filename
    error = context.get("exception")
    frames = list(traceback.walk_tb(error.__traceback__ if error else None))
    return bool(frames) and _KOPF in frames[-1][0].f_code.co_filename


async def _guarded(
    settings: Settings,
    backend_factory: BackendFactory,
    kubeconfig: str | None,
    context: str | None,
    stats: ControllerStats,
    vitals: Vitals,
    tracing: Tracing,
) -> int:
    asyncio.get_running_loop().set_exception_handler(_unless_of_kopf)
    try:
        await serve_controller(
            settings,
            backend_factory,
            stop=asyncio.Event(),
            kubeconfig=kubeconfig,
            context=context,
            stats=stats,
            vitals=vitals,
            take_signals=True,
            tracing=tracing,
        )
    except (QueueError, ApiError) as error:
        logger.error("the controller ends: %s", error)
        return EXIT_FAILED
    except Exception:
        logger.exception("the controller ends")
        return EXIT_FAILED
    return EXIT_OK


async def serve_controller(
    settings: Settings,
    backend_factory: BackendFactory,
    *,
    stop: asyncio.Event,
    kubeconfig: str | None = None,
    context: str | None = None,
    stats: ControllerStats | None = None,
    ready: asyncio.Event | None = None,
    vitals: Vitals | None = None,
    take_signals: bool = False,
    tracing: Tracing = OFF,
) -> None:
    """Runs until `stop` is set; sets `ready` once resources are watched. At the start it waits for
    the API server, the resources' definitions and the database as long as it takes.

    Raises whatever ended kopf or a loop of ours.
    """
    if take_signals:
        _stop_on_signals(stop)
    vitals, ready = vitals or Vitals(), ready or asyncio.Event()
    stats = stats or ControllerStats(figures=vitals.figures)
    figures, traces = stats.figures, [counting(stats.figures)]
    credentials = Credentials.load(kubeconfig, context)
    # Begun before kopf, which ends every task that is younger than itself.
    own = [
        asyncio.create_task(_beat(vitals), name="beat"),
        asyncio.create_task(watch_lag(figures.observe_lag, MonotonicClock()), name="lag"),
    ]
    try:
        async with KubeClient(credentials, traces=traces) as kube:
            started = await _or_stop(_start(settings, backend_factory, kube), stop)
            if started is None:
                return
            controller = Controller(settings, kube, started, stats, tracing)
            try:
                await controller.run(credentials, stop, ready, vitals, take_signals, traces)
            finally:
                await _close(started.backend)
    finally:
        await _cancel(own)


async def _beat(vitals: Vitals) -> None:
    while True:
        vitals.beat()
        await asyncio.sleep(BEAT_S)


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


@dataclass(frozen=True, slots=True)
class Started:
    """What has to be there before anything is served."""

    backend: ControllerBackend
    cluster_uid: str
    queue_uid: str


async def _start(settings: Settings, backend_factory: BackendFactory, kube: KubeClient) -> Started:
    cluster_uid = await await_cluster(kube, MonotonicClock())
    failures = 0
    while True:
        try:
            backend = await backend_factory()
            try:
                return Started(backend, cluster_uid, await backend.queue_uid())
            except BaseException:
                await backend.close()
                raise
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


async def _close(backend: ControllerBackend) -> None:
    """kopf, when it ends, cancels tasks of the backend's too, and closing it meets them: that is no
    cancel of ours.
    """
    closing = asyncio.create_task(backend.close())
    await asyncio.wait((closing,), timeout=CLOSE_TIMEOUT_S)
    if not closing.done():
        await _cancel((closing,))
    elif not closing.cancelled():
        closing.result()


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
        replace(settings.to_limits(), payload_bytes=limits.resource_payload_bytes),
        limits.json_depth,
    )


class Controller:
    """The parts of one running controller."""

    def __init__(
        self,
        settings: Settings,
        kube: KubeClient,
        started: Started,
        stats: ControllerStats,
        tracing: Tracing = OFF,
    ) -> None:
        clock, rules = MonotonicClock(), _rules(settings, started.cluster_uid)
        backend, served = started.backend, settings.controller.namespaces
        sightings, deferred = Sightings(), Deferred()
        quotas = Quotas(backend, settings.quotas, clock, settings.to_limits())
        self._backend = backend
        self._kube = kube
        self._settings = settings.controller
        self.ownership = Ownership(
            kube, started.queue_uid, served, clock, stats, resync_s=settings.controller.resync_s
        )
        self.recorder = EventRecorder(kube, clock)
        self.writer = StatusWriter(
            backend,
            kube,
            sightings,
            self.ownership,
            cluster_uid=started.cluster_uid,
            namespaces=served,
            rate_per_s=settings.controller.status_writes_per_s,
            clock=clock,
            stats=stats,
            recorder=self.recorder if settings.controller.events else None,
        )
        self.intake = Intake(
            backend,
            kube,
            self.writer,
            sightings,
            rules,
            quotas,
            deferred,
            self.ownership,
            settings.controller,
            clock,
            stats,
            tracing,
        )
        self.catch_up = CatchUp(self.intake, kube, served, clock)
        self.readmission = Readmission(deferred, quotas, self.intake, kube, clock)
        self.resync = Resync(
            backend,
            kube,
            self.intake,
            self.writer,
            sightings,
            deferred,
            self.ownership,
            cluster_uid=started.cluster_uid,
            namespaces=served,
            clock=clock,
            stats=stats,
        )
        self.edits = FinishedEdits(kube, self.ownership, served, clock, stats)
        self.workers = WorkerMirror(
            backend, kube, self.ownership, namespaces=served, clock=clock, stats=stats
        )

    async def run(
        self,
        credentials: Credentials,
        stop: asyncio.Event,
        ready: asyncio.Event,
        vitals: Vitals,
        take_signals: bool,
        traces: Sequence[aiohttp.TraceConfig],
    ) -> None:
        # kopf, when it ends, also ends every task that was started after it: ours come first.
        resync_s = self._settings.resync_s
        loops = {
            "ownership": self.ownership.run(),
            "intake": self.intake.run(),
            "list": self.catch_up.run(),
            "stand-ins": self.intake.stand_ins.run(),
            "priorities": self.intake.priorities.run(),
            "readmission": self.readmission.run(),
            "status writer": self.writer.run(),
            "Events": self.recorder.run(),
            "worker mirror": self.workers.run(resync_s),
            "edits": self.edits.run(),
            "listener": self._listen(),
            "comparison": self.resync.run(resync_s),
            "standing": self._stand(ready, vitals),
        }
        ours = [asyncio.create_task(loop, name=name) for name, loop in loops.items()]
        started = asyncio.create_task(self._started(stop, ready, take_signals), name="readiness")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        watch = asyncio.create_task(
            handlers.watch(
                self.intake, self.workers, credentials, self._settings.namespaces, ready, traces
            ),
            name="watch",
        )
        vital = [*ours, watch]
        try:
            await asyncio.wait((stopped, *vital), return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                _raise_first(vital)
        finally:
            await _cancel((*ours, started, stopped))
            await _cancel((watch,))
            await asyncio.sleep(LINGER_S)

    async def _started(self, stop: asyncio.Event, ready: asyncio.Event, take_signals: bool) -> None:
        await ready.wait()
        logger.info("watching QueueJobs")
        if take_signals:
            # kopf has taken them; its own end would leave our loops running.
            _stop_on_signals(stop)

    async def _stand(self, ready: asyncio.Event, vitals: Vitals) -> None:
        """Says whether the API server answers, from when resources are watched on."""
        await ready.wait()
        while True:
            try:
                await self._kube.get(API)
                vitals.stand(Standing.SERVING)
            except (ApiError, Unavailable):
                vitals.stand(Standing.CUT_OFF)
            await asyncio.sleep(LOOK_S)

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
