"""Claims: one statement for all streams whose jobs lie in different lanes."""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import Any, Final

from psycopg.rows import TupleRow

from queue_operator.backends.chances import SYSTEM, Entropy, chances
from queue_operator.backends.postgres.arrays import Int8s, Times, floats
from queue_operator.backends.postgres.arrivals import Arrivals
from queue_operator.backends.postgres.completing import Claimed
from queue_operator.backends.postgres.connection import Pool
from queue_operator.backends.postgres.driver_errors import TookTooLong
from queue_operator.backends.postgres.exploring import Explorer, limits, where
from queue_operator.backends.postgres.fronts import Answer, Place, beyond
from queue_operator.backends.postgres.groups import Group, Looked, apart, group_by_filter
from queue_operator.backends.postgres.lanes import Lane
from queue_operator.backends.postgres.returning import Claim, Returns
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Assignment, Demand, TypeDefaults
from queue_operator.domain.record import is_suspect
from queue_operator.domain.retry import DEFAULT_BACKOFF, DEFAULT_MAX_ATTEMPTS

_PARTS: Final = {
    "leases": load(__package__, "claim_leases"),
    "left": load(__package__, "claim_left"),
    "jobs": load(__package__, "claim_jobs"),
}
_CLAIM: Final = load(__package__, "claim", **_PARTS)
_CLAIM_MANY: Final = load(__package__, "claim_many", **_PARTS)
_NO_DEFAULTS: Final = TypeDefaults()
_SYSTEM_BACKOFF: Final = json.dumps(asdict(DEFAULT_BACKOFF))

logger = logging.getLogger(__name__)

Found = tuple[Group, Assignment]
"""A job, and whom it was found for."""


class Claims:
    """Gives jobs to streams."""

    def __init__(
        self,
        pool: Pool,
        arrivals: Arrivals,
        explorer: Explorer,
        claimed: Claimed,
        returns: Returns,
        *,
        entropy: Entropy = SYSTEM,
    ) -> None:
        self._pool = pool
        self._arrivals = arrivals
        self._claimed = claimed
        self._returns = returns
        self._entropy = entropy
        self._explorer = explorer

    async def claim(
        self,
        demands: Sequence[Demand],
        lease_ttl_s: float | None,
        defaults: Mapping[str, TypeDefaults],
        *,
        thorough: bool = False,
    ) -> list[Assignment]:
        """With `thorough`, nothing is left out that was committed before the call.

        Raises Unavailable only if nothing was claimed: what was is given to the streams.
        """
        # Grows with every statement, so that what was had before an error is not lost with it.
        found: list[Found] = []
        await self._arrivals.catch_up(thorough=thorough)
        terms = _Terms(lease_ttl_s, defaults, self._entropy, self._arrivals.history)
        fronts = self._arrivals.fronts
        every = [Group(asking, fronts) for asking in group_by_filter(demands)]
        try:
            for groups in apart(every):
                await self._look(groups, terms, found)
        except Unavailable as error:
            if not found:
                raise
            logger.warning("a claim ends early, with %d jobs: %s", len(found), error)
        except BaseException:
            self._returns.owe(one for _, one in found)
            raise
        # As they were asked for, whichever had to wait for another's lanes.
        places = {group: place for place, group in enumerate(every)}
        return [one for _, one in sorted(found, key=lambda pair: places[pair[0]])]

    async def eligible_for(self, demands: Sequence[Demand]) -> list[bool]:
        """For each demand, whether there is a job for it. Looks where a claim would."""
        await self._arrivals.catch_up()
        found = [False] * len(demands)
        every = [Group([replace(one, limit=1)], self._arrivals.fronts) for one in demands]
        for group in every:
            await self._explorer.explore(group.unknown())
        while asking := [n for n, one in enumerate(every) if not found[n] and one.ask()]:
            for n in await self._glance({n: every[n] for n in asking}):
                found[n] = True
        return found

    async def _glance(self, groups: Mapping[int, Group]) -> list[int]:
        """Those of the groups for which a job is due where they ask."""
        numbered = [(n, one.range, one.front) for n, g in groups.items() for one in g.asked]
        rows: dict[int, Place] | None = None
        try:
            rows = await self._explorer.first_jobs(
                [(front.lane.id, one) for _, one, front in numbered]
            )
        finally:
            first = 0
            for group in groups.values():
                count = len(group.asked)
                answers = {
                    n: Answer(rows[first + n])
                    for n in range(count)
                    if rows is not None and first + n in rows
                }
                group.leave(answers, limits(self._arrivals.now), known=rows is not None)
                first += count
        return list({numbered[place][0] for place in rows or ()})

    async def _look(self, groups: Sequence[Group], terms: "_Terms", found: list[Found]) -> None:
        """Looks deeper into many ranges, step by step, and further where others claim at the same
        time, until the slots are full or there is no more.
        """
        for group in groups:
            await self._explorer.explore(group.unknown())
        while asking := [group for group in groups if group.is_open]:
            # Which jobs are locked, of more than there is room for, is not ours to say by group.
            further = [group for group in asking if group.reach > group.room]
            asking = [group for group in further[:1] or asking if group.ask()]
            if not asking:
                continue
            unknown = [one.front for group in asking for one in group.asked if one.front.is_unknown]
            try:
                found += await self._take(asking, terms)
            except TookTooLong:
                if not unknown:
                    raise
                await self._explorer.explore(unknown)

    async def _take(self, groups: Sequence[Group], terms: "_Terms") -> list[Found]:
        rows: list[TupleRow] | None = None
        moved: dict[Group, bool] = {}
        owned = [(group, one.front.lane) for group in groups for one in group.asked]
        lanes = {lane.id: lane for _, lane in owned}
        try:
            parameters = _parameters(groups, terms)
            claim = Claim(
                _CLAIM if len(groups) == 1 else _CLAIM_MANY,
                parameters,
                read=lambda rows: _assignments(rows, lanes),
                assignees=set(parameters["assignees"]),
                chances=parameters["chances"],
                endless=terms.lease_ttl_s is None,
                history=terms.history,
            )
            rows = await self._returns.fetch(claim)
        finally:
            now = (rows and _now(rows)) or self._arrivals.now
            for group, answers in zip(groups, _answers(groups, rows), strict=True):
                moved[group] = group.leave(answers, limits(now), known=rows is not None)
        looked, cut_off = _looked(rows[0], len(groups))
        group_of = {lane.id: group for group, lane in owned}
        owners = [group_of[row[_TOLD + _LANE]] for row in rows if row[_TOLD] is not None]
        taken = Counter(owners)
        for n, group in enumerate(groups, 1):
            known = Looked(looked.get(n, 0), n in cut_off, taken[group])
            group.note(known, moved=moved[group])
        assignments = _assignments(rows, lanes)
        self._claimed.remember(assignments)
        return list(zip(owners, assignments, strict=True))


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the leases are made of, beside the jobs and the streams."""

    lease_ttl_s: float | None
    defaults: Mapping[str, TypeDefaults]
    entropy: Entropy
    history: str


_RANGES: Final = slice(3, 7)
_TOLD: Final = 7
_LANE: Final = 1
_ASSIGNED_AT: Final = 13
"""Of a row, where the ranges are told and the job begins; of a job, where its lane
and the time of the claim are.
"""


def _looked(first: TupleRow, groups: int) -> tuple[dict[int, int], set[int]]:
    """How many jobs were looked at for each group, and for which there may be more."""
    numbers, looked, cut_off = first[:3]
    if groups == 1:
        return {1: looked}, {1} if cut_off else set()
    return dict(zip(numbers, looked, strict=True)), set(cut_off)


def _now(rows: Sequence[TupleRow]) -> datetime | None:
    return None if rows[0][_TOLD] is None else rows[0][_TOLD + _ASSIGNED_AT]


def _answers(groups: Sequence[Group], rows: Sequence[TupleRow] | None) -> list[dict[int, Answer]]:
    """What was found in the ranges that each group asked, by their place among them; those left out
    hold nothing.
    """
    answers: list[dict[int, Answer]] = [{} for _ in groups]
    if rows is None or rows[0][_RANGES.start] is None:
        return answers
    owners = [(g, n) for g, group in enumerate(groups) for n in range(len(group.asked))]
    taken = _taken_places(rows)
    for number, looked, next_at, next_no in zip(*rows[0][_RANGES], strict=True):
        g, n = owners[number - 1]
        front, asked, _ = groups[g].asked[n]
        if next_at is not None:
            answers[g][n] = Answer((next_at, next_no))
            continue
        last = max(place for place in taken[front.lane.id] if asked.first <= place <= asked.last)
        # One that was looked at to the end may hold more.
        is_cut = looked >= groups[g].depth
        answers[g][n] = Answer(beyond(last) if is_cut else None, last)
    return answers


def _taken_places(rows: Sequence[TupleRow]) -> dict[int, list[Place]]:
    """By lane, where the jobs were that a claim took."""
    places: dict[int, list[Place]] = defaultdict(list)
    if rows[0][_TOLD] is not None:
        for row in rows:
            number, lane_id, order_time = row[_TOLD : _TOLD + 3]
            places[lane_id].append((order_time, number))
    return places


def _parameters(groups: Sequence[Group], terms: "_Terms") -> dict[str, Any]:
    asked = [(one.front.lane.id, one.range) for group in groups for one in group.asked]
    numbered = {
        one.front.lane.id: (n, one.front.lane)
        for n, group in enumerate(groups, 1)
        for one in group.asked
    }
    lanes = sorted(numbered)
    # Where nobody registered anything one NULL will do: beyond its end an array is NULL too.
    given = terms.defaults
    of_type = [given.get(numbered[n][1].key.type, _NO_DEFAULTS) for n in lanes if given]
    sizes = [(len(group.asked), group.depth) for group in groups]
    rooms = [group.room for group in groups]
    bound_at, bound_no = groups[0].bound
    return {
        **where(asked),
        "range_groups": Int8s(n for n, (size, _) in enumerate(sizes, 1) for _ in range(size)),
        "depths": Int8s(depth for size, depth in sizes for _ in range(size)),
        "reaches": Int8s(group.reach for group in groups),
        "bounds": Times(group.bound[0] for group in groups),
        "bound_nos": Int8s(group.bound[1] for group in groups),
        "offsets": Int8s(accumulate(rooms[:-1], initial=0)),
        "most": sum(rooms),
        "lane_ids": Int8s(lanes),
        "lane_groups": Int8s(numbered[lane_id][0] for lane_id in lanes),
        # Of the first group, for the statement that asks for one alone.
        "per_lane": groups[0].depth,
        "reach": groups[0].reach,
        "slots": rooms[0],
        "bound": bound_at,
        "bound_no": bound_no,
        "default_attempts": [d.max_attempts for d in of_type] or [None],
        "default_timeouts": floats(d.timeout_s for d in of_type) or [None],
        **_takers([slot for group in groups for slot in _numbered(group)]),
        "ttl_s": terms.lease_ttl_s,
        "chances": Int8s(chances(terms.entropy, sum(rooms))),
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


def _assignments(rows: Sequence[TupleRow], lanes: Mapping[int, Lane]) -> list[Assignment]:
    return [
        _assignment(row[_TOLD:], lanes[row[_TOLD + _LANE]])
        for row in rows
        if row[_TOLD] is not None
    ]


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
        alone=is_suspect(row[20]),
        traceparent=row[21] or "",
        tracestate=row[22] or "",
    )
