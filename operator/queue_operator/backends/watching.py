"""What whoever watches a queue asks beside its statistics: how they went over time, and how long
the oldest jobs have waited.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, runtime_checkable

from queue_operator.backends.statistics import Transitions
from queue_operator.domain.job import DEFAULT_NAMESPACE

SERIES_POINTS: Final = 120
"""So many points a series has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesWindow:
    """What is asked for: the newest `time_range_s` seconds of a namespace, begun as a StatsWindow,
    and cut into steps of equal length.
    """

    namespace: str = DEFAULT_NAMESPACE
    time_range_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint(Transitions):
    """What happened from `begins_at` until the next point."""

    begins_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSeries:
    """Points `step_s` apart, none left out. The last one is not over: it ends at `until`."""

    until: datetime
    step_s: int
    points: tuple[SeriesPoint, ...]


@runtime_checkable
class Watching(Protocol):
    """Looks that are cheap, however many jobs there are."""

    async def stats_series(self, window: SeriesWindow) -> StatsSeries:
        """Everything committed before the call is in it. Raises InvalidArgument as `window_stats`
        does.
        """
        ...

    async def oldest_due(self, *, namespace: str = DEFAULT_NAMESPACE) -> Mapping[str, float]:
        """For how many seconds the oldest job that could run has been able to, by type; a type
        without such a job is not in it.
        """
        ...
