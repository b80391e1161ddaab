"""Roll-ups of the event log, kept up step by step: each step adds what one snapshot sees and the
one before did not, and notes the snapshot in the same transaction.
"""

import logging
import time
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.horizon import Horizon
from queue_operator.backends.postgres.arrays import Int8s, Times
from queue_operator.backends.postgres.connection import (
    LONG_S,
    Pool,
    again_when_undone,
    borrowed,
)
from queue_operator.backends.sql import load
from queue_operator.backends.tallies import SPANS
from queue_operator.domain.histogram import BUCKETS, lower_bound

_CLOSED: Final = load(__package__, "roll_up_closed")
_PROGRESS: Final = load(__package__, "roll_up_progress", closed=_CLOSED)
_LOCK: Final = load(__package__, "roll_up_lock", closed=_CLOSED, or_skip="SKIP LOCKED")
_WAIT: Final = load(__package__, "roll_up_lock", closed=_CLOSED, or_skip="")
_CLOSE: Final = load(__package__, "roll_up_close")
_CUT: Final = load(__package__, "roll_up_cut")
CELLS: Final = load(__package__, "roll_up_cells", fresh=load(__package__, "roll_up_fresh"))
STORED: Final = load(__package__, "statistics_spans")
_ADD: Final = load(__package__, "roll_up_add", cells=CELLS)
_ADVANCE: Final = load(__package__, "roll_up_advance")
_HIGHEST: Final = "SELECT coalesce(max(seq), 0) FROM job_event"
_PRUNE: Final = load(__package__, "roll_up_prune")
BOUNDS: Final = Int8s(lower_bound(bucket) for bucket in range(BUCKETS))
_STEP_BYTES: Final = 2 * 1024 * 1024
"""Of job numbers, at eight bytes each: a step takes a few tenths of a second."""
_PRUNE_EVERY_S: Final = 60.0
_PRUNE_ROWS: Final = 10_000
_TURNS: Final = 100
"""Each time that somebody waits for a turn, another has had it."""

logger = logging.getLogger(__name__)


_EVERYTHING: Final = Horizon(2**63 - 1)


class Seen(NamedTuple):
    """What is rolled up, as the note of that version says. Rows of the log up to `above_seq` name
    transactions of another database; not `is_ours`, the horizon does so too. All but the shortest
    spans are there up to `closed_until`.
    """

    version: int
    horizon: Horizon
    is_ours: bool
    above_seq: int
    closed_until: datetime

    def is_due(self, now: datetime) -> bool:
        """Whether a span is over that is not summed up."""
        return self.is_ours and self.closed_until < SPANS[1].begin(now)

    def until(self, now: Horizon) -> dict[str, Any]:
        """Parameters that select what `now` sees and this did not."""
        return self.horizon.until(now, self.above_seq)


class Progress(NamedTuple):
    """How far the roll-ups are, as one snapshot sees it, and what lies behind that."""

    at: datetime
    now: Horizon
    seen: Seen
    rows: int
    bytes: int


async def read_progress(connection: AsyncConnection[TupleRow], max_rows: int) -> Progress:
    cursor = await connection.execute(_PROGRESS, {"max_rows": max_rows})
    [(at, now, version, seen, *seen_so, rows, size)] = await cursor.fetchall()
    done = Seen(version, Horizon.parse(seen), *seen_so)
    return Progress(at, Horizon.parse(now), done, rows, size)


class RollUps:
    """What `Statistics` reads, and its upkeep."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._prune_at_s = float("-inf")

    async def adopt(self) -> None:
        """In a restored copy of a database, before anything is written to it: rolls up what the
        original had not, because from then on its numbers of transactions mean others.
        """
        async with borrowed(self._pool) as connection:
            progress = await read_progress(connection, 1)
        if not progress.seen.is_ours:
            await self._step(1, waits=True)

    async def roll_up(self, limit: int, *, waits: bool = False) -> int:
        """Nothing where another replica is at it, unless it `waits` for that one."""
        async with borrowed(self._pool) as connection:
            progress = await read_progress(connection, 1)
        total = 0
        if progress.seen.is_due(progress.at):
            await self._close(progress.at)
        if progress.rows or not progress.seen.is_ours:
            more = True
            # What comes meanwhile is for the next time: it may come without an end.
            while more and total < limit:
                added, more = await self._step(limit - total, waits=waits)
                total += added
        await self._prune(progress.at)
        return total

    @again_when_undone
    async def _step(self, max_rows: int, *, waits: bool) -> tuple[int, bool]:
        """One transaction; how many rows of the log it added, and whether it left any.

        It has no savepoint: a row that is written behind one is not the transaction's, but a
        part's of it, and progress would not look like ours.
        """
        async with borrowed(self._pool, LONG_S) as connection:
            seen = await _turn(connection, waits=waits)
            if seen is None:
                return 0, False
            # Its snapshot is taken when the turn is ours.
            limits = {"max_rows": max_rows, "max_bytes": _STEP_BYTES}
            cursor = await connection.execute(_CUT, {**seen.until(_EVERYTHING), **limits})
            [(at, now, last, rows)] = await cursor.fetchall()
            upto, above_seq = Horizon.parse(now), seen.above_seq
            if seen.is_ours and not rows:
                return 0, False
            if not seen.is_ours:
                logger.warning("the statistics go on in a restored copy of a database")
                [(above_seq,)] = await (await connection.execute(_HIGHEST)).fetchall()
            elif last is not None:
                upto = upto.before(int(last) + 1)
            wanted = seen.until(upto if seen.is_ours else _EVERYTHING)
            closed = {"closed_until": seen.closed_until}
            parameters = {**wanted, **_kept(at), **closed, "bounds": BOUNDS}
            [(added,)] = await (await connection.execute(_ADD, parameters)).fetchall()
            noted = {"version": seen.version, "upto": str(upto), "above_seq": above_seq, **closed}
            await connection.execute(_ADVANCE, noted)
        return int(added), seen.is_ours and last is not None

    @again_when_undone
    async def _close(self, now: datetime) -> None:
        """One transaction, like a step: hours are summed up from their minutes, then days."""
        closed = SPANS[1].begin(now)
        async with borrowed(self._pool, LONG_S) as connection:
            seen = await _turn(connection, waits=False)
            if seen is None or not seen.is_due(now):
                return
            for shorter, span in pairwise(SPANS):
                over = {
                    "span_s": span.seconds,
                    "shorter_s": shorter.seconds,
                    "begins_at": span.begin(seen.closed_until),
                    "ends_at": span.begin(closed),
                }
                await connection.execute(_CLOSE, over)
            noted = {
                "version": seen.version,
                "upto": str(seen.horizon),
                "above_seq": seen.above_seq,
                "closed_until": closed,
            }
            await connection.execute(_ADVANCE, noted)

    async def _prune(self, now: datetime) -> None:
        if time.monotonic() < self._prune_at_s:
            return
        self._prune_at_s = time.monotonic() + _PRUNE_EVERY_S
        async with borrowed(self._pool, LONG_S) as connection:
            seen = await _turn(connection, waits=False)
            # What longer spans are still to be made of stays.
            if seen is not None and not seen.is_due(now):
                await connection.execute(_PRUNE, {**_kept(now), "max_rows": _PRUNE_ROWS})


async def _turn(connection: AsyncConnection[TupleRow], *, waits: bool) -> Seen | None:
    """None where it is another's, for which nobody `waits`."""
    for _ in range(_TURNS if waits else 1):
        row = await (await connection.execute(_WAIT if waits else _LOCK)).fetchone()
        if row is not None:
            version, seen, *rest = row
            return Seen(version, Horizon.parse(seen), *rest)
    return None


def _kept(now: datetime) -> dict[str, Any]:
    """Which spans there are, and since when each is kept."""
    return {
        "spans": Int8s(span.seconds for span in SPANS),
        "oldest": Times(span.oldest(now) for span in SPANS),
    }
