"""What is told to those who follow jobs at this replica."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from queue_operator.metrics import replica_table as table
from queue_operator.metrics.shown import Shown, counter, gauge, one


class Hub(Protocol):
    """How many follow, how many events were told, and how many were too slow for them."""

    @property
    def streams(self) -> int: ...

    @property
    def sent(self) -> int: ...

    @property
    def slow(self) -> int: ...


class StreamFigures:
    """Of one hub."""

    def __init__(self, registry: CollectorRegistry, hub: Hub) -> None:
        self._hub = hub
        Shown(registry, self._show)

    def _show(self) -> Iterator[Metric]:
        yield gauge(table.EVENT_STREAMS, one(self._hub.streams))
        yield counter(table.EVENTS_SENT, one(self._hub.sent))
        yield counter(table.EVENT_STREAMS_SLOW, one(self._hub.slow))
