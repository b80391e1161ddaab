"""What is shown of messages to callback URLs: what the sender of this replica did, and, by the
replica that leads, how many there are.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily, Metric

from queue_operator.backends.ending import end_tasks
from queue_operator.backends.figures import OTHER
from queue_operator.backends.webhooks import MessageStock
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError
from queue_operator.metrics import replica_table as table
from queue_operator.metrics.labels import MAX_NAMESPACES
from queue_operator.metrics.shown import Shown, add_histogram, by, counter, gauge, one

log = logging.getLogger(__name__)

_TURN_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderFigures:
    """What is counted of the sender of this replica. Counters go on when its process is started
    again. `seconds` are by `table.DELIVERY_BUCKETS_S`, with those above all of them.
    """

    outcomes: Mapping[str, int]
    seconds: Sequence[int] = (0,) * (len(table.DELIVERY_BUCKETS_S) + 1)
    seconds_total: float = 0.0
    restarts: int = 0
    cpu_s: float = 0.0
    resident_bytes: int | None = None


class Stock(Protocol):
    """The part of an outbox that is asked."""

    async def stock(self) -> MessageStock: ...


class WebhookFigures:
    """In `registry`: what `sender` says, and what `outbox` holds, while `shows` says that this is
    the replica to show it.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        outbox: Stock,
        sender: Callable[[], SenderFigures | None],
        clock: Clock,
        shows: Callable[[], bool],
    ) -> None:
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._shows = shows
        self._stock: MessageStock | None = None
        self._said = ""
        Shown(registry, self._show)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Looks now and then, meanwhile."""
        task = asyncio.create_task(self._run(), name="stock of messages")
        try:
            yield
        finally:
            await end_tasks([task])

    async def _run(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(_TURN_S)

    async def look(self) -> None:
        """Once. Says of each new kind of failure what it is, and no more."""
        if not self._shows():
            self._stock = None
            return
        try:
            self._stock = await self._outbox.stock()
            self._said = ""
        except Exception as error:
            why = str(error) if isinstance(error, QueueError) else repr(error)
            self._stock = None
            if why != self._said:
                self._said = why
                log.warning("how many messages there are is not known: %s", why)

    def _show(self) -> Iterator[Metric]:
        if (sender := self._sender()) is not None:
            yield counter(table.DELIVERIES, by(sender.outcomes))
            seconds = HistogramMetricFamily(
                table.DELIVERY_SECONDS.name, table.DELIVERY_SECONDS.help
            )
            add_histogram(
                seconds, (), table.DELIVERY_BUCKETS_S, sender.seconds, sender.seconds_total
            )
            yield seconds
            yield counter(table.SENDER_RESTARTS, one(sender.restarts))
            yield counter(table.SENDER_CPU, one(sender.cpu_s))
            if sender.resident_bytes is not None:
                yield gauge(table.SENDER_MEMORY, one(sender.resident_bytes))
        stock = self._stock
        if stock is not None and self._shows():
            shown = _shown(stock)
            yield gauge(table.MESSAGES_PENDING, by(_of(stock.pending, shown)))
            yield gauge(table.MESSAGES_FAILED, by(_of(stock.failed, shown)))
            yield gauge(table.OLDEST_DUE, one(stock.oldest_due_s))


def _shown(stock: MessageStock) -> frozenset[str]:
    """The namespaces with most of them, by name."""
    both = {name: stock.pending.get(name, 0) for name in (*stock.pending, *stock.failed)}
    most = sorted(both, key=lambda name: (-both[name] - stock.failed.get(name, 0), name))
    return frozenset(most[:MAX_NAMESPACES])


def _of(counts: Mapping[str, int], shown: frozenset[str]) -> dict[str, float]:
    """Namespaces that are not shown by name are `other` together."""
    found = dict.fromkeys(shown, 0.0)
    for name, count in counts.items():
        place = name if name in shown else OTHER
        found[place] = found.get(place, 0.0) + count
    return found
