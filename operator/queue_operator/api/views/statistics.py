"""How the queue does."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from queue_operator.api import schemas
from queue_operator.backends.statistics import (
    Breakdown,
    Counts,
    Latency,
    StatsWindow,
    WindowStats,
)
from queue_operator.domain.job import JobStats
from queue_operator.domain.states import JobState


def queue_stats(window: StatsWindow, stats: WindowStats, now: JobStats) -> schemas.QueueStats:
    """Both answers in one."""
    seconds = max((stats.until - stats.since).total_seconds(), 1.0)
    return schemas.QueueStats(
        since=stats.since,
        until=stats.until,
        pending=stats.pending,
        scheduled=stats.scheduled,
        running=stats.running,
        delayed=stats.delayed,
        completed=stats.completed,
        failed=stats.failed,
        dead_letter=stats.dead_letter,
        submission_rate=stats.submitted / seconds,
        completion_rate=stats.completed / seconds,
        failure_rate=(stats.failed + stats.dead_letter) / seconds,
        queue_latency=latency(stats.queue_latency),
        execution_time=latency(stats.execution_time),
        total=now.total_jobs,
        total_retries=now.total_retries,
        counts={state: now.by_state.get(state, 0) for state in JobState},
        **_breakdowns(window, stats),
    )


def _breakdowns(window: StatsWindow, stats: WindowStats) -> dict[str, Any]:
    found: dict[Breakdown, tuple[str, Mapping[Any, Counts]]] = {
        Breakdown.TYPE: ("by_type", stats.by_type),
        Breakdown.PRIORITY: ("by_priority", stats.by_priority),
        Breakdown.STATE: ("by_state", stats.by_phase),
    }
    asked = [found[one] for one in Breakdown if one in window.breakdown_by]
    return {name: {key: _counts(one) for key, one in counts.items()} for name, counts in asked}


def _counts(counts: Counts) -> schemas.Counts:
    return schemas.Counts(
        pending=counts.pending,
        running=counts.running,
        completed=counts.completed,
        failed=counts.failed,
        dead_letter=counts.dead_letter,
        cancelled=counts.cancelled,
    )


def latency(latency: Latency) -> schemas.LatencyStats:
    return schemas.LatencyStats(
        p50=_duration(latency.p50_us),
        p90=_duration(latency.p90_us),
        p99=_duration(latency.p99_us),
        max=_duration(latency.max_us),
    )


def _duration(microseconds: int | None) -> timedelta | None:
    return None if microseconds is None else timedelta(microseconds=microseconds)
