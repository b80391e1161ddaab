"""Claims: one statement for all streams that ask for the same."""

import json
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import ceil, sqrt
from typing import Any, Final

from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrays import Int8s, Times
from queue_operator.backends.postgres.completing import Claimed
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.dependencies import parent_results
from queue_operator.backends.postgres.lanes import Lane, Lanes
from queue_operator.backends.sql import load
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.job import Assignment, Demand, TypeDefaults
from queue_operator.domain.retry import DEFAULT_BACKOFF, DEFAULT_MAX_ATTEMPTS

_CLAIM: Final = load(__package__, "claim")
_START: Final = (datetime(1, 1, 1, tzinfo=UTC), 0)
# Up to this many lanes, every lane is looked at as deep as the claim is long.
_FEW_LANES: Final = 4
_LEAST_PER_LANE: Final = 2
_FULL_SCAN_S: Final = 1.0
_NO_DEFAULTS: Final = TypeDefaults()
_SYSTEM_BACKOFF: Final = json.dumps(asdict(DEFAULT_BACKOFF))


Place = tuple[datetime, int]
"""A place in a lane's order: order time and job number."""

Slot = tuple[int, Demand]
"""Room for one job: which of the demands it belongs to, and that demand."""


class Marks:
    """Where the last claim of each lane ended: a hint that saves walking dead entries.

    A job may come to lie before the mark (a late commit, an urgent priority), so at least
    once a second, and whenever a claim comes back short, one claim starts at the beginning.
    """

    def __init__(self) -> None:
        self._by_lane: dict[int, Place] = {}
        self._full_scan_at: dict[frozenset[int], float] = {}

    def of(self, lanes: Sequence[Lane]) -> list[Place]:
        return [self._by_lane.get(lane.id, _START) for lane in lanes]

    def full_scan_is_due(self, lanes: Sequence[Lane]) -> bool:
        key = frozenset(lane.id for lane in lanes)
        due = time.monotonic() - self._full_scan_at.get(key, float("-inf")) >= _FULL_SCAN_S
        if due:
            self._full_scan_at[key] = time.monotonic()
        return due

    def advance(self, lane_id: int, place: Place) -> None:
        self._by_lane[lane_id] = max(self._by_lane.get(lane_id, _START), place)

    def forget(self, lane_ids: Sequence[int]) -> None:
        """Jobs were added that may lie before the mark."""
        for lane_id in lane_ids:
            self._by_lane.pop(lane_id, None)


@dataclass(frozen=True, slots=True)
class _Filter:
    namespace: str
    tags: frozenset[str]
    types: frozenset[str]


class Claims:
    """Gives jobs to streams."""

    def __init__(self, pool: Pool, lanes: Lanes, marks: Marks, claimed: Claimed) -> None:
        self._pool = pool
        self._lanes = lanes
        self._marks = marks
        self._claimed = claimed

    async def claim(
        self,
        demands: Sequence[Demand],
        lease_ttl_s: float | None,
        defaults: Mapping[str, TypeDefaults],
        *,
        thorough: bool = False,
    ) -> list[Assignment]:
        """With `thorough`, a claim that comes back short always looks from the start again."""
        groups: dict[_Filter, list[Demand]] = defaultdict(list)
        for demand in demands:
            groups[_Filter(demand.namespace, demand.tags, demand.types)].append(demand)
        assignments: list[Assignment] = []
        for group in groups.values():
            assignments += await self._claim_group(group, lease_ttl_s, defaults, thorough)
        return assignments

    async def _claim_group(
        self,
        group: list[Demand],
        lease_ttl_s: float | None,
        defaults: Mapping[str, TypeDefaults],
        thorough: bool,
    ) -> list[Assignment]:
        lanes = await self._lanes.matching(group[0])
        slots = list(_round_robin(group))
        if not lanes or not slots:
            return []
        full = self._marks.full_scan_is_due(lanes)
        found = await self._fill(lanes, slots, lease_ttl_s, defaults, from_start=full)
        if (
            len(found) < len(slots)
            and not full
            and (thorough or self._marks.full_scan_is_due(lanes))
        ):
            rest = slots[len(found) :]
            found += await self._fill(lanes, rest, lease_ttl_s, defaults, from_start=True)
        return found

    async def _fill(
        self,
        lanes: Sequence[Lane],
        slots: Sequence[Slot],
        lease_ttl_s: float | None,
        defaults: Mapping[str, TypeDefaults],
        *,
        from_start: bool,
    ) -> list[Assignment]:
        """Looks deeper into many lanes, step by step, until the slots are full."""
        per_lane = _first_depth(len(lanes), len(slots))
        found: list[Assignment] = []
        while len(found) < len(slots):
            rest = slots[len(found) :]
            new = await self._take(
                lanes, rest, lease_ttl_s, defaults, per_lane, from_start=from_start
            )
            found += new
            # Fewer than the depth: no lane was cut off, so there is no more.
            if len(new) < per_lane or per_lane >= len(rest):
                break
            per_lane, from_start = per_lane * 2, False
        return found

    async def _take(
        self,
        lanes: Sequence[Lane],
        slots: Sequence[Slot],
        lease_ttl_s: float | None,
        defaults: Mapping[str, TypeDefaults],
        per_lane: int,
        *,
        from_start: bool,
    ) -> list[Assignment]:
        marks = [_START] * len(lanes) if from_start else self._marks.of(lanes)
        parameters = _parameters(lanes, marks, slots, lease_ttl_s, defaults)
        parameters["per_lane"] = min(per_lane, len(slots))
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_CLAIM, parameters, binary=True)
            rows = await cursor.fetchall()
        by_id = {lane.id: lane for lane in lanes}
        for lane_id, place in {row[1]: (row[2], row[0]) for row in rows}.items():
            self._marks.advance(lane_id, place)
        assignments = [_assignment(row, by_id[row[1]]) for row in rows]
        self._claimed.remember(assignments)
        return await self._with_parent_results(rows, assignments)

    async def _with_parent_results(
        self, rows: Sequence[TupleRow], assignments: list[Assignment]
    ) -> list[Assignment]:
        """Adds what CHAIN jobs get from their parents; other jobs cost nothing."""
        chained = {row[0]: n for n, row in enumerate(rows) if row[14] == DependencyMode.CHAIN}
        if chained:
            given = await parent_results(self._pool, list(chained))
            for number, (result, content_type) in given.items():
                place = chained[number]
                assignments[place] = assignments[place]._replace(
                    parent_result=result, parent_content_type=content_type
                )
        return assignments


def _first_depth(lanes: int, slots: int) -> int:
    """How deep to look into each of many lanes, so that most likely no lane is cut off before
    the slots are full: the mean, three deviations of a Poisson distribution, and a little.
    """
    if lanes <= _FEW_LANES:
        return slots
    mean = slots / lanes
    return min(ceil(mean + 3 * sqrt(mean)) + _LEAST_PER_LANE, slots)


def _round_robin(demands: Sequence[Demand]) -> Iterator[Slot]:
    """One slot of each demand in turn, so that equal streams get equal shares."""
    for turn in range(max(demand.limit for demand in demands)):
        for number, demand in enumerate(demands):
            if turn < demand.limit:
                yield number, demand


def _parameters(
    lanes: Sequence[Lane],
    marks: Sequence[Place],
    slots: Sequence[Slot],
    lease_ttl_s: float | None,
    defaults: Mapping[str, TypeDefaults],
) -> dict[str, Any]:
    # Where nobody registered anything one NULL will do: beyond its end an array is NULL too.
    of_type = [defaults.get(lane.key.type, _NO_DEFAULTS) for lane in lanes if defaults]
    streams = {number: demand for number, demand in slots}
    places = {number: place for place, number in enumerate(streams, start=1)}
    return {
        "lanes": Int8s(lane.id for lane in lanes),
        "marks": Times(at for at, _ in marks),
        "mark_numbers": Int8s(number for _, number in marks),
        "default_attempts": [d.max_attempts for d in of_type] or [None],
        "default_timeouts": [d.timeout_s for d in of_type] or [None],
        "slots": len(slots),
        "slot_of": Int8s(places[number] for number, _ in slots),
        "assignees": [stream.assignee_id for stream in streams.values()],
        "workers": [stream.worker_name for stream in streams.values()],
        "hosts": [stream.host for stream in streams.values()],
        "ttl_s": lease_ttl_s,
        "seed": secrets.randbits(63),
        "system_attempts": DEFAULT_MAX_ATTEMPTS,
        "system_backoff": _SYSTEM_BACKOFF,
    }


def _assignment(row: TupleRow, lane: Lane) -> Assignment:
    key = lane.key
    return Assignment(
        job_id=row[7],
        namespace=key.namespace,
        type=key.type,
        payload=row[8],
        content_type=row[9],
        tags=key.tags,
        attempt=row[3],
        token=row[4],
        assignee_id=row[5],
        created_at=row[10],
        correlation_id=row[11],
        priority=lane.priority,
        timeout_s=row[6],
        eligible_at=row[12],
        assigned_at=row[13],
    )
