"""The figures about the stored jobs: whose turn it is to show them, how many jobs there are, and
what happened, counted once from the log by the difference of snapshots, as the roll-ups do.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.figures import (
    OTHER,
    Buckets,
    Counted,
    Naming,
    Pair,
    Stock,
    shown,
    spread_of,
)
from queue_operator.backends.horizon import Horizon
from queue_operator.backends.postgres.arrays import Int8s
from queue_operator.backends.postgres.connection import (
    LONG_S,
    Pool,
    again_when_undone,
    borrowed,
)
from queue_operator.backends.postgres.counts import TAIL, Counts
from queue_operator.backends.postgres.depth import KINDS, DepthStore
from queue_operator.backends.postgres.one_loop import on_one_loop
from queue_operator.backends.postgres.slots import Slots
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable

_LEAD: Final = load(__package__, "figure_lead")
_LOCK: Final = load(__package__, "figure_lock")
_CUT: Final = load(__package__, "roll_up_cut")
_NAMED: Final = load(__package__, "figure_named")
_FRESH: Final = load(__package__, "roll_up_fresh")
_COUNT: Final = load(__package__, "figure_count", fresh=_FRESH, named=_NAMED)
_ADVANCE: Final = load(__package__, "figure_advance")
_JOBS: Final = load(__package__, "figure_jobs", tail=TAIL, kinds=KINDS, named=_NAMED)
_NAMES: Final = load(__package__, "figure_names")
_FORGET: Final = load(__package__, "figure_forget")
_LAG: Final = load(__package__, "figure_lag")
_HIGHEST: Final = "SELECT coalesce(max(seq), 0) FROM job_event"
_FATE: Final = "SELECT pg_xact_status(%s::xid8)"
_STEP_ROWS: Final = 100_000
_STEP_BYTES: Final = 2 * 1024 * 1024
"""Of job numbers, at eight bytes each: a step takes a few tenths of a second."""
_STEPS: Final = 20
_TOUCHES: Final = 24
"""How often the use of a name is noted anew, in the time after which it is given back."""
_FORGET_EVERY_S: Final = 60.0
_NOBODY_S: Final = -1.0

logger = logging.getLogger(__name__)


class _Mark(NamedTuple):
    """How far the counters are, as in `roll_ups.Seen`."""

    version: int
    horizon: Horizon
    is_ours: bool
    above_seq: int

    def until(self, now: Horizon) -> dict[str, Any]:
        """Parameters that select what `now` sees and this did not."""
        return self.horizon.until(now, self.above_seq)


class _Doubt(NamedTuple):
    """What was counted in a transaction of which is not known whether it was committed."""

    xid: str
    counted: Counted


@on_one_loop
class FigureStore:
    """The protocol `Figures`."""

    def __init__(self, pool: Pool, counts: Counts, depths: DepthStore) -> None:
        self._pool = pool
        self._counts = counts
        self._depths = depths
        self._slots = Slots(pool)
        self._earned = Counted()
        self._doubt: _Doubt | None = None
        self._forget_at_s = float("-inf")

    async def lead(self, holder: str, ttl_s: float) -> bool:
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_LEAD, {"holder": holder, "ttl_s": ttl_s})
            [(is_ours,)] = await cursor.fetchall()
        return bool(is_ours)

    async def resign(self, holder: str) -> None:
        await self.lead(holder, _NOBODY_S)

    async def stock(self, naming: Naming) -> Stock:
        await self._counts.keep_up()
        await self._forget(naming)
        rows, names = await self._jobs(naming)
        ages, lanes = await self._depths.waiting_ages()
        running = {space: n for space, _, state, n in rows if space is not None and state is None}
        needed = await self._slots.needed(lanes, running)
        oldest: dict[Pair, float] = {}
        for pair, age_s in ages.items():
            name = shown(pair, names)
            oldest[name] = max(age_s, oldest.get(name, age_s))
        jobs: Counter[tuple[str, str, str]] = Counter()
        for space, kind, state, n in rows:
            if state:
                # A type may be called as the sum of the others is.
                jobs[*_pair(space, kind), state] += n
        return Stock(
            names=names,
            jobs=jobs,
            oldest_age_s=oldest,
            needed_slots=needed,
            waiting_lanes=len(lanes),
            unnamed=next(n for space, _, state, n in rows if space is None and state is None),
        )

    async def names(self) -> frozenset[Pair]:
        async with borrowed(self._pool) as connection:
            return await _names(connection)

    async def count(self, holder: str, naming: Naming, buckets: Buckets) -> Counted:
        await self._resolve()
        for _ in range(_STEPS):
            if not await self._step(holder, naming, buckets):
                break
        earned, self._earned = self._earned, Counted()
        return earned

    async def lag_s(self) -> float:
        async with borrowed(self._pool) as connection:
            [(lag_s,)] = await (await connection.execute(_LAG)).fetchall()
        return float(lag_s)

    @again_when_undone
    async def _jobs(self, naming: Naming) -> tuple[list[TupleRow], frozenset[Pair]]:
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_JOBS, _named(naming))).fetchall()
            return rows, await _names(connection)

    @again_when_undone
    async def _forget(self, naming: Naming) -> None:
        if time.monotonic() < self._forget_at_s:
            return
        async with borrowed(self._pool) as connection:
            await connection.execute(_FORGET, {"unused_s": naming.unused_s})
        self._forget_at_s = time.monotonic() + min(_FORGET_EVERY_S, naming.unused_s / _TOUCHES)

    @again_when_undone
    async def _step(self, holder: str, naming: Naming, buckets: Buckets) -> bool:
        """One transaction, without a savepoint, as in `roll_ups`; whether there is more."""
        async with borrowed(self._pool, LONG_S) as connection:
            row = await (await connection.execute(_LOCK, {"holder": holder})).fetchone()
            if row is None:
                return False
            version, snapshot, is_ours, above_seq = row
            mark = _Mark(version, Horizon.parse(snapshot), is_ours, above_seq)
            limits = {"max_rows": _STEP_ROWS, "max_bytes": _STEP_BYTES}
            everything = mark.until(Horizon(2**63 - 1))
            cursor = await connection.execute(_CUT, {**everything, **limits})
            [(_, now, last, rows)] = await cursor.fetchall()
            if mark.is_ours and not rows:
                return False
            upto, counted = Horizon.parse(now), Counted()
            if not mark.is_ours:
                logger.warning("the counters begin anew in a restored copy of a database")
                [(above_seq,)] = await (await connection.execute(_HIGHEST)).fetchall()
            else:
                upto = upto if last is None else upto.before(int(last) + 1)
                wanted = mark.until(upto) | _named(naming)
                counted = await _counted(connection, wanted, buckets)
            noted = {"version": mark.version, "upto": str(upto), "above_seq": above_seq}
            [(xid,)] = await (await connection.execute(_ADVANCE, noted)).fetchall()
            self._doubt = _Doubt(xid, counted)
        if connection.closed:
            # The driver commits nothing on a broken line, and does not say so.
            await self._resolve()
            return True
        self._doubt = None
        self._earned.add(counted)
        return mark.is_ours and last is not None

    async def _resolve(self) -> None:
        """Finds out what became of a commit that was not answered."""
        if self._doubt is None:
            return
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_FATE, [self._doubt.xid])
            [(fate,)] = await cursor.fetchall()
        if fate == "in progress":
            raise Unavailable("a transaction that counted has not ended yet")
        if fate == "committed":
            self._earned.add(self._doubt.counted)
        self._doubt = None


async def _names(connection: AsyncConnection[TupleRow]) -> frozenset[Pair]:
    return frozenset(
        _pair(space, None if is_space else kind)
        for space, kind, is_space in await (await connection.execute(_NAMES)).fetchall()
        # One that is gone is no other.
        if space is not None and (is_space or kind is not None)
    )


async def _counted(
    connection: AsyncConnection[TupleRow], wanted: dict[str, Any], buckets: Buckets
) -> Counted:
    bounds = {"wait_bounds": _bounds(buckets.wait), "run_bounds": _bounds(buckets.run)}
    counted = Counted()
    for row in await (await connection.execute(_COUNT, {**wanted, **bounds})).fetchall():
        kind, space, job_type, told, category, bucket, n, us = row
        pair = _pair(space, job_type)
        match kind:
            case 1:
                counted.submitted[pair] += n
            case 2:
                spread_of(counted.waits, pair, len(buckets.wait) + 1).note(bucket, n, us)
            case 3:
                counted.attempts[*pair, told, category or ""] += n
                spread_of(counted.runs, pair, len(buckets.run) + 1).note(bucket, n, us)
            case _:
                counted.finished[*pair, told] += n
    return counted


def _bounds(upper_s: Sequence[float]) -> Int8s:
    """The first microsecond above each bucket, which includes its bound."""
    return Int8s(round(bound * 1_000_000) + 1 for bound in upper_s)


def _named(naming: Naming) -> dict[str, Any]:
    return {
        "max_pairs": naming.max_pairs,
        "max_namespaces": naming.max_namespaces,
        "touch_s": naming.unused_s / _TOUCHES,
    }


def _pair(namespace: str | None, job_type: str | None) -> Pair:
    return namespace or OTHER, job_type or OTHER
