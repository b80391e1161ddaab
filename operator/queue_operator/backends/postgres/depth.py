"""Counts of jobs; nothing here reads jobs one by one."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrays import Int8s, Times
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.counts import TAIL, Counts, lanes_waiting
from queue_operator.backends.postgres.fronts import START, Place
from queue_operator.backends.protocol import QueueDepth
from queue_operator.backends.sql import load
from queue_operator.domain.job import DEFAULT_NAMESPACE, JobStats
from queue_operator.domain.states import JobState

KINDS: Final = load(__package__, "depth_kinds")
"""The part that counts by namespace, type and state."""
_DEPTH: Final = load(__package__, "depth_jobs", tail=TAIL, kinds=KINDS)
_AGE: Final = load(__package__, "depth_oldest")
_STATS: Final = load(__package__, "count_stats", tail=TAIL)
_ALL: Final = load(__package__, "count_all", tail=TAIL)
_LANES: Final = 5000

Places = Callable[[Sequence[int]], Awaitable[Sequence[Place]]]
"""Gives of lanes the places before which nothing waits in them."""


async def from_the_start(lanes: Sequence[int]) -> list[Place]:
    """Nothing is known of any lane."""
    return [START] * len(lanes)


class DepthStore:
    """The protocol `Depths`, and GetJobStats. What is dead before `places` is passed by."""

    def __init__(
        self,
        pool: Pool,
        counts: Counts | None = None,
        places: Places = from_the_start,
    ) -> None:
        self._pool = pool
        self._counts = counts or Counts(pool)
        self._places = places

    async def queue_depth(self) -> QueueDepth:
        """A namespace, type and state that once had jobs stays, with 0, while the type has any."""
        await self._counts.keep_up()
        async with borrowed(self._pool) as connection:
            jobs = await (await connection.execute(_DEPTH)).fetchall()
        oldest, lanes = await self.waiting_ages()
        return QueueDepth(
            jobs={(namespace, type_, state): count for namespace, type_, state, count in jobs},
            oldest_age_s=oldest,
            waiting_lanes=len(lanes),
        )

    async def waiting_ages(self) -> tuple[dict[tuple[str, str], float], list[int]]:
        """Of the oldest eligible job by namespace and type, in seconds; and the lanes in which jobs
        wait.
        """
        async with borrowed(self._pool) as connection:
            _, lanes = await lanes_waiting(connection)
        places = await self._places(lanes)
        async with borrowed(self._pool) as connection:
            return await ages(connection, lanes, places), lanes

    async def stats(self, tags: Collection[str], *, namespace: str = DEFAULT_NAMESPACE) -> JobStats:
        """Counts of the namespace's jobs that carry all `tags`; without tags, of all."""
        await self._counts.keep_up()
        parameters = {"namespace": namespace, "tags": sorted(tags)}
        statement = _STATS if tags else _ALL
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(statement, parameters)).fetchall()
        counts = {JobState(state): jobs for state, jobs, _ in rows}
        return JobStats.from_counts(frozenset(tags), counts, sum(row[2] for row in rows))


async def ages(
    connection: AsyncConnection[TupleRow], lanes: Sequence[int], places: Sequence[Place]
) -> dict[tuple[str, str], float]:
    """Of the oldest job by namespace and type. Each lane is looked at, in parts: there may be
    more than one statement has the time for.
    """
    found: dict[tuple[str, str], float] = {}
    for first in range(0, len(lanes), _LANES):
        part = slice(first, first + _LANES)
        parameters = {
            "lanes": list(lanes[part]),
            "marks": Times(at for at, _ in places[part]),
            "mark_numbers": Int8s(number for _, number in places[part]),
        }
        rows = await (await connection.execute(_AGE, parameters)).fetchall()
        for namespace, type_, age_s in rows:
            found[namespace, type_] = max(age_s, found.get((namespace, type_), age_s))
    return found
