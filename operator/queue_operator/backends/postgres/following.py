"""The log of events as those read it who follow jobs: by the difference of snapshots, so that what
commits late is told too, and of large steps only what somebody may want.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.horizon import Horizon
from queue_operator.backends.lookups import DELETE
from queue_operator.backends.positions import Position
from queue_operator.backends.postgres.arrays import Int8s
from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.postgres.one_loop import on_one_loop
from queue_operator.backends.sql import load
from queue_operator.backends.streams import (
    Happened,
    Kind,
    Looked,
    Mark,
    Name,
    Now,
    Step,
    is_kept,
    status_of,
)
from queue_operator.domain.states import JobState

_MARK: Final = load(__package__, "stream_mark")
_CUT: Final = load(__package__, "roll_up_cut")
_FRESH: Final = load(__package__, "stream_fresh")
_LANES: Final = load(__package__, "stream_lanes", fresh=_FRESH)
_KINDS: Final = load(__package__, "stream_kinds")
_EVENTS: Final = load(__package__, "stream_events", fresh=_FRESH)
_LOOK: Final = load(__package__, "stream_look")
_EVERYTHING: Final = Horizon(2**63 - 1)
_NUMBER_BYTES: Final = 8
_KNOWN_LANES: Final = 20_000
_NOBODY: Final = Kind("", "", frozenset())
_STORE_DIGITS: Final = 8


@on_one_loop
class FollowedLog:
    """The protocol `Followed`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._kinds: dict[int, Kind] = {}

    @again_when_undone
    async def mark(self) -> Mark:
        async with borrowed(self._pool) as connection:
            [row] = await (await connection.execute(_MARK)).fetchall()
        uid, snapshot, highest, above_seq, pruned_seq = row
        return Mark(
            store=hashlib.sha256(uid.encode()).hexdigest()[:_STORE_DIGITS],
            horizon=Horizon.parse(snapshot),
            highest=highest,
            above_seq=above_seq,
            pruned_seq=pruned_seq,
        )

    async def kept(self, positions: Sequence[Position]) -> list[bool]:
        mark = await self.mark()
        return [is_kept(position, mark) for position in positions]

    @again_when_undone
    async def look(self, names: Collection[Name]) -> Looked:
        asked = list(names)
        wanted = {"namespaces": [name[0] for name in asked], "ids": [name[1] for name in asked]}
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_LOOK, wanted)).fetchall()
            await self._learn(connection, {row[3] for row in rows})
        jobs = {asked[row[1] - 1]: self._now(row) for row in rows}
        horizon = Horizon.parse(rows[0][0]) if rows else Horizon(0)
        return Looked(horizon=horizon, jobs=jobs)

    @again_when_undone
    async def step(
        self,
        since: Horizon,
        until: Horizon | None,
        above_seq: int,
        wanted: Callable[[Kind], bool],
        numbers: Collection[int],
        most: int,
    ) -> Step:
        async with borrowed(self._pool) as connection:
            upto, is_last, any_rows = await _cut(connection, since, until, above_seq, most)
            if not any_rows:
                return Step(upto=upto, highest=0, events=(), is_last=is_last)
            part = since.until(upto, above_seq)
            [(highest, lanes)] = await (await connection.execute(_LANES, part)).fetchall()
            await self._learn(connection, lanes)
            chosen = [lane for lane in lanes if wanted(self._kinds.get(lane, _NOBODY))]
            rows: Sequence[TupleRow] = ()
            if chosen or numbers:
                asked = part | {"lanes": chosen, "numbers": Int8s(numbers)}
                rows = await (await connection.execute(_EVENTS, asked)).fetchall()
        return Step(
            upto=upto,
            highest=highest,
            events=[self._happened(row) for row in rows],
            is_last=is_last,
        )

    async def _learn(self, connection: AsyncConnection[TupleRow], lanes: Iterable[int]) -> None:
        """What the jobs of lanes have in common never changes."""
        if len(self._kinds) > _KNOWN_LANES:
            self._kinds.clear()
        new = [lane for lane in lanes if lane not in self._kinds]
        if new:
            cursor = await connection.execute(_KINDS, {"lanes": new})
            for lane, namespace, kind, tags in await cursor.fetchall():
                self._kinds[lane] = Kind(namespace, kind, frozenset(tags))

    def _now(self, row: TupleRow) -> Now:
        _, _, number, lane, state_name, attempt, at, category, blocked, is_later = row
        state = JobState(state_name)
        return Now(
            number=number,
            status=status_of(state, category, blocked, is_later),
            state=state,
            attempt=attempt,
            at=at,
            kind=self._kinds.get(lane, _NOBODY),
        )

    def _happened(self, row: TupleRow) -> Happened:
        xid, seq, n, at, event, to_state, number, attempt, lane, category, name, *waits = row
        state = None if event == DELETE else JobState(to_state)
        return Happened(
            xid=xid,
            place=(seq, n),
            at=at,
            event=event,
            status=None if state is None else status_of(state, category, *waits),
            state=state,
            number=number,
            job_id=name,
            attempt=attempt,
            kind=self._kinds.get(lane, _NOBODY),
        )


async def _cut(
    connection: AsyncConnection[TupleRow],
    since: Horizon,
    until: Horizon | None,
    above_seq: int,
    most: int,
) -> tuple[Horizon, bool, bool]:
    """How far a step goes, whether that is all, and whether it tells of anything."""
    limits = {"max_rows": most, "max_bytes": most * _NUMBER_BYTES}
    wanted: dict[str, Any] = since.until(_EVERYTHING, above_seq)
    [(_, now, last, rows)] = await (await connection.execute(_CUT, wanted | limits)).fetchall()
    upto = until or Horizon.parse(now)
    if last is None or int(last) + 1 >= upto.end_xid:
        return upto, True, bool(rows)
    return upto.before(int(last) + 1), False, True
