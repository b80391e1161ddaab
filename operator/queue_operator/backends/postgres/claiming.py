"""Claims: one statement for all streams whose jobs lie in different lanes."""

import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final

from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrays import Int8s, Times, floats
from queue_operator.backends.postgres.completing import Claimed
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.groups import Group, Looked, apart, group_by_filter
from queue_operator.backends.postgres.lanes import Lane, Lanes
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Assignment, Demand, TypeDefaults
from queue_operator.domain.ordering import PRIORITY_BONUS
from queue_operator.domain.retry import DEFAULT_BACKOFF, DEFAULT_MAX_ATTEMPTS

_CLAIM: Final = load(__package__, "claim")
_CLAIM_MANY: Final = load(__package__, "claim_many")
_GLANCE: Final = load(__package__, "glance")
_START: Final = (datetime(1, 1, 1, tzinfo=UTC), 0)
_FULL_SCAN_S: Final = 1.0
_NEVER: Final = float("-inf")
_NO_DEFAULTS: Final = TypeDefaults()
_SYSTEM_BACKOFF: Final = json.dumps(asdict(DEFAULT_BACKOFF))

logger = logging.getLogger(__name__)

Found = tuple[Group, Assignment]
"""A job, and whom it was found for."""
Place = tuple[datetime, int]
"""A place in a lane's order: order time and job number."""


class Marks:
    """Where the last claim of each lane ended: a hint that saves walking dead entries.

    A job may come to lie before the mark (a late commit, an urgent priority), so once a second
    a claim starts at the beginning of the lane. Jobs that another claimer held are behind the
    mark if that one fails, as are those of which only others know that they came back: a short
    claim of a lane where that can be so starts at the beginning at once.
    """

    def __init__(self) -> None:
        self._by_lane: dict[int, Place] = {}
        self._scanned_at: dict[int, float] = {}
        self._contested: set[int] = set()

    def places(self, lanes: Sequence[Lane], start: Collection[int]) -> list[Place]:
        """Where to begin in each lane: in those of `start` at the beginning."""
        marks = self._by_lane
        return [_START if lane.id in start else marks.get(lane.id, _START) for lane in lanes]

    def known_places(self, lanes: Sequence[int]) -> list[Place]:
        """The mark of each lane, by its number."""
        return [self._by_lane.get(lane, _START) for lane in lanes]

    def due(self, lanes: Sequence[Lane]) -> set[int]:
        """The lanes to be looked at from the beginning now; whoever asks does it."""
        now = time.monotonic()
        since = now - _FULL_SCAN_S
        due = {lane.id for lane in lanes if self._scanned_at.get(lane.id, _NEVER) <= since}
        self._scanned_at.update(dict.fromkeys(due, now))
        return due

    def unsee(self, lanes: Iterable[int]) -> None:
        """They were due, and could not be looked at."""
        for lane in lanes:
            self._scanned_at.pop(lane, None)

    def contest(self, lanes: Iterable[int]) -> None:
        """Others held some of the jobs that were looked at."""
        self._contested.update(lanes)

    def contest_all(self) -> None:
        """There may be jobs before any of the marks."""
        self._contested.update(self._by_lane)

    def settle(self, lanes: Iterable[int]) -> None:
        """They were looked at from the beginning, and nobody held anything."""
        self._contested.difference_update(lanes)

    def are_contested(self, lanes: Sequence[Lane]) -> bool:
        return bool(self._contested) and any(lane.id in self._contested for lane in lanes)

    def advance(self, lane_id: int, place: Place) -> None:
        self._by_lane[lane_id] = max(self._by_lane.get(lane_id, _START), place)

    def forget_all(self) -> None:
        self._by_lane.clear()

    def forget(self, lane_ids: Iterable[int]) -> None:
        """Jobs were added that may lie before the mark."""
        for lane_id in lane_ids:
            self._by_lane.pop(lane_id, None)


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
        """With `thorough`, a claim that comes back short always looks from the start again.

        Raises Unavailable only if nothing was claimed: what was is given to the streams.
        """
        # Grows with every statement, so that what was had before an error is not lost with it.
        found: list[Found] = []
        terms = _Terms(lease_ttl_s, defaults)
        every = await self._groups(demands)
        try:
            for groups in apart(every):
                await self._fill(groups, terms, found, thorough)
        except Unavailable as error:
            if not found:
                raise
            logger.warning("a claim ends early, with %d jobs: %s", len(found), error)
        # As they were asked for, whichever had to wait for another's lanes.
        places = {group: place for place, group in enumerate(every)}
        return [one for _, one in sorted(found, key=lambda pair: places[pair[0]])]

    async def eligible_for(self, demands: Sequence[Demand]) -> list[bool]:
        """For each demand, whether there is a job for it. Looks at the lanes as a claim does."""
        await self._lanes.catch_up()
        wanted = [self._lanes.claimable(demand) for demand in demands]
        lanes = list({lane.id: lane for group in wanted for lane in group}.values())
        due = self._marks.due(lanes)
        try:
            filled = await self._filled(lanes, due)
        except BaseException:
            self._marks.unsee(due)
            raise
        # There is one between the beginning and the mark, or the mark is to be looked beyond.
        self._marks.forget(filled & due)
        return [any(lane.id in filled for lane in group) for group in wanted]

    async def _filled(self, lanes: Sequence[Lane], start: Collection[int]) -> set[int]:
        """Those of the lanes in which a job is due."""
        places = self._marks.places(lanes, start)
        parameters = _where(lanes, places)
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_GLANCE, parameters)
            return {lane_id for (lane_id,) in await cursor.fetchall()}

    async def _groups(self, demands: Sequence[Demand]) -> list[Group]:
        """Those for which there are lanes at all."""
        await self._lanes.catch_up()
        groups = []
        for asking in group_by_filter(demands):
            # Lanes that are made while the claim goes on are for the next one.
            if lanes := tuple(self._lanes.claimable(asking[0])):
                groups.append(Group(asking, lanes))
        return groups

    async def _fill(
        self, groups: Sequence[Group], terms: "_Terms", found: list[Found], thorough: bool
    ) -> None:
        due = self._marks.due([lane for group in groups for lane in group.lanes])
        for group in groups:
            group.begin({lane.id for lane in group.lanes if lane.id in due})
        seen_whole = {group for group in groups if len(group.start) == len(group.lanes)}
        try:
            await self._look(groups, terms, found)
        except BaseException:
            self._marks.unsee(due)
            raise
        again = [group for group in groups if group.room and group not in seen_whole]
        again = [g for g in again if thorough or self._marks.are_contested(g.lanes)]
        for group in again:
            group.begin({lane.id for lane in group.lanes})
        await self._look(again, terms, found)

    async def _look(self, groups: Sequence[Group], terms: "_Terms", found: list[Found]) -> None:
        """Looks deeper into many lanes, step by step, and further where others claim at the same
        time, until the slots are full or there is no more.
        """
        while asking := [group for group in groups if group.is_open]:
            # Which jobs are locked, of more than there is room for, is not ours to say by group.
            further = [group for group in asking if group.reach > group.room]
            found += await self._take(further[:1] or asking, terms)

    async def _take(self, groups: Sequence[Group], terms: "_Terms") -> list[Found]:
        lanes = [lane for group in groups for lane in group.lanes]
        places = [place for g in groups for place in self._marks.places(g.lanes, g.start)]
        parameters = _parameters(groups, lanes, places, terms)
        async with borrowed(self._pool) as connection:
            statement = _CLAIM if len(groups) == 1 else _CLAIM_MANY
            cursor = await connection.execute(statement, parameters, binary=True)
            rows = await cursor.fetchall()
        looked, cut_off = _looked(rows[0], len(groups))
        if rows[0][3] is None:
            rows = []
        by_id = {lane.id: lane for lane in lanes}
        group_of = {lane.id: n for n, group in enumerate(groups, 1) for lane in group.lanes}
        taken = Counter(group_of[row[4]] for row in rows)
        for n, group in enumerate(groups, 1):
            self._note(group, Looked(looked.get(n, 0), n in cut_off, taken[n]))
        for lane_id, place in _last_places(rows).items():
            self._marks.advance(lane_id, min(place, _next(by_id[lane_id], rows[0][16])))
        assignments = [_assignment(row[3:], by_id[row[4]]) for row in rows]
        self._claimed.remember(assignments)
        owners = [groups[group_of[row[4]] - 1] for row in rows]
        return list(zip(owners, assignments, strict=True))

    def _note(self, group: Group, looked: Looked) -> None:
        if group.start and (looked.cut_off or looked.jobs >= group.reach):
            # There may be more than was taken between the beginning and the mark.
            self._marks.forget(group.start)
        if looked.jobs > looked.taken:
            self._marks.contest(lane.id for lane in group.lanes)
        elif looked.jobs < group.reach and not looked.cut_off:
            self._marks.settle(group.start)
        group.note(looked)


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the leases are made of, beside the jobs and the streams."""

    lease_ttl_s: float | None
    defaults: Mapping[str, TypeDefaults]


def _looked(first: TupleRow, groups: int) -> tuple[dict[int, int], set[int]]:
    """How many jobs were looked at for each group, and for which a lane may hold more."""
    if groups == 1:
        return {1: first[0]}, {1} if first[1] else set()
    return dict(zip(*first[:2], strict=True)), set(first[2])


def _last_places(rows: Sequence[TupleRow]) -> dict[int, Place]:
    """How far a claim came in each lane."""
    last: dict[int, Place] = {}
    for row in rows:
        lane_id, place = row[4], (row[5], row[3])
        if place > last.get(lane_id, _START):
            last[lane_id] = place
    return last


def _next(lane: Lane, now: datetime) -> Place:
    """Where a job has its place that is submitted or comes back now. A mark beyond it, of a job
    whose caller gave it a later time, would hide that one.
    """
    return now - PRIORITY_BONUS[lane.priority], 0


def _where(lanes: Sequence[Lane], places: Sequence[Place]) -> dict[str, Any]:
    return {
        "lanes": Int8s(lane.id for lane in lanes),
        "marks": Times(at for at, _ in places),
        "mark_numbers": Int8s(number for _, number in places),
    }


def _parameters(
    groups: Sequence[Group], lanes: Sequence[Lane], places: Sequence[Place], terms: _Terms
) -> dict[str, Any]:
    # Where nobody registered anything one NULL will do: beyond its end an array is NULL too.
    given = terms.defaults
    of_type = [given.get(lane.key.type, _NO_DEFAULTS) for lane in lanes if given]
    sizes = [(len(group.lanes), group.depth) for group in groups]
    rooms = [group.room for group in groups]
    return {
        **_where(lanes, places),
        "lane_groups": Int8s(n for n, (size, _) in enumerate(sizes, 1) for _ in range(size)),
        "depths": Int8s(depth for size, depth in sizes for _ in range(size)),
        "reaches": Int8s(group.reach for group in groups),
        "offsets": Int8s(accumulate(rooms[:-1], initial=0)),
        "most": sum(rooms),
        # Of the first group, for the statement that asks for one alone.
        "per_lane": groups[0].depth,
        "reach": groups[0].reach,
        "slots": rooms[0],
        "default_attempts": [d.max_attempts for d in of_type] or [None],
        "default_timeouts": floats(d.timeout_s for d in of_type) or [None],
        **_takers([slot for group in groups for slot in _numbered(group)]),
        "ttl_s": terms.lease_ttl_s,
        "seed": secrets.randbits(63),
        "system_attempts": DEFAULT_MAX_ATTEMPTS,
        "system_backoff": _SYSTEM_BACKOFF,
    }


def _numbered(group: Group) -> list[tuple[tuple[int, int], Demand]]:
    """The group's free slots, with a number of the stream that is no other group's."""
    return [((id(group), number), demand) for number, demand in group.rest]


def _takers(slots: Sequence[tuple[tuple[int, int], Demand]]) -> dict[str, Any]:
    streams = dict(slots)
    places = {number: place for place, number in enumerate(streams, start=1)}
    return {
        "slot_of": Int8s(places[number] for number, _ in slots),
        "assignees": [stream.assignee_id for stream in streams.values()],
        "workers": [stream.worker_name for stream in streams.values()],
        "hosts": [stream.host for stream in streams.values()],
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
        parent_result=row[14],
        parent_content_type=row[15] or "",
        checkpoint=row[16],
        retry_count=row[17],
        last_retry_at=row[18],
        started_at=row[19],
    )
