"""The log of events of a store that keeps jobs on a shelf, as those read it who follow jobs.

Whoever writes there is alone from the start of a transaction to its end, so numbers of rows are in
the order of commits, and a reader sees all rows up to one, and none beyond it: a snapshot is the
row where it ends. Its number alone would fit any log that is as long, as one that lives on from a
backup. So a mark of what the row says stands beside the number, and a position whose row is not
there, or is another, has expired.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar
from zlib import crc32

from queue_operator.backends.horizon import Horizon
from queue_operator.backends.lookups import DELETE, EventBatch
from queue_operator.backends.positions import Position
from queue_operator.backends.shelf import Glimpse, Shelf
from queue_operator.backends.streams import (
    Happened,
    Kind,
    Looked,
    Mark,
    Name,
    Now,
    Step,
    status_of,
)

_T = TypeVar("_T")

_SUBMIT: Final = "SUBMIT"
_MARK_BITS: Final = 24
_MARKS: Final = 2**_MARK_BITS - 2
_PAGE_ROWS: Final = 50
_STEP_JOBS: Final = 2000
"""Of so many jobs one step tells at most: nobody else uses the shelf meanwhile."""
_KNOWN_JOBS: Final = 20_000
_NOBODY: Final = "", Kind("", "", frozenset())

_Named = tuple[str, Kind]


class Owner(Protocol):
    """The backend that has the shelf: it is alone with it in each call."""

    @property
    def _shelf(self) -> Shelf: ...

    async def _alone(self, work: Callable[[], _T], *, reads: bool = False) -> _T: ...


@dataclass(frozen=True, slots=True)
class _Read:
    """Rows of the log, and what is known of the jobs in them that never changes."""

    rows: Sequence[EventBatch]
    is_last: bool
    names: Mapping[int, _Named]


@dataclass(frozen=True, slots=True)
class _One:
    """What a row tells of one job."""

    row: EventBatch
    at: int
    number: int
    job_id: str
    kind: Kind


class ShelfFollowed:
    """The protocol `Followed`."""

    def __init__(self, owner: Owner, clock: Callable[[], datetime]) -> None:
        self._owner = owner
        self._clock = clock
        self._known: dict[int, _Named] = {}

    async def mark(self) -> Mark:
        return await self._reading(_mark)

    async def kept(self, positions: Sequence[Position]) -> list[bool]:
        return await self._reading(lambda shelf: [_is_kept(shelf, one) for one in positions])

    async def look(self, names: Collection[Name]) -> Looked:
        asked = list(names)
        end, found = await self._reading(lambda shelf: self._look(shelf, asked))
        now = self._clock()
        jobs = {(one.kind.namespace, one.job_id): _now(one, now) for one in found}
        return Looked(horizon=end, jobs=jobs)

    async def step(
        self,
        since: Horizon,
        until: Horizon | None,
        above_seq: int,
        wanted: Callable[[Kind], bool],
        numbers: Collection[int],
        most: int,
    ) -> Step:
        most = min(most, _STEP_JOBS)
        read = await self._reading(lambda shelf: self._read(shelf, since, until, most, numbers))
        if not read.rows:
            return Step(upto=until or since, highest=0, events=(), is_last=True)
        followed = frozenset(numbers)
        # Who wants what is asked here, and not where the shelf is: that may be another thread.
        chosen = list(_chosen(read, wanted, followed))
        new = {one.number for one in chosen if one.row.event == _SUBMIT}
        seen = await self._reading(lambda shelf: shelf.glimpse_numbered(new)) if new else ()
        waiting = {one.number: one for one in seen}
        now = self._clock()
        end = _end_of(read.rows[-1])
        return Step(
            upto=until if until is not None and read.is_last else end,
            highest=read.rows[-1].seq,
            events=[_happened(one, waiting.get(one.number), now) for one in chosen],
            is_last=read.is_last,
        )

    async def _reading(self, look: Callable[[Shelf], _T]) -> _T:
        return await self._owner._alone(lambda: look(self._owner._shelf), reads=True)

    def _look(self, shelf: Shelf, asked: Collection[Name]) -> tuple[Horizon, Sequence[Glimpse]]:
        found = shelf.glimpse(asked)
        # Whoever follows one by id is told its last events even if it is deleted at once.
        self._known |= {one.number: (one.job_id, one.kind) for one in found}
        return _end_of(shelf.last_event()), found

    def _read(
        self,
        shelf: Shelf,
        since: Horizon,
        until: Horizon | None,
        most: int,
        followed: Collection[int],
    ) -> _Read:
        rows, is_last = _rows(shelf, since, until, most)
        named: dict[int, _Named] = {}
        for row in rows:
            if row.event == _SUBMIT:
                named |= zip(row.job_nos, _submitted(row), strict=True)
        numbers = {number for row in rows for number in row.job_nos}
        named |= {one: self._known[one] for one in numbers - named.keys() if one in self._known}
        if missing := numbers - named.keys():
            named |= {one.number: (one.job_id, one.kind) for one in shelf.glimpse_numbered(missing)}
        if len(self._known) + len(named) > _KNOWN_JOBS:
            # Those that are followed by id stay known, even if they are deleted.
            self._known = {one: self._known[one] for one in followed if one in self._known}
        self._known |= named
        return _Read(rows, is_last, named)


def _mark(shelf: Shelf) -> Mark:
    last = shelf.last_event()
    first = next(iter(shelf.events(0, 1)), None)
    return Mark(
        store=shelf.log_id,
        horizon=_end_of(last),
        highest=last.seq if last else 0,
        above_seq=0,
        pruned_seq=first.seq - 1 if first else 0,
    )


def _is_kept(shelf: Shelf, position: Position) -> bool:
    end, partly = position.horizon.end_xid, position.partly
    if position.store != shelf.log_id or position.horizon.open_xids or len(partly) > 1:
        return False
    if end == 0:
        return all(row.seq == 1 for row in shelf.events(0, 1)) and not partly
    row = _row(shelf, end >> _MARK_BITS)
    if row is None or end - _number(row) not in (0, 1):
        return False
    return all(one == _number(row) for one in partly)


def _row(shelf: Shelf, seq: int) -> EventBatch | None:
    """The row with that number."""
    if seq == 0:
        return None
    return next((row for row in shelf.events(seq - 1, 1) if row.seq == seq), None)


def _number(row: EventBatch) -> int:
    """What stands for the transaction of a row: its number, and a mark of what it says. Neither
    this nor the next one is another row's.
    """
    said = f"{row.at.isoformat()} {row.event} {row.after} {row.job_nos[:1]}"
    return row.seq << _MARK_BITS | 1 + crc32(said.encode()) % _MARKS


def _end_of(row: EventBatch | None) -> Horizon:
    """All up to this row."""
    return Horizon(0 if row is None else _number(row) + 1)


def _rows(
    shelf: Shelf, since: Horizon, until: Horizon | None, most: int
) -> tuple[list[EventBatch], bool]:
    """What came after, of about so many jobs; whether that is all."""
    rows: list[EventBatch] = []
    jobs, after = 0, max((since.end_xid >> _MARK_BITS) - 1, 0)
    while page := shelf.events(after, _PAGE_ROWS):
        for row in page:
            number = _number(row)
            if number < since.end_xid:
                continue
            if until is not None and number >= until.end_xid:
                return rows, True
            if jobs >= most:
                return rows, False
            rows.append(row)
            jobs += len(row.job_nos)
        after = page[-1].seq
    return rows, True


def _submitted(row: EventBatch) -> Iterator[_Named]:
    kinds = [_kind(lane) for lane in row.lanes]
    return ((row.ids[at], kinds[row.lane_of[at]]) for at in range(len(row.job_nos)))


def _kind(lane: Mapping[str, object]) -> Kind:
    tags: Any = lane["tags"]
    return Kind(str(lane["namespace"]), str(lane["type"]), frozenset(map(str, tags)))


def _chosen(
    read: _Read, wanted: Callable[[Kind], bool], followed: Collection[int]
) -> Iterator[_One]:
    verdicts: dict[Kind, bool] = {}
    for row in read.rows:
        for at, number in enumerate(row.job_nos):
            job_id, kind = read.names.get(number, _NOBODY)
            if kind not in verdicts:
                verdicts[kind] = wanted(kind)
            if verdicts[kind] or number in followed:
                yield _One(row, at, number, job_id, kind)


def _happened(one: _One, seen: Glimpse | None, now: datetime) -> Happened:
    row, at = one.row, one.at
    state = None if row.event == DELETE else row.after
    status = None
    if state is not None:
        failure = row.failed[at] if row.failed else None
        category = failure["category"] if failure else None
        waits = seen is not None and row.event == _SUBMIT and seen.state is state
        blocked = waits and seen is not None and seen.waits
        is_later = waits and seen is not None and seen.is_later(now)
        status = status_of(state, category, blocked, is_later)
    return Happened(
        xid=_number(row),
        place=(row.seq, at + 1),
        at=row.at,
        event=row.event,
        status=status,
        state=state,
        number=one.number,
        job_id=one.job_id,
        attempt=row.attempts[at] if row.attempts else 0,
        kind=one.kind,
    )


def _now(one: Glimpse, now: datetime) -> Now:
    return Now(
        number=one.number,
        status=status_of(one.state, one.category, one.waits, one.is_later(now)),
        state=one.state,
        attempt=one.attempt,
        at=one.at,
        kind=one.kind,
    )
