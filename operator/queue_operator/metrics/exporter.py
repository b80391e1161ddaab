"""Serves the metrics and keeps the gauges fresh."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry

from queue_operator import __version__
from queue_operator.backends.ending import end_tasks
from queue_operator.backends.protocol import Depths
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError
from queue_operator.metrics.gauges import Snapshot
from queue_operator.metrics.labels import LabelBudget
from queue_operator.metrics.recorder import Recorder
from queue_operator.metrics.serving import serve
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
        labels = LabelBudget()
        self.registry = CollectorRegistry()
        self.recorder = Recorder(self.registry, labels)
        self.snapshot = Snapshot(labels, __version__, replica)
        self.registry.register(self.snapshot)


class Exporter:
    """The Prometheus endpoint. `depths` and `streams` may be left out where there are none."""

    def __init__(
        self,
        metrics: Metrics,
        settings: MetricsSettings,
        clock: Clock,
        *,
        depths: Depths | None = None,
        streams: Streams | None = None,
    ) -> None:
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._depths = depths
        self._streams = streams
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._refreshing: asyncio.Task[None] | None = None
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
        self._refreshing = asyncio.create_task(self._keep_fresh(), name="metrics refresh")

    async def stop(self) -> None:
        if self._refreshing is not None:
            await end_tasks([self._refreshing])
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
        if self._depths is None:
            return
        try:
            snapshot.depth = await self._depths.queue_depth()
        except QueueError as error:
            snapshot.depth = None
            log.warning("queue depth is not known: %s", error)

    async def _keep_fresh(self) -> None:
        while True:
            try:
                await self.refresh()
            except Exception:
                # A fault in one look must not end all later ones.
                self._metrics.snapshot.depth = None
                log.exception("metrics could not be refreshed")
            await self._clock.sleep(self._settings.depth_interval_s)


def _shut_down(server: WSGIServer, thread: threading.Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join()
