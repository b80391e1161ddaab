"""Lanes: the interned identity of what a claim filters on, cached in memory.

Lanes are only ever added, so the cache is never wrong, at worst behind. While somebody watches
the store, it is read again only where there may be new ones. What is paused is read along.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from queue_operator.backends.news import Kind, Kinds, about
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.gate import Gate
from queue_operator.backends.sql import load
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.tags import matches

_LIST: Final = load(__package__, "lane_list")
_INTERN: Final = load(__package__, "lane_intern")
_NAMESPACES: Final = "SELECT id, name FROM namespace"
# How far below the highest known id another process may still commit a lane.
_OVERLAP: Final = 100
_FULL_REFRESH_S: Final = 5.0
_MOST_FILTERS: Final = 10_000


_Wanted = tuple[str, frozenset[str], frozenset[str]]


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


class Lanes:
    """All lanes of the database, by key and for matching."""

    def __init__(self, pool: Pool, resumed: Callable[[], None] = lambda: None) -> None:
        self._pool = pool
        self._resumed = resumed
        self._by_key: dict[tuple[str, str, str, frozenset[str]], Lane] = {}
        self._namespaces: dict[str, int] = {}
        self._matching: dict[_Wanted, list[Lane]] = {}
        self._by_id: dict[int, Lane] = {}
        self._by_kind: dict[Kind, list[int]] = {}
        self._highest = 0
        self.gate = Gate()
        self._refreshed_at = -_FULL_REFRESH_S
        self.watched = False
        """Whether somebody sets `stale` when other processes may have made lanes."""
        self.stale = True
        # Whoever finds nothing stale must not go on while what was is still being read.
        self._reading = asyncio.Lock()

    async def of_jobs(self, jobs: Iterable[Job]) -> list[int]:
        """The lane ids of the jobs, made where they are missing."""
        keys = [(job.namespace, job.type, job.priority, job.tags) for job in jobs]
        for key in dict.fromkeys(keys):
            if key not in self._by_key:
                await self._intern(LaneKey(*key))
        # A named tuple is equal to a plain one, which is made in half the time.
        return [self._by_key[key].id for key in keys]

    async def namespace_id(self, name: str) -> int | None:
        """The number of a namespace; None when nothing was ever submitted there."""
        if name not in self._namespaces:
            await self._read_namespaces()
        return self._namespaces.get(name)

    async def matching(self, demand: Demand) -> list[Lane]:
        """Lanes whose jobs satisfy the demand."""
        await self.catch_up()
        return self.known(demand)

    def known(self, demand: Demand) -> list[Lane]:
        """As `matching`, of the lanes known at the last catching up."""
        wanted = (demand.namespace, demand.types, demand.tags)
        if wanted not in self._matching:
            if len(self._matching) >= _MOST_FILTERS:
                self._matching.clear()
            lanes = [lane for lane in self._by_key.values() if _matches(wanted, lane.key)]
            self._matching[wanted] = lanes
        return self._matching[wanted]

    def claimable(self, demand: Demand) -> list[Lane]:
        """As `known`, without the lanes whose jobs are paused."""
        lanes = self.known(demand)
        if self.gate.is_open:
            return lanes
        return [lane for lane in lanes if self.gate.lets(lane.key.namespace, lane.key.type)]

    def kinds(self, ids: Iterable[int]) -> Kinds:
        """What jobs of these lanes are selected by."""
        lanes = [self._by_id.get(lane_id) for lane_id in set(ids)]
        keys = [lane.key for lane in lanes if lane is not None]
        if len(keys) < len(lanes):
            return None
        return about(Kind(key.namespace, key.type, key.tags) for key in keys)

    def of_kinds(self, kinds: Iterable[Kind]) -> list[int]:
        """The ids of all lanes, as far as they are known, in which such jobs wait."""
        return [lane_id for kind in kinds for lane_id in self._by_kind.get(kind, ())]

    def notice(self, highest: int) -> None:
        """The highest lane that is stored."""
        if highest > self._highest:
            self.stale = True

    async def catch_up(self) -> None:
        """Refreshes unless nothing can be new. Ids may become visible out of order, so now and
        then all of them are looked at.
        """
        async with self._reading:
            rested = time.monotonic() - self._refreshed_at < _FULL_REFRESH_S
            if not (self.watched and rested) or self.stale:
                await self._refresh()

    async def refresh(self) -> None:
        """Learns lanes that other processes made."""
        async with self._reading:
            await self._refresh()

    async def _refresh(self) -> None:
        self.stale = False
        try:
            await self._read()
        except BaseException:
            self.stale = True
            raise

    async def _read(self) -> None:
        full = time.monotonic() - self._refreshed_at >= _FULL_REFRESH_S
        after = 0 if full else self._highest - _OVERLAP
        paused, asked_at = set[tuple[str, str]](), self.gate.version
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_LIST, {"after": after})
            for lane_id, namespace, type_, priority, tags in await cursor.fetchall():
                if lane_id is None:
                    paused.add((namespace, type_))
                    continue
                key = LaneKey(namespace, type_, priority, frozenset(tags))
                if key not in self._by_key:
                    self._add(Lane(lane_id, key, Priority(priority)))
                self._highest = max(self._highest, lane_id)
        if self.gate.learn(paused, asked_at):
            # Whoever reads the table next, the pulse, finds nothing new there.
            self._resumed()
        if full:
            self._refreshed_at = time.monotonic()

    def _add(self, lane: Lane) -> None:
        self._by_key[lane.key] = self._by_id[lane.id] = lane
        kind = Kind(lane.key.namespace, lane.key.type, lane.key.tags)
        self._by_kind.setdefault(kind, []).append(lane.id)
        for wanted, lanes in self._matching.items():
            if _matches(wanted, lane.key):
                lanes.append(lane)

    async def _intern(self, key: LaneKey) -> None:
        parameters = {
            "namespace": key.namespace,
            "type": key.type,
            "priority": key.priority,
            "tags": sorted(key.tags),
        }
        # A racing process may have made the namespace or the type after our snapshot was
        # taken; the second round then sees it.
        while key not in self._by_key:
            async with borrowed(self._pool) as connection:
                await connection.execute(_INTERN, parameters)
            await self.refresh()
        await self.namespace_id(key.namespace)

    async def _read_namespaces(self) -> None:
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_NAMESPACES)
            self._namespaces = {name: number for number, name in await cursor.fetchall()}


def _matches(wanted: _Wanted, key: LaneKey) -> bool:
    namespace, types, tags = wanted
    return (
        key.namespace == namespace and (not types or key.type in types) and matches(tags, key.tags)
    )
