"""Serves the metrics and keeps the gauges fresh."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from queue_operator import __version__
from queue_operator.backends.ending import end_tasks
from queue_operator.backends.figures import Figures, Stock
from queue_operator.backends.protocol import Depths
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError
from queue_operator.metrics.gauges import Snapshot, stock_of
from queue_operator.metrics.job_counters import JobCounters
from queue_operator.metrics.labels import LabelBudget
from queue_operator.metrics.leading import Leader, LeaderOnly
from queue_operator.metrics.recorder import Recorder
from queue_operator.metrics.serving import serve
from queue_operator.metrics.telling import Telling
from queue_operator.queue.protocol import StreamUsage
from queue_operator.settings import MetricsSettings
from queue_operator.wire.listening import refusal

log = logging.getLogger(__name__)


class Streams(Protocol):
    """The part of the queue service that knows its open streams."""

    def usage(self) -> Sequence[StreamUsage]: ...


class Metrics:
    """Everything that is measured in one process."""

    def __init__(self, replica: str = "") -> None:
        self.labels = LabelBudget()
        self.registry = CollectorRegistry()
        self.recorder = Recorder(self.registry, self.labels)
        self.snapshot = Snapshot(__version__, replica)
        self.registry.register(self.snapshot)

    def register(self, collector: Collector, *, leader_only: bool = False) -> None:
        """Shows also what `collector` collects; with `leader_only` on the replica alone whose turn
        it is, as what is the same on all of them.
        """
        shown = LeaderOnly(collector, lambda: self.snapshot.leads()) if leader_only else collector
        self.registry.register(shown)


class Exporter:
    """The Prometheus endpoint. `figures` of a store that others share are shown by one of them,
    with counters of what happens to jobs; of a store of this process alone `depths` are. Each part
    may be left out where there is none.
    """

    def __init__(
        self,
        metrics: Metrics,
        settings: MetricsSettings,
        clock: Clock,
        *,
        figures: Figures | None = None,
        depths: Depths | None = None,
        streams: Streams | None = None,
    ) -> None:
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._leader = Leader(figures, clock, settings.leader_s)
        metrics.snapshot.leads = lambda: self._leader.leads
        self._telling: Telling | None = None
        if figures is not None:
            counters = JobCounters(self._shows_counters, clock.monotonic)
            self._telling = Telling(figures, self._leader, counters, settings, clock)
            metrics.registry.register(counters)
        self._depths = depths
        self._streams = streams
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # So that an earlier look never replaces what a later one found.
        self._looking = asyncio.Lock()

    @property
    def port(self) -> int:
        """The bound port. Raises RuntimeError before `start`."""
        if self._server is None:
            raise RuntimeError("the exporter has not been started")
        return self._server[0].server_port

    async def start(self) -> None:
        """Serves from here on. Raises OSError when the address is taken."""
        host, port = self._settings.host, self._settings.port
        try:
            self._server = serve(host, port, self._metrics.registry)
        except OSError as error:
            told = refusal("metrics", host, port, error, "METRICS")
            raise OSError(told) from None
        self._tasks = [asyncio.create_task(self._keep_fresh(), name="metrics refresh")]
        if self._telling is not None:
            leading = asyncio.create_task(self._keep_leading(), name="leading the metrics")
            self._tasks.append(leading)

    async def stop(self) -> None:
        """First leaves what was counted to be scraped: see `Telling`."""
        await end_tasks(self._tasks)
        if self._telling is not None:
            await self._telling.end()
        if self._server is not None:
            server, thread = self._server
            # Both wait for the serving thread, which the event loop must not do.
            await asyncio.to_thread(_shut_down, server, thread)

    async def refresh(self) -> None:
        """Looks once; a look that fails takes the gauges back until one succeeds."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        snapshot = self._metrics.snapshot
        if self._streams is not None:
            snapshot.usage = tuple(self._streams.usage())
        if self._telling is None and self._depths is None:
            return
        if not self._leader.leads:
            snapshot.stock = snapshot.lag_s = None
            if self._telling is not None:
                await self._learn(self._telling)
            return
        try:
            snapshot.stock = await self._stock()
        except QueueError as error:
            self._tell("how many jobs there are is not known", error)
            self._withdraw()
        else:
            snapshot.store_up = True

    async def _learn(self, telling: Telling) -> None:
        """What the replica that leads shows by name, so that this one does too."""
        snapshot = self._metrics.snapshot
        try:
            snapshot.names = await telling.names()
        except QueueError as error:
            self._tell("what the metrics show by name is not known", error)
            snapshot.store_up = False

    async def _stock(self) -> Stock | None:
        snapshot = self._metrics.snapshot
        if self._telling is not None:
            stock = await self._telling.look()
            snapshot.lag_s = self._telling.lag_s
            snapshot.names = stock.names
            return stock
        if self._depths is not None:
            return stock_of(await self._depths.queue_depth(), self._metrics.labels)
        return None

    def _withdraw(self) -> None:
        snapshot = self._metrics.snapshot
        snapshot.stock = snapshot.lag_s = None
        snapshot.store_up = False

    def _tell(self, what: str, error: QueueError) -> None:
        """Once for each outage of the store."""
        if self._metrics.snapshot.store_up is not False:
            log.warning("%s: %s", what, error)

    def _shows_counters(self) -> bool:
        return self._telling is not None and self._telling.shows_counters

    async def lead(self) -> None:
        """Takes the turn to show the figures about the stored jobs, or keeps it; with its first
        look, where it is new.
        """
        led, snapshot = self._leader.leads, self._metrics.snapshot
        try:
            await self._leader.beat()
        except QueueError as error:
            self._tell("whose turn the metrics are is not known", error)
            snapshot.store_up = False
            return
        if not self._leader.leads:
            snapshot.store_up = True
        elif not led:
            await self.refresh()

    async def _keep_leading(self) -> None:
        while True:
            try:
                await self.lead()
            except Exception:
                # A fault in one beat must not end all later ones.
                log.exception("whose turn the metrics are is not known")
            await self._clock.sleep(self._leader.beat_s)

    async def _keep_fresh(self) -> None:
        while True:
            try:
                await self.refresh()
            except Exception:
                # A fault in one look must not end all later ones.
                self._withdraw()
                log.exception("metrics could not be refreshed")
            await self._clock.sleep(self._settings.depth_interval_s)


def _shut_down(server: WSGIServer, thread: threading.Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()
