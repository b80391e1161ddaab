"""Another priority for jobs that wait already."""

from collections.abc import Mapping, Sequence
from typing import Final

from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import (
    Pool,
    again_when_undone,
    borrowed,
    transaction,
)
from queue_operator.backends.postgres.lanes import Lanes, LanesInDoubt
from queue_operator.backends.sql import load
from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import PRIORITY_BONUS, Priority

_FIND: Final = load(__package__, "priority_find")
_MOVE: Final = load(__package__, "priority_move", arrived=load(__package__, "arrival_tell"))
_TRIES: Final = 3

Name = tuple[str, str]


class Reordering:
    """Jobs by namespace and id."""

    def __init__(self, pool: Pool, lanes: Lanes) -> None:
        self._pool = pool
        self._lanes = lanes

    async def set_priorities(self, wanted: Mapping[Name, Priority]) -> tuple[set[Name], list[int]]:
        """Those that run and have another priority, which keep it until they wait again; and the
        lanes in which others may be claimed now.
        """
        running, moving = await self._find(wanted)
        if not moving:
            return running, []
        for _ in range(_TRIES):
            try:
                return running, await self._move(moving)
            except LanesInDoubt:
                self._lanes.doubt(moving.values())
        raise Unavailable("lanes are in doubt again and again; call again")

    async def _find(self, wanted: Mapping[Name, Priority]) -> tuple[set[Name], dict[int, Job]]:
        """The latter by number, as their new lanes are made of them."""
        names = list(wanted)
        parameters = {"namespaces": [one for one, _ in names], "ids": [one for _, one in names]}
        async with borrowed(self._pool) as connection:
            rows: Sequence[TupleRow] = await (
                await connection.execute(_FIND, parameters)
            ).fetchall()
        running: set[Name] = set()
        moving: dict[int, Job] = {}
        for namespace, job_id, number, type_, tags, priority, runs in rows:
            asked = wanted[namespace, job_id]
            if priority == asked.value:
                continue
            if runs:
                running.add((namespace, job_id))
                continue
            moving[number] = Job(
                id=job_id, type=type_, namespace=namespace, tags=frozenset(tags), priority=asked
            )
        return running, moving

    @again_when_undone
    async def _move(self, moving: Mapping[int, Job]) -> list[int]:
        lanes = await self._lanes.of_jobs(moving.values())
        parameters = {
            "job_nos": list(moving),
            "lanes": list(lanes.ids),
            "bonuses": [PRIORITY_BONUS[job.priority].total_seconds() for job in moving.values()],
        }
        async with transaction(self._pool) as connection:
            await lanes.sure.check(connection)
            cursor = await connection.execute(_MOVE, parameters)
            return [lane_id for (lane_id,) in await cursor.fetchall()]
