"""Ratios of our figures to everybody else's in the same scenario of the same run."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bench.contenders import OURS
from bench.result import Result

DEFAULT_SUFFIX: Final = " (default)"
_DIRECTIONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "below": operator.lt,
}
PASS_LINES: Final[Mapping[tuple[str, str], tuple[str, float]]] = {
    ("continuous_pinned", "share_of_unpinned"): ("at least", 0.9),
    ("many_lanes", "claim_p99_ms"): ("below", 100.0),
    ("stats", "stats_max_ms"): ("below", 500.0),
    ("stats", "get_job_p50_ms"): ("below", 1.0),
    ("pinned_hour", "claim_p99_of_unpinned"): ("at most", 2.0),
    ("pinned_hour", "heartbeat_p99_ms"): ("below", 50.0),
    ("pinned_hour", "sweep_p99_ms"): ("below", 100.0),
    ("pinned_hour", "pulse_p99_ms"): ("below", 100.0),
    ("pinned_hour", "job_stats_p99_ms"): ("below", 100.0),
    ("pinned_hour", "window_stats_p99_ms"): ("below", 100.0),
    ("pinned_hour", "unavailable"): ("at most", 0.0),
    ("long_history", "cancel_max_ms"): ("below", 100.0),
    ("long_history", "refuse_max_ms"): ("below", 100.0),
    ("long_history", "delete_max_ms"): ("below", 100.0),
    ("long_history", "cleanup_max_ms"): ("below", 1000.0),
    ("long_history", "prune_nothing_max_ms"): ("below", 100.0),
    ("long_history", "unavailable"): ("at most", 0.0),
    ("many_names", "of_ordinary"): ("at least", 0.5),
    ("many_names", "single_of_ordinary"): ("at least", 0.5),
    ("many_names", "claim_p99_ms"): ("below", 50.0),
    ("many_names", "first_claim_ms"): ("below", 1000.0),
    ("many_names", "lanes_left"): ("at most", 0.0),
    ("end_to_end", "ratio_to_river"): ("at least", 1.0),
    ("pickup", "pickup_p50_ms"): ("at most", 4.0),
    ("pickup", "pickup_p99_ms"): ("at most", 15.0),
    ("idle_sessions", "idle_cpu_share"): ("below", 0.01),
    ("idle_sessions", "idle_rss_mb"): ("below", 200.0),
    ("idle_sessions", "idle_statements_per_s"): ("at most", 15.0),
    ("scrape", "scrape_max_ms"): ("below", 1000.0),
    ("webhooks", "told_of_plain"): ("at least", 0.95),
    ("rest_submit", "ratio_to_empty_endpoint"): ("at least", 0.25),
    ("rest_batches", "ratio_to_postgres_copy"): ("at least", 0.1),
    ("rest_batches", "rss_growth_share"): ("below", 0.05),
    ("rest_search", "status_p99_ms"): ("below", 20.0),
    ("rest_search", "search_worst_p99_ms"): ("below", 100.0),
    ("rest_stats", "rest_stats_max_ms"): ("below", 500.0),
}
"""What our own figures should reach, whatever the peers do."""


def add_ratios(results: Sequence[Result]) -> None:
    """Gives our results a metric `ratio_to_NAME` for each other system of their scenario; of a
    peer measured at several settings, its best counts.
    """
    for ours in results:
        if ours.system != OURS or "jobs_per_s" not in ours.metrics:
            continue
        for name, rate in _best_of_others(ours, results).items():
            ours.metrics[f"ratio_to_{name}"] = ours.metrics["jobs_per_s"] / rate


def _best_of_others(ours: Result, results: Sequence[Result]) -> dict[str, float]:
    best: dict[str, float] = {}
    for other in results:
        if other.scenario != ours.scenario or other.system == OURS:
            continue
        name = other.system.removesuffix(DEFAULT_SUFFIX).replace(" ", "_")
        best[name] = max(best.get(name, 0.0), other.metrics["jobs_per_s"])
    return best


def reached(result: Result, metric: str) -> bool | None:
    """Whether one of our results reaches its line; None where there is none."""
    line = PASS_LINES.get((result.scenario, metric))
    if line is None or result.system != OURS or metric not in result.metrics:
        return None
    direction, bound = line
    return _DIRECTIONS[direction](result.metrics[metric], bound)
