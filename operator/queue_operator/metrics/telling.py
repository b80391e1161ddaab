"""What one replica of several tells of the stored jobs, and how it hands that over."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from queue_operator.backends.figures import Figures, Naming, Pair, Stock
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError
from queue_operator.metrics.job_counters import BUCKETS, JobCounters
from queue_operator.metrics.labels import MAX_NAMESPACES, MAX_PAIRS
from queue_operator.metrics.leading import Leader
from queue_operator.metrics.scrapers import LATELY_S
from queue_operator.settings import MetricsSettings

LAST_COUNT_S: Final = 4.0
"""At the end, how long what is left may take to be counted; the next replica counts the rest."""
LAST_WORD_S: Final = 1.0
"""At the end, how long each of the two smaller calls may take."""
_LINGER_STEP_S: Final = 0.05
_ANSWER_S: Final = 0.2
"""For the answer to a scrape to be on its way."""

log = logging.getLogger(__name__)


class Telling:
    """Looks at the store and counts while `leader` leads. `lag_s` is as of the last look."""

    def __init__(
        self,
        store: Figures,
        leader: Leader,
        counters: JobCounters,
        settings: MetricsSettings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._leader = leader
        self._counters = counters
        self._clock = clock
        self._linger_s = settings.linger_s
        self._naming = Naming(
            max_pairs=MAX_PAIRS,
            max_namespaces=MAX_NAMESPACES,
            unused_s=settings.unused_names_s,
        )
        self.lag_s: float | None = None
        self._lingers = False
        self._owes = False

    @property
    def shows_counters(self) -> bool:
        """While it leads, and until all who scrape were shown what it had counted by then: no other
        replica has counted that, also where its turn is over because the store was away.
        """
        return self._leader.leads or self._lingers or not self._counters.is_told

    async def look(self) -> Stock:
        """Counts what happened since the last look. Raises QueueError."""
        self.lag_s = None
        stock = await self._store.stock(self._naming)
        self._counters.keep(stock.names)
        await self._count()
        self.lag_s = await self._store.lag_s()
        return stock

    async def names(self) -> frozenset[Pair]:
        """What the replica that leads shows by name, for one that does not; takes what is left of
        a count that failed when it did. Raises QueueError.
        """
        if self._owes:
            await self._count()
        return await self._store.names()

    async def end(self) -> None:
        """Counts what is left, leaves the turn to others, and waits until what was counted has been
        scraped by all who do, for the linger time at most.
        """
        led = self._leader.leads
        faults = [await _fault_of(self._count, LAST_COUNT_S)] if led else []
        faults.append(await _fault_of(self._leader.resign, LAST_WORD_S))
        if self._owes:
            # It is another's turn now: nothing more is counted.
            faults.append(await _fault_of(self._count, LAST_WORD_S))
        if fault := next(filter(None, faults), ""):
            log.warning("the metrics of jobs end without a last look at the store: %s", fault)
        untold = led or not self._counters.is_told
        if untold and self._counters.scraped_within(LATELY_S):
            await self._linger()

    async def _count(self) -> None:
        self._owes = True
        counted = await self._store.count(self._leader.holder, self._naming, BUCKETS)
        self._owes = False
        self._counters.add(counted)

    async def _linger(self) -> None:
        """Another counts by now, from here on: the gauges are its, and the sum of both is right."""
        self._lingers = True
        until = self._clock.monotonic() + self._linger_s
        while not self._counters.is_told and self._clock.monotonic() < until:
            await self._clock.sleep(_LINGER_STEP_S)
        if untold := self._counters.untold:
            by = f" by {', '.join(sorted(untold))}" if any(untold) else ""
            log.warning(
                "the last counts of jobs were not scraped%s within %g s", by, self._linger_s
            )
        else:
            await self._clock.sleep(_ANSWER_S)


async def _fault_of(call: Callable[[], Awaitable[None]], patience_s: float) -> str:
    """Why it failed, "" if it did not. Nothing may keep the process from its end."""
    try:
        async with asyncio.timeout(patience_s):
            await call()
    except TimeoutError:
        return f"it took more than {patience_s:g} s"
    except QueueError as error:
        return str(error)
    except Exception as error:
        return repr(error)
    return ""
