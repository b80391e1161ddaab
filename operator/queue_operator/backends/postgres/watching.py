"""What whoever watches a queue asks, from what is kept anyway; no job is read but the first of each
lane.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrays import Int8s, Times
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.counts import TAIL, Counts
from queue_operator.backends.postgres.depth import Places, ages
from queue_operator.backends.postgres.following import FollowedLog
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.roll_ups import BOUNDS, CELLS, STORED, Progress
from queue_operator.backends.postgres.statistics import WindowStore
from queue_operator.backends.series import begin_and_step, series
from queue_operator.backends.sql import load
from queue_operator.backends.tallies import Happened, Tally, parts_of
from queue_operator.backends.watching import SeriesWindow, StatsSeries
from queue_operator.backends.watching_base import WatchingBase

_SERIES: Final = load(__package__, "statistics_series", cells=CELLS, stored=STORED)
_LANES: Final = load(__package__, "lanes_waiting_of", tail=TAIL)


class Watching(WatchingBase):
    """`backends.watching` of a backend that calls `_watch` when it is made."""

    def _watch(
        self, pool: Pool, lanes: Lanes, windows: WindowStore, counts: Counts, places: Places
    ) -> None:
        self._followed = FollowedLog(pool)
        self._watched = _Watched(pool, lanes, windows, counts, places)

    @property
    def followed(self) -> FollowedLog:
        """The log as those read it who follow jobs."""
        return self._followed

    async def _series(self, window: SeriesWindow) -> StatsSeries:
        return await self._watched.series(window)

    async def _oldest_due(self, namespace: str) -> Mapping[str, float]:
        return await self._watched.oldest_due(namespace)


class _Watched:
    def __init__(
        self, pool: Pool, lanes: Lanes, windows: WindowStore, counts: Counts, places: Places
    ) -> None:
        self._pool = pool
        self._lanes = lanes
        self._windows = windows
        self._counts = counts
        self._places = places

    async def series(self, asked: SeriesWindow) -> StatsSeries:
        async def look(
            connection: AsyncConnection[TupleRow], namespace_id: int | None, progress: Progress
        ) -> StatsSeries:
            begin, step_s = begin_and_step(asked, progress.at)
            rows = await _rows(connection, namespace_id or 0, begin, step_s, progress)
            return series(begin, step_s, progress.at, _tallies(rows))

        return await self._windows.near(asked.namespace, look)

    async def oldest_due(self, namespace: str) -> dict[str, float]:
        namespace_id = await self._lanes.namespace_id(namespace)
        if namespace_id is None:
            return {}
        await self._counts.keep_up()
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_LANES, {"namespace_id": namespace_id})
            [(lanes,)] = await cursor.fetchall()
        places = await self._places(lanes)
        async with borrowed(self._pool) as connection:
            found = await ages(connection, lanes, places)
        return {kind: age_s for (_, kind), age_s in found.items()}


async def _rows(
    connection: AsyncConnection[TupleRow],
    namespace_id: int,
    begin: datetime,
    step_s: int,
    progress: Progress,
) -> Sequence[tuple[Any, ...]]:
    parts = parts_of(begin, progress.at, progress.seen.closed_until, step_s)
    cursor = await connection.execute(
        _SERIES,
        {
            "namespace_id": namespace_id,
            "spans": Int8s(part.span_s for part in parts),
            "begins": Times(part.begins_at for part in parts),
            "ends": Times(part.ends_at for part in parts),
            "since": begin,
            "step_s": step_s,
            **progress.seen.until(progress.now),
            "bounds": BOUNDS,
        },
    )
    return await cursor.fetchall()


def _tallies(rows: Sequence[tuple[Any, ...]]) -> dict[datetime, Tally]:
    """By where their step begins."""
    found: dict[datetime, Tally] = {}
    for begins_at, waits, bucket, count, *counts, max_us in rows:
        tally = found.setdefault(begins_at, Tally())
        if bucket is None:
            tally.happened = Happened(*counts)
        else:
            (tally.wait if waits else tally.run).put(bucket, count, max_us)
    return found
