"""Counts of now and of a window, from what is kept anyway; no job is read."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.arrays import Int8s, Times
from queue_operator.backends.postgres.connection import LONG_S, Pool, snapshot
from queue_operator.backends.postgres.counts import TAIL, Counts
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.roll_ups import (
    BOUNDS,
    CELLS,
    STORED,
    Progress,
    RollUps,
    read_progress,
)
from queue_operator.backends.protocol import StatsWindow, WindowStats
from queue_operator.backends.sql import load
from queue_operator.backends.tallies import (
    Findings,
    Happened,
    JobKind,
    Measured,
    begin_of,
    parts_of,
    standing_from,
    summed_up,
)
from queue_operator.domain.ordering import Priority

_NOW: Final = load(__package__, "statistics_now", tail=TAIL)
_WINDOW: Final = load(__package__, "statistics_window", cells=CELLS, stored=STORED)
_TAIL_ROWS: Final = 2000
_TAIL_BYTES: Final = 512 * 1024
_TRIES: Final = 3

T = TypeVar("T")
Look = Callable[[AsyncConnection[TupleRow], int | None, Progress], Awaitable[T]]


class WindowStore:
    """The protocol `Statistics` but for the checks."""

    def __init__(self, pool: Pool, lanes: Lanes, roll_ups: RollUps, counts: Counts) -> None:
        self._pool = pool
        self._lanes = lanes
        self._roll_ups = roll_ups
        self._counts = counts

    async def window(self, asked: StatsWindow) -> WindowStats:
        """What is not rolled up yet is added here; where it is much, it is rolled up first."""
        await self._counts.keep_up()

        async def look(
            connection: AsyncConnection[TupleRow], namespace_id: int | None, progress: Progress
        ) -> Findings:
            since = begin_of(asked, progress.at)
            return await _found(connection, namespace_id, since, progress)

        return summed_up(await self.near(asked.namespace, look), asked.breakdown_by)

    async def near(self, namespace: str, look: Look[T]) -> T:
        """What `look` finds, in a snapshot behind which little of the log is not rolled up. Without
        a number the namespace holds nothing.
        """
        for left in reversed(range(_TRIES)):
            namespace_id = await self._lanes.namespace_id(namespace)
            async with snapshot(self._pool, LONG_S) as connection:
                progress = await read_progress(connection, _TAIL_ROWS)
                if _is_near(progress) or not left:
                    return await look(connection, namespace_id, progress)
            while await self._roll_ups.roll_up(_TAIL_ROWS, waits=True) >= _TAIL_ROWS:
                pass
        raise AssertionError("the last try always looks")


def _is_near(progress: Progress) -> bool:
    few = progress.rows < _TAIL_ROWS and progress.bytes <= _TAIL_BYTES
    return few and progress.seen.is_ours


async def _found(
    connection: AsyncConnection[TupleRow],
    namespace_id: int | None,
    since: datetime,
    progress: Progress,
) -> Findings:
    """Without a number the namespace holds nothing."""
    space = {"namespace_id": namespace_id or 0}
    parts = parts_of(since, progress.at, progress.seen.closed_until)
    ranges = {
        "spans": Int8s(part.span_s for part in parts),
        "begins": Times(part.begins_at for part in parts),
        "ends": Times(part.ends_at for part in parts),
        "since": since,
    }
    tail = {**progress.seen.until(progress.now), "bounds": BOUNDS}
    rows = await (await connection.execute(_NOW, space)).fetchall()
    past = await (await connection.execute(_WINDOW, {**space, **ranges, **tail})).fetchall()
    happened, wait, run = _happened(past)
    return Findings(
        since=since,
        until=progress.at,
        standing=standing_from(rows),
        happened=happened,
        wait=wait,
        run=run,
    )


def _happened(
    rows: Sequence[tuple[Any, ...]],
) -> tuple[dict[JobKind, Happened], Measured, Measured]:
    happened: dict[JobKind, Happened] = {}
    wait, run = Measured(), Measured()
    for type_, priority, waits, bucket, count, *counts, max_us in rows:
        if type_ is None:
            (wait if waits else run).put(bucket, count, max_us)
        else:
            happened[JobKind(type_, Priority(priority))] = Happened(*counts)
    return happened, wait, run
