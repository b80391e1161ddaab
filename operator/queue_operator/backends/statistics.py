"""Rates, percentiles and counts over a span of time, from the store's own minute roll-ups.

Part of `backends.protocol`, which is where to import it from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable

from queue_operator.domain.job import DEFAULT_NAMESPACE
from queue_operator.domain.ordering import Priority
from queue_operator.domain.views import Phase

MAX_TIME_RANGE_S = 399 * 86_400.0
"""How far back windows may reach."""


class Breakdown(StrEnum):
    """`StatsQuery.breakdown_by` of `external-api.md`."""

    TYPE = "TYPE"
    PRIORITY = "PRIORITY"
    STATE = "STATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """`Counts` of `external-api.md`: pending and running are those of now (pending: all that
    waits, delayed and retrying included), the others, each a way to end, those of the window.
    """

    pending: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """`LatencyStats`, in microseconds; None where nothing was measured. `max_us` is exact,
    the percentiles are those of `domain.histogram`.
    """

    p50_us: int | None = None
    p90_us: int | None = None
    p99_us: int | None = None
    max_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsWindow:
    """What is asked for: the newest `time_range_s` seconds of a namespace, at most
    MAX_TIME_RANGE_S, begun at a full minute, so that the window is up to a minute longer. One of
    nearly three days or more begins at a full hour, of nearly 35 or more at a full day (UTC).
    """

    namespace: str = DEFAULT_NAMESPACE
    time_range_s: float = 3600.0
    breakdown_by: frozenset[Breakdown] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """What happened to jobs within some time. `submitted` is what `submission_rate` is made of,
    `attempts_failed` every attempt that failed, tried again or not.
    """

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0
    attempts_failed: int = 0
    queue_latency: Latency = field(default_factory=Latency)
    execution_time: Latency = field(default_factory=Latency)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStats(Transitions):
    """`QueueStats` of `external-api.md`. `pending` to `delayed` count jobs of now by phase
    (`delayed`: DELAYED, and RETRYING before its time; `scheduled`: SCHEDULED, and RETRYING when
    due). The transitions are those of the window `[since, until]`; rates are theirs per second of
    the window. With TYPE, `due_by_type` are the jobs of now that could run, and `failed_by_type`
    is `attempts_failed`, each without the types that have none.
    """

    since: datetime
    until: datetime
    pending: int = 0
    scheduled: int = 0
    running: int = 0
    delayed: int = 0
    by_type: Mapping[str, Counts] = field(default_factory=dict)
    by_priority: Mapping[Priority, Counts] = field(default_factory=dict)
    by_phase: Mapping[Phase, Counts] = field(default_factory=dict)
    due_by_type: Mapping[str, int] = field(default_factory=dict)
    failed_by_type: Mapping[str, int] = field(default_factory=dict)


@runtime_checkable
class Statistics(Protocol):
    """The operator's own roll-ups, right without any pipeline."""

    async def roll_up(self, *, limit: int = 1000) -> int:
        """Adds rows of the event log that are not in the roll-ups yet, on one replica at a time,
        and gives how many: fewer than `limit` when that was all, else a few more perhaps. Misses
        none that commits late. A store that counts at once has nothing to add, and gives 0. Also
        forgets what is too old for any window.
        """
        ...

    async def window_stats(self, window: StatsWindow) -> WindowStats:
        """Everything committed before the call is in it. Raises InvalidArgument for a range
        that is not positive or too long.
        """
        ...
