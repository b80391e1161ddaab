"""Everything that is measured of one replica, beside the jobs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import HistogramMetricFamily, Metric

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.server_figures import DatabaseFigures, Pooled, Surveyed
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError
from queue_operator.metrics import replica_table as table
from queue_operator.metrics.controlling import ControllerFigures, add_lag, shown
from queue_operator.metrics.doors import GrpcFigures, HttpFigures
from queue_operator.metrics.lag import watch_lag
from queue_operator.metrics.shown import Shown, add_histogram, by, gauge, one
from queue_operator.metrics.tally import Tally, TallyHistogram

log = logging.getLogger(__name__)

SURVEY_S: Final = 30.0
"""How often the database's own statistics are looked at, by the replica that shows them."""
_TURN_S: Final = 5.0
"""How soon a replica that has become the one to show them looks."""
_SERVER: Final = "server"

Controller = Callable[[], ControllerFigures | None]


def _nothing() -> None:
    return None


class ReplicaFigures:
    """Of this process, of `store`'s connections and of the controller, in `registry`. `http` and
    `grpc` are what the doors count with.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        store: Pooled | None = None,
        controller: Controller = _nothing,
    ) -> None:
        self.http = HttpFigures(registry)
        self.grpc = GrpcFigures(registry)
        self._lag = Tally(table.LAG_BUCKETS_S)
        self._store = store
        self._controller = controller
        if store is not None:
            store.on_wait(TallyHistogram(table.CONNECTION_WAIT, registry).of().observe)
        Shown(registry, self._show)
        for collector in (ProcessCollector, GCCollector, PlatformCollector):
            collector(registry=registry)

    @asynccontextmanager
    async def watching(self, clock: Clock) -> AsyncIterator[None]:
        """Measures the event loop that runs this, meanwhile."""
        task = asyncio.create_task(watch_lag(self._lag.observe, clock), name="event loop lag")
        try:
            yield
        finally:
            await end_tasks([task])

    def _show(self) -> Iterator[Metric]:
        lag = HistogramMetricFamily(
            table.LOOP_LAG.name, table.LOOP_LAG.help, labels=table.LOOP_LAG.labels
        )
        ours = tuple(self._lag.counts)
        add_histogram(lag, (_SERVER,), table.LAG_BUCKETS_S, ours, self._lag.total)
        controller = self._controller()
        if controller is not None:
            add_lag(lag, controller)
            yield from shown(controller)
        yield lag
        if self._store is not None:
            usage = self._store.pool_usage()
            states = {"idle": usage.idle, "busy": usage.busy}
            yield gauge(table.CONNECTIONS, by(states))
            yield gauge(table.CONNECTIONS_MAX, one(usage.most))
            yield gauge(table.CONNECTION_WAITERS, one(usage.waiters))


class Survey:
    """What the database says of itself, while `shows` says that this is the replica to show it.
    What cannot be read is not shown.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        store: Surveyed,
        clock: Clock,
        shows: Callable[[], bool],
    ) -> None:
        self._store = store
        self._clock = clock
        self._shows = shows
        self._found: DatabaseFigures | None = None
        self._said = ""
        Shown(registry, self._show)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Looks now and then, meanwhile."""
        task = asyncio.create_task(self._run(), name="database survey")
        try:
            yield
        finally:
            await end_tasks([task])

    async def _run(self) -> None:
        due_s = self._clock.monotonic()
        while True:
            if not self._shows():
                self._found, due_s = None, self._clock.monotonic()
            elif self._clock.monotonic() >= due_s:
                due_s = self._clock.monotonic() + SURVEY_S
                await self.look()
            await self._clock.sleep(_TURN_S)

    async def look(self) -> None:
        """Once. Says of each new kind of failure what it is, and no more."""
        try:
            self._found = await self._store.database_figures()
        except QueueError as error:
            self._failed(str(error))
        except Exception as error:
            self._failed(repr(error))
        else:
            self._said = ""

    def _failed(self, why: str) -> None:
        self._found = None
        if why != self._said:
            self._said = why
            log.warning("the database's statistics are not known: %s", why)

    def _show(self) -> Iterator[Metric]:
        found = self._found
        if found is None or not self._shows():
            return
        if found.size_bytes is not None:
            yield gauge(table.DATABASE_SIZE, one(found.size_bytes))
        yield gauge(table.TABLE_BYTES, by(found.table_bytes))
        yield gauge(table.DEAD_ROWS, by(found.dead_rows))
        if found.oldest_transaction_s is not None:
            yield gauge(table.OLDEST_TRANSACTION, one(found.oldest_transaction_s))
        if found.connections is not None:
            yield gauge(table.DATABASE_CONNECTIONS, by(found.connections))
