"""The arguments of the calls in `backends.watching`, checked alike for every store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from queue_operator.backends.protocol import QueueDepth
from queue_operator.backends.series import series_of
from queue_operator.backends.shelf import Shelf
from queue_operator.backends.statistics import StatsWindow
from queue_operator.backends.tallies import check_window
from queue_operator.backends.watching import SeriesWindow, StatsSeries
from queue_operator.domain.job import DEFAULT_NAMESPACE
from queue_operator.domain.validation import Limits, check_kind, check_text

_T = TypeVar("_T")


class WatchingBase(ABC):
    """Watching, but for the storage itself."""

    _limits: Limits

    async def stats_series(self, window: SeriesWindow) -> StatsSeries:
        check_kind("window", window, SeriesWindow)
        check_text("namespace", window.namespace, self._limits.id_characters)
        check_window(StatsWindow(namespace=window.namespace, time_range_s=window.time_range_s))
        return await self._series(window)

    async def oldest_due(self, *, namespace: str = DEFAULT_NAMESPACE) -> Mapping[str, float]:
        check_text("namespace", namespace, self._limits.id_characters)
        return await self._oldest_due(namespace)

    @abstractmethod
    async def _series(self, window: SeriesWindow) -> StatsSeries: ...

    @abstractmethod
    async def _oldest_due(self, namespace: str) -> Mapping[str, float]: ...


class ShelfWatching(WatchingBase):
    """Of an engine with depths."""

    _shelf: Shelf
    _clock: Callable[[], datetime]

    @abstractmethod
    async def _alone(self, work: Callable[[], _T], *, reads: bool = False) -> _T: ...

    @abstractmethod
    async def queue_depth(self) -> QueueDepth: ...

    async def _series(self, window: SeriesWindow) -> StatsSeries:
        return await self._alone(lambda: series_of(self._shelf, window, self._clock()), reads=True)

    async def _oldest_due(self, namespace: str) -> Mapping[str, float]:
        ages = (await self.queue_depth()).oldest_age_s
        return {kind: age_s for (space, kind), age_s in ages.items() if space == namespace}
