"""Counts of jobs, kept by adding up changes; nothing here reads jobs one by one."""

from collections.abc import Collection
from typing import Final

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.protocol import QueueDepth
from queue_operator.backends.sql import load
from queue_operator.domain.job import DEFAULT_NAMESPACE, JobStats
from queue_operator.domain.states import JobState

_DEPTH: Final = load(__package__, "depth_jobs")
_AGE: Final = load(__package__, "depth_oldest")
_STATS: Final = load(__package__, "count_stats")
_FOLD: Final = load(__package__, "count_fold")


class DepthStore:
    """The protocol `Depths`, GetJobStats, and the upkeep of the counts behind both."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def queue_depth(self) -> QueueDepth:
        """A namespace, type and state that once had jobs stays, with 0."""
        async with borrowed(self._pool) as connection:
            jobs = await (await connection.execute(_DEPTH)).fetchall()
            ages = await (await connection.execute(_AGE)).fetchall()
        return QueueDepth(
            jobs={(namespace, type_, state): count for namespace, type_, state, count in jobs},
            oldest_age_s={(namespace, type_): age_s for namespace, type_, age_s in ages},
        )

    async def stats(self, tags: Collection[str], *, namespace: str = DEFAULT_NAMESPACE) -> JobStats:
        """Counts of the namespace's jobs that carry all `tags`; without tags, of all."""
        parameters = {"namespace": namespace, "tags": sorted(tags)}
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_STATS, parameters)).fetchall()
        counts = {JobState(state): jobs for state, jobs, _ in rows}
        return JobStats.from_counts(frozenset(tags), counts, sum(row[2] for row in rows))

    async def fold(self, limit: int = 10_000) -> int:
        """Adds up to `limit` changes to the counts and gives their number; call it again at
        once when that was `limit`. Safe on every replica at once.
        """
        async with borrowed(self._pool) as connection:
            row = await (await connection.execute(_FOLD, {"limit": limit})).fetchone()
        return int(row[0]) if row else 0
