"""Lanes: the interned identity of what a claim filters on (namespace, type, priority, tags).

A lane costs only while it is used. A process remembers the newest that it submitted to, and of the
others those that hold waiting jobs (`fronts`). One that nobody submits to and that has no jobs is
removed (`tidying`); so what is remembered is sure for a while only, and noted as used again then.
"""

import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg

from queue_operator.backends.news import Kind, Kinds, about
from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.postgres.gate import Gate
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority

_INTERN: Final = load(__package__, "lane_intern")
_NAMES: Final = load(__package__, "lane_names")
_FIND: Final = load(__package__, "lane_find")
_NAMESPACE: Final = load(__package__, "namespace_find")
_MOST_REMEMBERED: Final = 50_000
_SURE_S: Final = 600.0
_NOTED_S: Final = 300.0
"""A lane in use is written at most so often. What was noted before that counts as noted now."""
_SUBMITTED_WITHIN: Final = timedelta(minutes=15)
_TRIES: Final = 10
_NAMESPACE_S: Final = 60.0
FORGOTTEN_S: Final = 600.0
"""Nobody remembers the number of a namespace for so long after it could last be looked up: one
that has long been empty gets another number when it is used again.
"""
UNUSED_S: Final = 1800.0
"""A lane without jobs may go when nobody noted for so long that it uses it: no submission begins
later than 20 minutes after a note, by the clock of whoever submits or by that of the server.
"""


_EVER: Final = datetime.max.replace(tzinfo=UTC)


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


class Interned(NamedTuple):
    """The lanes of some jobs. `sure_until`, by the server's clock: no submission to them may begin
    later.
    """

    ids: list[int]
    sure_until: datetime


class _Known(NamedTuple):
    id: int
    checked_s: float
    sure_until: datetime


_Key = tuple[str, str, str, frozenset[str]]


class Lanes:
    """Names and numbers of lanes and namespaces."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # A named tuple is equal to a plain one, which is made in half the time.
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._kinds: OrderedDict[int, Kind] = OrderedDict()
        self._namespaces: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.gate = Gate()

    async def of_jobs(self, jobs: Iterable[Job]) -> Interned:
        """The lanes of the jobs, made where they are missing."""
        keys = [(job.namespace, job.type, job.priority, job.tags) for job in jobs]
        since_s = time.monotonic() - _SURE_S
        known, found = self._known, dict[_Key, _Known]()
        missing: list[_Key] = []
        for key in dict.fromkeys(keys):
            one = known.get(key)
            if one is None or one.checked_s < since_s:
                missing.append(key)
            else:
                found[key] = one
        if missing:
            found |= await self._intern(missing)
        ids = [found[key].id for key in keys]
        return Interned(ids, min((one.sure_until for one in found.values()), default=_EVER))

    def doubt(self, jobs: Iterable[Job]) -> None:
        """Their lanes are to be looked up anew."""
        for job in jobs:
            self._known.pop((job.namespace, job.type, job.priority, job.tags), None)

    async def namespace_id(self, name: str) -> int | None:
        """The number of a namespace; None when nothing is stored there."""
        known = self._namespaces.get(name)
        now_s = time.monotonic()
        if known is None or known[1] < now_s - _NAMESPACE_S:
            async with borrowed(self._pool) as connection:
                row = await (await connection.execute(_NAMESPACE, {"name": name})).fetchone()
            if row is None:
                self._namespaces.pop(name, None)
                return None
            known = row[0], now_s
            _remember(self._namespaces, name, known)
        return known[0]

    async def find(self, ids: Collection[int]) -> dict[int, Lane]:
        """What lanes stand for, those that are gone left out."""
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_FIND, {"lanes": list(ids)})
            found = [lane_of(*row) for row in await cursor.fetchall()]
        for lane in found:
            self.remember(lane)
        return {lane.id: lane for lane in found}

    def remember(self, lane: Lane) -> None:
        """So that `kinds` knows it."""
        key = lane.key
        _remember(self._kinds, lane.id, Kind(key.namespace, key.type, key.tags))

    def kinds(self, ids: Iterable[int]) -> Kinds:
        """What jobs of these lanes are selected by; None where that is not known of all."""
        kinds = [self._kinds.get(lane_id) for lane_id in set(ids)]
        known = [kind for kind in kinds if kind is not None]
        return None if len(known) < len(kinds) else about(known)

    async def _intern(self, keys: Sequence[_Key]) -> dict[_Key, _Known]:
        found: dict[_Key, _Known] = {}
        left = list(keys)
        for _ in range(_TRIES):
            checked_s = time.monotonic()
            for now, place, lane_id in await self._look_up(left):
                key = left[place - 1]
                found[key] = _Known(lane_id, checked_s, now + _SUBMITTED_WITHIN)
                _remember(self._known, key, found[key])
                _remember(self._kinds, lane_id, Kind(key[0], key[1], key[3]))
            left = [key for key in left if key not in found]
            if not left:
                return found
            # A racing process may have made the same after our snapshot was taken, or a name
            # may have been removed: the next round sees it.
            await self._name(left)
        raise Unavailable(f"the names of {len(left)} kinds of jobs are in use; call again")

    @again_when_undone
    async def _look_up(self, keys: Sequence[_Key]) -> list[tuple[datetime, int, int]]:
        parameters: dict[str, Any] = {
            "namespaces": [key[0] for key in keys],
            "types": [key[1] for key in keys],
            "priorities": [str(key[2]) for key in keys],
            "tags": [_array(sorted(key[3])) for key in keys],
            "used_s": _NOTED_S,
        }
        try:
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute(_INTERN, parameters)
                return await cursor.fetchall()
        except psycopg.errors.ForeignKeyViolation:
            return []  # a name was removed at that moment

    @again_when_undone
    async def _name(self, keys: Sequence[_Key]) -> None:
        parameters = {
            "namespaces": sorted({key[0] for key in keys}),
            "types": sorted({key[1] for key in keys}),
        }
        async with borrowed(self._pool) as connection:
            await connection.execute(_NAMES, parameters)


def lane_of(lane_id: int, namespace: str, type_: str, priority: str, tags: Collection[str]) -> Lane:
    return Lane(lane_id, LaneKey(namespace, type_, priority, frozenset(tags)), Priority(priority))


def _remember(kept: "OrderedDict[Any, Any]", key: object, value: object) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _MOST_REMEMBERED:
        kept.popitem(last=False)


def _array(texts: Iterable[str]) -> str:
    """As PostgreSQL writes an array of texts."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"
