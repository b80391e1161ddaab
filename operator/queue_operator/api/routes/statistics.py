"""How the queue does."""

import asyncio
from typing import Any, Final

from fastapi import Response

from queue_operator.api import schemas
from queue_operator.api.operation import Call, Operation, render
from queue_operator.api.views.statistics import queue_stats
from queue_operator.backends.statistics import StatsWindow
from queue_operator.domain.validation import check_tags


async def get_stats(call: Call[schemas.StatsQuery]) -> Response:
    """Counts of now; outcomes, rates and percentiles of a window of time."""
    query, jobs = call.query, call.services.jobs
    check_tags("tag", query.tag, call.services.limits)
    window = StatsWindow(
        namespace=call.namespace,
        time_range_s=query.time_range.total_seconds(),
        breakdown_by=frozenset(query.breakdown_by),
    )
    stats, now = await asyncio.gather(
        jobs.window_stats(window), jobs.count(frozenset(query.tag), call.namespace)
    )
    return render(queue_stats(window, stats, now))


OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(
        id="getStats",
        method="GET",
        path="/v1/stats",
        verb="list",
        subject="Statistics",
        summary="Counts, rates and percentiles of a namespace",
        run=get_stats,
        query=schemas.StatsQuery,
        answers={200: schemas.QueueStats},
    ),
)
