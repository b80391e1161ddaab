"""The calls of pinned_hour one by one: young, after an hour's history, and without the pin."""

from collections.abc import Mapping, Sequence
from typing import Final

from bench.result import Result

PINNED: Final = "pinned_hour"
UNPINNED: Final = "unpinned_hour"
CALLS: Final[Mapping[str, str]] = {
    "claim": "claim of 20",
    "settle": "their outcomes",
    "submit": "submission of one job",
    "heartbeat": "heartbeat of those held",
    "sweep": "sweep",
    "pulse": "beat of the pulse",
    "job_stats": "`get_job_stats`",
    "window_stats": "statistics of an hour",
    "depth": "queue depth",
    "usage": "usage of a quota",
    "take": "token of a quota",
    "ping": "statement that reads nothing",
    "lag": "lag of the program itself",
}
HEADINGS: Final = (
    "call",
    "unpinned p50",
    "p99",
    "pinned p50",
    "p99",
    "typical window p99",
    "first window p99",
    "last window p99",
    "max",
)
_PINNED_FIGURES: Final = (
    "p50_ms",
    "p99_ms",
    "typical_p99_ms",
    "first_p99_ms",
    "last_p99_ms",
    "max_ms",
)


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """A row per kind of call, in milliseconds; none where no such run is among the results."""
    by_scenario = {one.scenario: one.metrics for one in results}
    if PINNED not in by_scenario or UNPINNED not in by_scenario:
        return []
    pinned, free = by_scenario[PINNED], by_scenario[UNPINNED]
    return [
        (
            text,
            *(_shown(free, f"{name}_{figure}") for figure in _PINNED_FIGURES[:2]),
            *(_shown(pinned, f"{name}_{figure}") for figure in _PINNED_FIGURES),
        )
        for name, text in CALLS.items()
    ]


def _shown(metrics: Mapping[str, float], metric: str) -> str:
    return f"{metrics[metric]:,.1f}" if metric in metrics else ""
