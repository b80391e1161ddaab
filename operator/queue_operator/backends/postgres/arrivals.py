"""What became claimable since the last look, told by whoever made it so.

Each transaction that makes jobs claimable writes where they lie, and a reader gets exactly the
rows that its last snapshot did not see: none is missed because it committed late. Rows are kept
for some minutes. Who has not read for longer, or finds that the database is another one, begins
anew: with the lanes in which jobs wait by the counts, wherever in them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from psycopg.rows import TupleRow

from queue_operator.backends.horizon import Horizon
from queue_operator.backends.postgres.connection import HISTORY, LONG_S, Pool, borrowed, trust
from queue_operator.backends.postgres.counts import TAIL
from queue_operator.backends.postgres.fronts import END, Fronts, Place, Range
from queue_operator.backends.postgres.lanes import TOLD, Lane, Lanes, lanes_of, names_of
from queue_operator.backends.postgres.staging import Staging
from queue_operator.backends.sql import load

_FRESH: Final = load(__package__, "arrival_fresh")
_READ: Final = load(__package__, "arrival_read", fresh=_FRESH, history=HISTORY)
_BEGIN: Final = load(__package__, "arrival_begin", history=HISTORY, tail=TAIL, told=TOLD)
_PRUNE: Final = load(__package__, "arrival_prune")
_ADOPT: Final = load(__package__, "arrival_adopt")
PARTS: Final = {
    "fresh": _FRESH,
    "history": HISTORY,
    "staging": load(__package__, "stage_due"),
}
_KEPT: Final = timedelta(minutes=10)
_READ_WITHIN: Final = timedelta(minutes=5)
_MOST_ROWS: Final = 50_000
_MOST_PAST: Final = 100
_BATCH: Final = 10_000
_SLICE: Final = 1000
"""So many rows are worked off before others have a turn."""
_MOST_BATCHES: Final = 20
"""What is forgotten at a time, and how often in a row: an old snapshot keeps much until it ends."""
FRESH_S: Final = 0.02
"""So old may what is known of other processes' jobs be when a claim begins."""

logger = logging.getLogger(__name__)


async def adopt(pool: Pool) -> None:
    """In a restored copy of a database, forgets what the original told."""
    async with borrowed(pool, LONG_S) as connection:
        await connection.execute(_ADOPT)


class _Read(NamedTuple):
    """Up to where arrivals are known, when that was, and of which history."""

    horizon: Horizon
    at: datetime
    history: str


class Arrivals:
    """Keeps `fronts` and `staging` up to what other transactions told."""

    def __init__(
        self,
        pool: Pool,
        lanes: Lanes,
        staging: Staging,
        resumed: Callable[[], None],
        noted: Callable[[], None],
    ) -> None:
        """`resumed` is called when jobs may be claimed that claims passed by: a pause was found to
        be over, or all began anew. `noted` is called whenever there may be more lanes in `fronts`.
        """
        self._pool = pool
        self._lanes = lanes
        self._staging = staging
        self._resumed = resumed
        self._noted = noted
        self.fronts = Fronts(lanes.gate)
        self._read: _Read | None = None
        self._read_s = float("-inf")
        self._hinted = True
        self._knows_pauses = False
        # Whoever reads applies what he read before another one begins: snapshots go forward.
        self.lock = asyncio.Lock()
        self._past = _Past(pool)

    def hint(self) -> None:
        """Something arrived."""
        self._hinted = True

    def lose(self) -> None:
        """What was read may not be so any more: the next reader begins anew."""
        self._read = None

    async def catch_up(self, *, thorough: bool = False) -> None:
        """Reads what arrived, unless that was done just now and nothing has been heard of since;
        if `thorough`, in any case.
        """
        asked_s = time.monotonic()
        async with self.lock:
            # Somebody may have read since we asked.
            if self._read is not None and self._read_s >= asked_s:
                return
            rested = asked_s - self._read_s < FRESH_S
            is_whole = self._read is not None and self._knows_pauses
            if thorough or self._hinted or not rested or not is_whole:
                await self.read()

    async def places(self, lanes: Sequence[int]) -> list[Place]:
        """For each lane, a place before which no job waits to be claimed."""
        await self.catch_up()
        return [self.fronts.head(lane_id) or END for lane_id in lanes]

    async def read(self) -> None:
        """To be called with the lock held."""
        began_s = time.monotonic()
        self._hinted = False
        try:
            await self._read_once()
            while self._read is None or not self._knows_pauses:
                await self._read_once()
        except BaseException:
            self._hinted = True
            raise
        self._read_s = began_s

    async def _read_once(self) -> None:
        if self._read is None:
            await self._begin()
            return
        asked_at = self._lanes.gate.version
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_READ, self.since(), binary=True)
            rows = await cursor.fetchall()
        await self.take(rows, asked_at)

    def since(self) -> dict[str, Any]:
        """Parameters that select what is not known yet."""
        seen = self._read.horizon if self._read is not None else _NOTHING
        return {
            "first_xid": str(seen.end_xid),
            "open_xids": [str(xid) for xid in seen.open_xids],
            "most_rows": _MOST_ROWS,
        }

    @property
    def has_begun(self) -> bool:
        """Whether `since` says anything."""
        return self._read is not None

    @property
    def history(self) -> str:
        """The one of which is known where jobs wait; empty before anything is."""
        return self._read.history if self._read is not None else ""

    @property
    def now(self) -> datetime | None:
        """The server's time at the last look."""
        return self._read.at if self._read is not None else None

    async def take(self, rows: Sequence[TupleRow], asked_at: int) -> bool:
        """What a statement with the parameters of `since` found, the lock being held since then.
        False if it does not go on where the last one ended: then the next reader begins anew.
        `asked_at` is the version that the gate had before.
        """
        at, snapshot, history, paused, *_ = rows[0]
        now, last = _Read(Horizon.parse(snapshot), at, history), self._read
        self._lanes.note_history(history)
        self._learn_pauses(paused, asked_at)
        if last is None or not _follows(now, last) or len(rows) >= _MOST_ROWS:
            self.lose()
            return False
        await self._note([row[4:10] for row in rows], history)
        self._note_read(now)
        return True

    async def note(self, waiting: Mapping[int, Range]) -> None:
        """By lane, where jobs wait of which nobody told."""
        async with self.lock:
            told = [(lane, *one.first, *one.last, None) for lane, one in waiting.items()]
            await self._note(told, self.history)

    async def _note(self, told: Sequence[Sequence[Any]], history: str) -> None:
        for first in range(0, len(told), _SLICE):
            await self._note_some(told[first : first + _SLICE], history)
            # What else this process does need not wait for all of them.
            await asyncio.sleep(0)

    async def _note_some(self, told: Sequence[Sequence[Any]], history: str) -> None:
        ids = {row[0] for row in told if row[0] is not None}
        lanes, asked = dict[int, Lane](), set[int]()
        # While lanes are looked up a claim may forget another one.
        while unknown := {one for one in ids - asked if not self.fronts.knows(one)}:
            lanes |= (known := self._lanes.recall(unknown))
            if others := unknown - known.keys():
                lanes |= await self._lanes.find(others, history)
            asked |= unknown
        for lane_id, first, first_no, last, last_no, due_at in told:
            if due_at is not None:
                self._staging.expect(due_at)
            # A lane that cannot be found has been removed: its jobs are gone.
            if lane_id is not None and (lane_id in lanes or self.fronts.knows(lane_id)):
                arrived = Range((first, first_no), (last, last_no))
                self.fronts.note(lane_id, arrived, lanes.get(lane_id))

    async def _begin(self) -> None:
        """Reads which lanes have waiting jobs, and goes on from there."""
        asked_at = self._lanes.gate.version
        rows: list[TupleRow] = []
        async with borrowed(self._pool, LONG_S) as connection:
            cursor = await connection.execute(_BEGIN, binary=True)
            while some := await cursor.fetchmany(_SLICE):
                rows += some
                await asyncio.sleep(0)
        at, snapshot, history, paused, *_ = rows[0]
        self._lanes.note_history(history)
        self.fronts.clear()
        self._past.clear()
        self._staging.look_everywhere()
        self._learn_pauses(paused, asked_at)
        names = names_of(rows[0][4:]) if rows[0][4] is not None else None
        for first in range(0, len(rows), _SLICE):
            lanes = lanes_of([row[4:] for row in rows[first : first + _SLICE]], names)
            self._lanes.remember(lanes, history)
            for lane in lanes:
                self.fronts.open_whole(lane)
            await asyncio.sleep(0)
        self.fronts.looked_into = len(self.fronts)
        self._note_read(_Read(Horizon.parse(snapshot), at, history))
        # Claims that were under way meanwhile did not see all of them.
        self._resumed()

    def _learn_pauses(self, paused: Sequence[Sequence[str]], asked_at: int) -> None:
        """Unless this process paused or resumed anything meanwhile, which was not read, maybe."""
        gate = self._lanes.gate
        self._knows_pauses = gate.version == asked_at
        if self._knows_pauses and gate.learn([(space, kind) for space, kind in paused]):
            self._resumed()

    def _note_read(self, now: _Read) -> None:
        self._read = now
        self._past.note(now)
        self._noted()

    async def prune(self) -> None:
        """Forgets what everybody has read who does not have to begin anew."""
        await self._past.prune(self._read)


class _Past:
    """What was read and when, so that arrivals are forgotten that everybody has read who does not
    have to begin anew.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reads: list[_Read] = []
        self._prune_to = 0
        self._pruned_to = 0

    def clear(self) -> None:
        """Of another history nothing is to be forgotten."""
        self._reads.clear()
        self._prune_to = self._pruned_to = 0

    def note(self, now: _Read) -> None:
        if not self._reads or now.at - self._reads[-1].at > _KEPT / 10:
            # Who never prunes remembers the latest ones.
            self._reads = [*self._reads[1 - _MOST_PAST :], now]

    async def prune(self, last: _Read | None) -> None:
        """`last` is what was read last."""
        if last is None:
            return
        old = [one for one in self._reads if last.at - one.at > _KEPT]
        if old:
            self._reads = self._reads[len(old) :]
            self._prune_to = max(self._prune_to, old[-1].horizon.lowest)
        for _ in range(_MOST_BATCHES):
            if self._pruned_to >= self._prune_to:
                break
            # The numbers of transactions of another server are others.
            trust(self._pool, last.history)
            await self._prune_some()

    async def _prune_some(self) -> None:
        wanted = {
            "from_xid": str(self._pruned_to),
            "end_xid": str(self._prune_to),
            "max_rows": _BATCH,
        }
        async with borrowed(self._pool, LONG_S) as connection:
            [(gone, last_xid)] = await (await connection.execute(_PRUNE, wanted)).fetchall()
        self._pruned_to = self._prune_to if gone < _BATCH else int(last_xid)


_NOTHING: Final = Horizon(0)


def _follows(now: _Read, last: _Read) -> bool:
    """Whether what `now` sees beyond `last` is all that is new."""
    if now.history != last.history or now.at - last.at > _READ_WITHIN:
        return False
    return now.horizon.end_xid >= last.horizon.end_xid
