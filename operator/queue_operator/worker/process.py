"""One worker process: the session's thread, the handlers, the probes, the signals."""

import asyncio
import contextlib
import logging
import signal
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextvars import copy_context
from types import FrameType
from typing import Final

from queue_operator.observing import WORKER
from queue_operator.tracing.opening import Options, open_tracing
from queue_operator.tracing.within import SERVICE
from queue_operator.worker.capture import captured
from queue_operator.worker.client import Client
from queue_operator.worker.context import WorkerIdentity
from queue_operator.worker.errors import SessionEnded, SessionRefused
from queue_operator.worker.executor import Executor
from queue_operator.worker.figures import Figures, LagWatch, figures_of, served
from queue_operator.worker.handlers import Registry
from queue_operator.worker.handoff import Handoff
from queue_operator.worker.health import serve_health
from queue_operator.worker.injection import Factory, Provider, Resource
from queue_operator.worker.processes import Processes
from queue_operator.worker.runner import Ending, Run
from queue_operator.worker.session import Session
from queue_operator.worker.settings import WorkerSettings
from queue_operator.worker.spans import FLUSH_S, Spans

logger = logging.getLogger(__name__)

CLOSE_S: Final = 1.0
SIGNAL_CHECK_S: Final = 0.5


class WorkerProcess:
    """Runs once. `abandoned` counts the handlers that had not ended when `run` returned."""

    def __init__(
        self,
        settings: WorkerSettings,
        registry: Registry,
        *,
        lifespan: Resource | None = None,
        overrides: Mapping[Factory, Factory] | None = None,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._lifespan = lifespan
        self._overrides = overrides or {}
        self._identity = WorkerIdentity(
            session_id=str(uuid.uuid4()),
            name=settings.worker_name,
            namespace=settings.namespace,
            host=settings.host,
            tags=settings.tags,
        )
        # A signal may interrupt the handling of another one, in the same thread.
        self._lock = threading.RLock()
        self._stops = 0
        self._stop: Callable[[], object] | None = None
        self._fault: BaseException | None = None
        self.abandoned = 0

    def run(self) -> None:
        """Blocks until the worker has drained.

        Raises SessionRefused or SessionEnded when the server will not have this process, and
        what the lifespan or a dependency of scope "worker" raises.
        """
        # Context variables that were set before the worker ran are every handler's.
        within = copy_context()
        within.run(WORKER.set, self._settings.worker_name)
        thread = threading.Thread(
            target=within.run, args=(self._session_thread,), name="session", daemon=True
        )
        with (
            _signals(self.stop),
            captured(self._settings.capture_logs, self._identity.session_id),
        ):
            thread.start()
            # The kernel may deliver a signal to another thread, which does not end this wait;
            # its handler runs when this thread next does.
            while thread.is_alive():
                thread.join(SIGNAL_CHECK_S)
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """As SIGTERM does: drains; the second time, hands back at once. From any thread."""
        with self._lock:
            self._stops += 1
            stop = self._stop
        if stop is not None:
            stop()

    def _session_thread(self) -> None:
        try:
            asyncio.run(self._serve())
        except (SessionRefused, SessionEnded, OSError) as error:
            self._fault = error
        except BaseException as error:
            logger.exception("the worker could not start, or its session failed")
            self._fault = error

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        post = _poster(loop)
        ended = Handoff[tuple[Run, Ending]](loop, lambda end: session.finished(*end))
        tracing = open_tracing(
            Options(
                service=SERVICE,
                attributes={"service.instance.id": self._identity.session_id},
                shared=True,
            )
        )
        spans = Spans.of(tracing, self._identity)
        executor = Executor(
            lambda run, ending: ended.put((run, ending)),
            self._registry,
            Provider(self._overrides),
            Processes(start_s=self._settings.process_start_s),
            spans,
        )
        figures = figures_of(self._settings, lambda: session.standing(connected=client.connected))
        session = Session(
            self._settings,
            self._identity,
            self._registry,
            executor,
            schedule=loop.call_later,
            post=post,
            wake=lambda: client.wake(),
            done=lambda: client.done(),
            figures=figures,
            spans=spans,
        )
        client = Client(self._settings, session)
        self._accept_stops(lambda: post(client.stop))
        self._registry.watch(announce := lambda _: post(session.announce))
        try:
            async with (
                self._metrics(figures, executor),
                self._health(
                    alive=lambda: executor.alive,
                    ready=lambda: client.connected and not (session.draining or session.stuck),
                ),
            ):
                await client.unless_done(asyncio.wrap_future(executor.open(self._lifespan)))
                await client.run()
        finally:
            self._registry.unwatch(announce)
            self.abandoned = executor.close(CLOSE_S, self._settings.close_s)
            tracing.close(FLUSH_S)

    def _accept_stops(self, stop: Callable[[], object]) -> None:
        with self._lock:
            self._stop = stop
            missed = self._stops
        for _ in range(missed):
            stop()

    @contextlib.asynccontextmanager
    async def _metrics(self, figures: Figures | None, executor: Executor) -> AsyncIterator[None]:
        """Also while the worker drains."""
        if figures is None:
            yield
            return
        loop = asyncio.get_running_loop()
        LagWatch(loop, figures.late("session")).start()
        executor.watch_lag(figures.late("handlers"))
        stop = served(self._settings, figures)
        try:
            yield
        finally:
            await asyncio.to_thread(stop)

    @contextlib.asynccontextmanager
    async def _health(
        self, *, alive: Callable[[], bool], ready: Callable[[], bool]
    ) -> AsyncIterator[None]:
        port = self._settings.health_port
        if port == 0:
            yield
            return
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(serve_health(port, alive=alive, ready=ready))
            except OSError as error:
                # A second worker on one machine should still work; in a pod the probe fails.
                logger.warning(
                    "no probes on port %d: %s; set QUEUE_OPERATOR_HEALTH_PORT to a free port, or "
                    "to 0 for none",
                    port,
                    error.strerror,
                )
            yield


def _poster(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], object]], None]:
    """Runs something on the session's loop from any thread, and in the context of variables in
    which this is called; after its end, nothing.
    """
    within = copy_context()

    def post(action: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(action, context=within)

    return post


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def caught(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, caught) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
