"""Lanes: the interned identity of what a claim filters on, cached in memory.

Lanes are only ever added, so the cache is never wrong, at worst behind.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from queue_operator.backends.postgres.connection import Pool, borrowed
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


_Wanted = tuple[str, frozenset[str], frozenset[str]]


@dataclass(frozen=True, slots=True)
class LaneKey:
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

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._by_key: dict[LaneKey, Lane] = {}
        self._namespaces: dict[str, int] = {}
        self._matching: dict[_Wanted, list[Lane]] = {}
        self._highest = 0
        self._refreshed_at = -_FULL_REFRESH_S

    async def of_jobs(self, jobs: Iterable[Job]) -> list[int]:
        """The lane ids of the jobs, made where they are missing."""
        keys = [_key(job) for job in jobs]
        for key in dict.fromkeys(keys):
            if key not in self._by_key:
                await self._intern(key)
        return [self._by_key[key].id for key in keys]

    async def namespace_id(self, name: str) -> int | None:
        """The number of a namespace; None when nothing was ever submitted there."""
        if name not in self._namespaces:
            await self._read_namespaces()
        return self._namespaces.get(name)

    async def matching(self, demand: Demand) -> list[Lane]:
        """Lanes whose jobs satisfy the demand."""
        await self.refresh()
        wanted = (demand.namespace, demand.types, demand.tags)
        if wanted not in self._matching:
            lanes = [lane for lane in self._by_key.values() if _matches(demand, lane.key)]
            self._matching[wanted] = lanes
        return self._matching[wanted]

    async def refresh(self) -> None:
        """Learns lanes that other processes made."""
        full = time.monotonic() - self._refreshed_at >= _FULL_REFRESH_S
        after = 0 if full else self._highest - _OVERLAP
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_LIST, {"after": after})
            for lane_id, namespace, type_, priority, tags in await cursor.fetchall():
                key = LaneKey(namespace, type_, priority, frozenset(tags))
                if key not in self._by_key:
                    self._by_key[key] = Lane(lane_id, key, Priority(priority))
                    self._matching.clear()
                self._highest = max(self._highest, lane_id)
        if full:
            self._refreshed_at = time.monotonic()

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


def _key(job: Job) -> LaneKey:
    return LaneKey(job.namespace, job.type, job.priority.value, job.tags)


def _matches(demand: Demand, key: LaneKey) -> bool:
    return (
        key.namespace == demand.namespace
        and (not demand.types or key.type in demand.types)
        and matches(demand.tags, key.tags)
    )
