"""Searches of every kind, on jobs as `million.py` makes them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.integration.postgres import million

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import FailureSearch, JobPage, JobSearch, SearchOrder
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase


def _jobs(**filters: Any) -> JobSearch:
    return JobSearch(namespace=million.BIG, **filters)


def _failures(**filters: Any) -> FailureSearch:
    return FailureSearch(namespace=million.BIG, **filters)


def _ago(**duration: float) -> datetime:
    return datetime.now(UTC) - timedelta(**duration)


_RARE: Final = frozenset({million.RARE})
_NEEDLE: Final = {
    "states": frozenset({JobState.UNKNOWN_STOPPED}),
    "types": frozenset({"type-3"}),
    "tags": frozenset({"eu", "gpu"}),
    "priorities": frozenset({Priority.BULK}),
}

SEARCHES: Final[Mapping[str, JobSearch]] = {
    "newest": _jobs(),
    "oldest": _jobs(order=SearchOrder.CREATED_ASC),
    "last changed": _jobs(order=SearchOrder.UPDATED_DESC),
    "by rare tag": _jobs(tags=_RARE),
    "by rare tag, last changed": _jobs(tags=_RARE, order=SearchOrder.UPDATED_DESC),
    "by common tag": _jobs(tags=frozenset({"gpu"})),
    "by type": _jobs(types=frozenset({"type-3"})),
    "by priority": _jobs(priorities=frozenset({Priority.CRITICAL})),
    "by type, tags, priority and state": _jobs(**_NEEDLE),
    "waiting": _jobs(states=frozenset({JobState.INITIAL_PENDING})),
    "retrying": _jobs(states=frozenset({JobState.FAILED_RETRY, JobState.UNKNOWN_RETRY})),
    "running": _jobs(states=frozenset({JobState.RUNNING})),
    "completed": _jobs(states=frozenset({JobState.COMPLETED})),
    "completed, last changed": _jobs(
        states=frozenset({JobState.COMPLETED}), order=SearchOrder.UPDATED_DESC
    ),
    "completed with a rare tag, last changed": _jobs(
        states=frozenset({JobState.COMPLETED}), tags=_RARE, order=SearchOrder.UPDATED_DESC
    ),
    "dead": _jobs(states=frozenset({JobState.DEAD_LETTER})),
    "dead, oldest": _jobs(states=frozenset({JobState.DEAD_LETTER}), order=SearchOrder.CREATED_ASC),
    "unscheduled, last changed": _jobs(
        states=frozenset({JobState.UNSCHEDULED}), order=SearchOrder.UPDATED_DESC
    ),
    "failed for good": _jobs(phases=frozenset({Phase.FAILED})),
    "attempts used up": _jobs(phases=frozenset({Phase.DEAD_LETTER})),
    "delayed": _jobs(phases=frozenset({Phase.DELAYED})),
    "waiting for others": _jobs(phases=frozenset({Phase.PENDING})),
    "in one of many phases": _jobs(
        phases=frozenset({Phase.PENDING, Phase.SCHEDULED, Phase.RUNNING, Phase.FAILED})
    ),
    "an hour ten days ago": _jobs(
        created_after=_ago(days=10, hours=1), created_before=_ago(days=10)
    ),
    "changed in the last hour": _jobs(updated_after=_ago(hours=1)),
    "completed in the last days": _jobs(
        states=frozenset({JobState.COMPLETED}), updated_after=_ago(days=5)
    ),
    "dead ten days ago": _jobs(
        states=frozenset({JobState.DEAD_LETTER}),
        created_after=_ago(days=10, hours=1),
        created_before=_ago(days=10),
    ),
    "nothing": _jobs(types=frozenset({"no such type"})),
}
FAILURES: Final[Mapping[str, FailureSearch]] = {
    "all": _failures(),
    "dead": _failures(states=frozenset({JobState.DEAD_LETTER})),
    "for good": _failures(phases=frozenset({Phase.FAILED})),
    "by category": _failures(categories=frozenset({ErrorCategory.PERMANENT})),
    "by code": _failures(error_code="E3"),
    "by type": _failures(types=frozenset({"type-3"})),
    "lately": _failures(failed_after=_ago(days=5)),
    "an hour ten days ago": _failures(
        failed_after=_ago(days=10, hours=1), failed_before=_ago(days=10)
    ),
    "by a code that is none": _failures(error_code="E99"),
}


_FEW: Final = (20_000, 25_000)
MOST: Final[Mapping[str, tuple[int, int]]] = {
    # Of lanes whose newest jobs have not completed.
    "completed": (20_000, 50_000),
    "completed in the last days": (40_000, 50_000),
    # Counted in an index, up to the bound.
    "failed for good": (40_000, 25_000),
    "attempts used up": (30_000, 25_000),
    # No index says which these are among those of their state; they are counted one by one.
    "delayed": (50_000, 60_000),
    "waiting for others": (60_000, 80_000),
    # Those that may be in one of the phases are looked at up to the bound of the count.
    "in one of many phases": (40_000, 60_000),
}
"""Rows and pages that a search may look at, where it is more than for most."""
MOST_UNCOUNTED: Final[Mapping[str, tuple[int, int]]] = {
    "completed": MOST["completed"],
    # Looked for in three ways, of which the last one finds them.
    "completed in the last days": (40_000, 60_000),
}


def bounds(name: str, *, counted: bool = True) -> dict[str, Any]:
    rows, pages = (MOST if counted else MOST_UNCOUNTED).get(name, _FEW)
    return {
        "rows": rows,
        "pages": pages,
        # Of a batch with short tables.
        "also_joins": {"Hash Join"},
    }


async def pages_of(backend: PostgresBackend, search: JobSearch, count: int) -> list[JobPage]:
    """The first pages, as many as there are up to `count`."""
    pages = [await backend.search_jobs(search)]
    while len(pages) < count and pages[-1].next_cursor:
        pages.append(await backend.search_jobs(replace(search, cursor=pages[-1].next_cursor)))
    return pages
