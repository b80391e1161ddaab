"""Lanes: the interned identity of what a claim filters on (namespace, type, priority, tags).

A lane costs only while it is used. A process remembers the newest that it submitted to, and of the
others those that hold waiting jobs (`fronts`). One that nobody submits to and that has no jobs is
removed (`tidying`); so what is remembered is sure for a while only, and noted as used again then.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, LiteralString, NamedTuple, cast

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.news import Kinds, about
from queue_operator.backends.postgres.arrays import Int8s, Texts
from queue_operator.backends.postgres.connection import (
    HISTORY,
    Pool,
    again_when_undone,
    borrowed,
    trust,
)
from queue_operator.backends.postgres.gate import Gate
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority

SURE: Final = load(__package__, "sure", history=HISTORY)
_IS_SURE: Final = load(__package__, "lanes_sure", sure=SURE)
INTERN: Final = load(__package__, "lane_intern", if_made="", history=HISTORY)
_INTERN_BESIDE: Final = load(
    __package__, "lane_intern", if_made="ON CONFLICT DO NOTHING", history=HISTORY
)
_SKIP: Final = load(__package__, "lane_skip")
NAMES: Final = load(__package__, "lane_names")
TOLD: Final = load(__package__, "lane_told")
_FIND: Final = load(__package__, "lane_find", told=TOLD)
_NAMESPACE: Final = load(__package__, "namespace_find")
_MOST_REMEMBERED: Final = 50_000
_SURE_S: Final = 600.0
_NOTED_S: Final = 300.0
"""A lane in use is written at most so often. What was noted before that counts as noted now."""
_SUBMITTED_WITHIN: Final = timedelta(minutes=15)
_TRIES: Final = 10
_SKIPS_AFTER: Final = 3
_SKIPPED: Final = 100
"""After so many tries so many numbers are passed over, and four times as many with each more: half
a million in all.
"""
_MANY: Final = 100
_ALL_NEW: Final = 3
"""Whoever made so many lanes so often in a row, and none was there, does not look for the next."""
_NAMESPACE_S: Final = 60.0
FORGOTTEN_S: Final = 600.0
"""Nobody remembers the number of a namespace for so long after it could last be looked up: one
that has long been empty gets another number when it is used again.
"""
UNUSED_S: Final = 1800.0
"""A lane without jobs may go when nobody noted for so long that it uses it: no submission begins
later than 20 minutes after a note, by the clock of whoever submits or by that of the server.
"""


logger = logging.getLogger(__name__)

_PRIORITIES: Final = {priority.value: priority for priority in Priority}
_EVER: Final = datetime.max.replace(tzinfo=UTC)
_NO_HISTORY: Final = ""


class LaneKey(NamedTuple):
    namespace: str
    type: str
    priority: str
    tags: frozenset[str]


@dataclass(frozen=True, slots=True)
class Lane:
    id: int
    key: LaneKey
    priority: Priority


class LanesInDoubt(Exception):
    """Lanes were looked up so long ago that they may have been removed, or in another history."""


class Sure(NamedTuple):
    """No submission to some lanes may begin later, by the server's clock, or in another history of
    the database.
    """

    until: datetime
    history: str

    @property
    def parameters(self) -> dict[str, Any]:
        """Those of `sure.sql`."""
        return {"sure_until": self.until, "history": self.history}

    async def check(self, connection: AsyncConnection[TupleRow]) -> datetime:
        """The time of the transaction. Raises LanesInDoubt."""
        cursor = await connection.execute(_IS_SURE, self.parameters)
        [(now, is_sure)] = await cursor.fetchall()
        if not is_sure:
            raise LanesInDoubt
        return cast(datetime, now)


class Interned(NamedTuple):
    """The lanes of some jobs."""

    ids: list[int]
    sure: Sure


class _Look(NamedTuple):
    """When lanes were looked up."""

    at_s: float
    sure: Sure


class _Told(NamedTuple):
    """What interning some lanes gave: the numbers of those at these places, from 1; how many of
    them were there; and how many were not made because they, or their numbers, are in use.
    """

    at: datetime
    history: str
    places: list[int]
    ids: list[int]
    known: int
    refused: int


_Known = tuple[int, _Look]
"""The number of a lane."""
_Key = tuple[str, str, str, frozenset[str]]
_NOT_KNOWN: Final[tuple[_Key, float]] = ("", "", "", frozenset()), float("-inf")


class Lanes:
    """Names and numbers of lanes and namespaces."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # A named tuple is equal to a plain one, which is made in half the time.
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._keys: OrderedDict[int, tuple[_Key, float]] = OrderedDict()
        self._namespaces: OrderedDict[str, tuple[int, float]] = OrderedDict()
        # How often in a row many lanes were asked for of which none was there.
        self._all_new = 0
        self._history = pool.history
        self.gate = Gate()

    async def of_jobs(self, jobs: Iterable[Job]) -> Interned:
        """The lanes of the jobs, made where they are missing."""
        keys = [(job.namespace, job.type, job.priority, job.tags) for job in jobs]
        since_s = time.monotonic() - _SURE_S
        known, found = self._known, dict[_Key, _Known]()
        missing: list[_Key] = []
        for key in dict.fromkeys(keys):
            one = known.get(key)
            if one is None or one[1].at_s < since_s:
                missing.append(key)
            else:
                found[key] = one
        if missing:
            found |= await self._intern(missing)
        looks = {look.sure for _, look in found.values()}
        histories = {sure.history for sure in looks}
        # While some were looked up, the others may have come to mean something else.
        history = histories.pop() if len(histories) == 1 else _NO_HISTORY
        until = min((sure.until for sure in looks), default=_EVER)
        return Interned([found[key][0] for key in keys], Sure(until, history))

    def note_history(self, history: str) -> None:
        """What was remembered of another one is forgotten."""
        if history != self._history:
            self._history = history
            for remembered in (self._known, self._keys, self._namespaces):
                remembered.clear()

    def doubt(self, jobs: Iterable[Job]) -> None:
        """Their lanes are to be looked up anew."""
        for job in jobs:
            self._known.pop((job.namespace, job.type, job.priority, job.tags), None)

    async def namespace_id(self, name: str) -> int | None:
        """The number of a namespace; None when nothing is stored there. It counts for this task's
        next connection, see `trust`.
        """
        known = self._namespaces.get(name)
        now_s = time.monotonic()
        if known is not None and known[1] >= now_s - _NAMESPACE_S:
            trust(self._pool, self._history)
            return known[0]
        history = self._history
        async with borrowed(self._pool) as connection:
            row = await (await connection.execute(_NAMESPACE, {"name": name})).fetchone()
            # Somebody else may have noted another one by now.
            trust(self._pool, connection.history)
        number = None if row is None else int(row[0])
        if number is None:
            self._namespaces.pop(name, None)
        elif self._history == history:
            _remember(self._namespaces, {name: (number, now_s)})
        return number

    async def namespace_ids(self, names: Collection[str]) -> list[int | None]:
        """As `namespace_id`, of each; one that is not stored is asked for once, not once a job."""
        found = {name: await self.namespace_id(name) for name in dict.fromkeys(names)}
        return [found[name] for name in names]

    def recall(self, ids: Collection[int]) -> dict[int, Lane]:
        """Those of the lanes that were looked up a short time ago."""
        since_s, lanes = time.monotonic() - _SURE_S, dict[int, Lane]()
        for lane_id in ids:
            key, at_s = self._keys.get(lane_id, _NOT_KNOWN)
            if at_s >= since_s:
                lanes[lane_id] = Lane(lane_id, LaneKey(*key), _PRIORITIES[key[2]])
        return lanes

    async def find(self, ids: Collection[int], history: str) -> dict[int, Lane]:
        """What lanes of a history stand for, those that are gone left out."""
        trust(self._pool, history)
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_FIND, {"lanes": list(ids)})
            found = lanes_of(await cursor.fetchall())
        self.remember(found, history)
        return {lane.id: lane for lane in found}

    def remember(self, lanes: Iterable[Lane], history: str) -> None:
        """So that `kinds` knows them; unless another history was noted since they were read."""
        if history == self._history:
            self._remember_keys((lane.id, lane.key) for lane in lanes)

    def _remember_keys(self, keys: Iterable[tuple[int, _Key]]) -> None:
        now_s = time.monotonic()
        _remember(self._keys, {lane_id: (key, now_s) for lane_id, key in keys})

    def kinds(self, ids: Iterable[int]) -> Kinds:
        """What jobs of these lanes are selected by; None where that is not known of all."""
        keys = [self._keys.get(lane_id) for lane_id in set(ids)]
        known = [(key[0], key[1], key[3]) for key, _ in filter(None, keys)]
        return None if len(known) < len(keys) else about(known)

    async def _intern(self, keys: Sequence[_Key]) -> dict[_Key, _Known]:
        found: dict[_Key, _Known] = {}
        left, statement = list(keys), INTERN
        looks = len(keys) < _MANY or self._all_new < _ALL_NEW
        told: _Told | None = None
        for tries in range(_TRIES):
            if tries >= _SKIPS_AFTER and told is not None and told.refused:
                await self._skip(_SKIPPED << 2 * (tries - _SKIPS_AFTER))
            at_s = time.monotonic()
            told = await self._look_up(statement, left, looks)
            if len(left) >= _MANY:
                self._all_new = 0 if told is None or told.known else self._all_new + bool(told.ids)
            if told is not None:
                self.note_history(told.history)
                look = _Look(at_s, Sure(told.at + _SUBMITTED_WITHIN, told.history))
                given = [left[place - 1] for place in told.places]
                of = {key: (lane_id, look) for key, lane_id in zip(given, told.ids, strict=True)}
                _remember(self._known, of)
                self._remember_keys(zip(told.ids, given, strict=True))
                found |= of
                left = [key for key in left if key not in of]
            if not left:
                return found
            # A racing process may have made the same after our snapshot was taken, or a name
            # may have been removed: the next round sees it.
            statement, looks = _INTERN_BESIDE, True
            await self._name(left)
        raise Unavailable(f"the names of {len(left)} kinds of jobs are in use; call again")

    @again_when_undone
    async def _look_up(
        self, statement: LiteralString, keys: Sequence[_Key], looks: bool
    ) -> "_Told | None":
        """None where somebody else has just made one of them, or it was there."""
        spaces, space_of = _places(key[0] for key in keys)
        kinds, kind_of = _places(key[1] for key in keys)
        parameters: dict[str, Any] = {
            "spaces": spaces,
            "kinds": kinds,
            "space_of": space_of,
            "kind_of": kind_of,
            "priorities": Texts(key[2] for key in keys),
            "tags": Texts(text_array(sorted(key[3])) for key in keys),
            "used_s": _NOTED_S,
            "looks": looks,
        }
        try:
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute(statement, parameters, binary=True)
                [(at, history, places, ids, *counts)] = await cursor.fetchall()
        except psycopg.errors.UniqueViolation:
            return None
        return _Told(at, history, places or [], ids or [], *counts)

    async def _skip(self, numbers: int) -> None:
        async with borrowed(self._pool) as connection:
            await connection.execute(_SKIP, {"numbers": numbers})

    @again_when_undone
    async def _name(self, keys: Sequence[_Key]) -> None:
        parameters = {
            "namespaces": sorted({key[0] for key in keys}),
            "types": sorted({key[1] for key in keys}),
        }
        async with borrowed(self._pool) as connection:
            await connection.execute(NAMES, parameters)


Names = dict[int, str]


def names_of(first: Sequence[Any]) -> tuple[Names, Names]:
    """Of the first row that `lane_find.sql` gives, the names of namespaces and types by number."""
    spaces, kinds = ({int(number): name for number, name in names} for names in first[:2])
    return spaces, kinds


def lanes_of(rows: Sequence[Sequence[Any]], names: tuple[Names, Names] | None = None) -> list[Lane]:
    """Lanes from rows as `lane_find.sql` gives them; `names` for rows without the first one. One
    whose namespace or type is missing, which only a hand in the database can bring about, is left
    out: nobody can ask for it.
    """
    if not rows or rows[0][2] is None:
        return []
    spaces, kinds = names or names_of(rows[0])
    lanes = [
        Lane(
            lane_id,
            LaneKey(spaces[space], kinds[kind], priority, frozenset(tags)),
            _PRIORITIES[priority],
        )
        for _, _, lane_id, space, kind, priority, tags in rows
        if space in spaces and kind in kinds
    ]
    if len(lanes) < len(rows):
        nameless = {row[2] for row in rows} - {lane.id for lane in lanes}
        logger.error(
            "the namespaces or types of %d lanes are gone, and their jobs wait for ever: restore"
            " the rows of namespace and job_type that lane %d refers to",
            len(nameless),
            min(nameless),
        )
    return lanes


def _remember(kept: "OrderedDict[Any, Any]", new: Mapping[Any, Any]) -> None:
    for key in new.keys() & kept.keys():
        kept.move_to_end(key)
    kept.update(new)
    for _ in range(len(kept) - _MOST_REMEMBERED):
        kept.popitem(last=False)


def _places(names: Iterable[str]) -> tuple[Texts, Int8s]:
    """The names, each once, and of each given one its place there, from 1."""
    places: dict[str, int] = {}
    of = Int8s([places.setdefault(name, len(places) + 1) for name in names])
    return Texts(places), of


def text_array(texts: Sequence[str]) -> str:
    """As PostgreSQL writes an array of texts."""
    if not texts:
        return "{}"
    between = '","'
    if "\\" in (plain := "".join(texts)) or '"' in plain:
        texts = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return f'{{"{between.join(texts)}"}}'
