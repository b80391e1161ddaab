"""The event log, told job by job: stores may cut it into rows as they like."""

from collections import Counter
from typing import Any, Final

from tests.model.sides import Side

from queue_operator.backends.protocol import EventBatch

_PAGE: Final = 1000
_SLACK_US: Final = 15_000_000
_GRAIN_US: Final = 50_000_000


async def lives(side: Side) -> dict[str, list[dict[str, Any]]]:
    """What happened to each job in order; of several jobs of one id each has its own."""
    names: dict[int, str] = {}
    times: Counter[str] = Counter()
    told: dict[str, list[dict[str, Any]]] = {}
    for batch in await _events(side):
        for place, number in enumerate(batch.job_nos):
            if batch.ids:
                lane = batch.lanes[batch.lane_of[place]]
                name = f"{lane['namespace']}/{batch.ids[place]}"
                times[name] += 1
                names[number] = f"{name} #{times[name]}"
            told.setdefault(names[number], []).append(_told(batch, place))
    return told


async def _events(side: Side) -> list[EventBatch]:
    found: list[EventBatch] = []
    while page := await side.backend.read_events(after=found[-1].seq if found else 0, limit=_PAGE):
        found += page
    return found


def _told(batch: EventBatch, place: int) -> dict[str, Any]:
    """What a row says of one of its jobs."""
    told: dict[str, Any] = {"event": batch.event, "before": batch.before, "after": batch.after}
    for array in ("attempts", "workers", "failed"):
        told[array] = _entry(batch, array, place)
    told["correlation"] = _entry(batch, "correlations", place) or ""
    for array in ("wait_us", "run_us"):
        took = _entry(batch, array, place)
        told[array] = None if took is None else (took + _SLACK_US) // _GRAIN_US
    if batch.lane_of:
        told["lane"] = dict(batch.lanes[batch.lane_of[place]])
    return told


def _entry(batch: EventBatch, array: str, place: int) -> Any:
    values = getattr(batch, array)
    return values[place] if values else None
