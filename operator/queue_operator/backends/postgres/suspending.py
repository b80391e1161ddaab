"""Single jobs that are not to be claimed: a note of each, and rows that are never due."""

from collections.abc import Mapping, Sequence
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import Pool, again_when_undone
from queue_operator.backends.postgres.consequences import OnReady, run
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.rows import Terms, lock_rows
from queue_operator.backends.sql import load
from queue_operator.domain.job import Job
from queue_operator.domain.states import TERMINAL

_FIND: Final = load(__package__, "find_numbers")
_NOTE: Final = load(__package__, "suspension_note")
_SET: Final = load(__package__, "suspension_set", arrived=load(__package__, "arrival_tell"))

_Connection = AsyncConnection[TupleRow]
Name = tuple[str, str]


class Suspending:
    """The protocol `Suspensions`; the arguments are checked."""

    def __init__(self, pool: Pool, lanes: Lanes, on_ready: OnReady) -> None:
        self._pool = pool
        self._lanes = lanes
        self._on_ready = on_ready

    async def set_suspended(self, wanted: Mapping[Name, bool]) -> set[Name]:
        left, lanes, soonest_s = await self._set(wanted)
        if lanes or soonest_s is not None:
            self._on_ready(lanes, soonest_s)
        return left

    @again_when_undone
    async def _set(self, wanted: Mapping[Name, bool]) -> tuple[set[Name], list[int], float | None]:
        spaces = await self._lanes.namespace_ids([namespace for namespace, _ in wanted])

        async def work(
            connection: _Connection, terms: Terms
        ) -> tuple[set[Name], list[int], float | None]:
            numbers = await _find(connection, list(wanted), spaces)
            # Whatever makes a job wait again holds its row, and looks at the note after that.
            rows = await lock_rows(connection, dict.fromkeys(sorted(numbers)), terms)
            changing = {
                number: wanted[numbers[number]]
                for number, row in rows.items()
                if row.current.state not in TERMINAL
            }
            left = set(wanted) - {numbers[number] for number in changing}
            return left, *await _write(connection, changing)

        return await run(self._pool, work)


async def note_new(connection: _Connection, jobs: Sequence[Job], numbers: Sequence[int]) -> None:
    """Those of some jobs that this transaction has stored, and that were submitted suspended."""
    given = [n for n, job in zip(numbers, jobs, strict=True) if job.suspended]
    if given:
        await connection.execute(_NOTE, {"job_nos": given})


async def _find(
    connection: _Connection, names: Sequence[Name], spaces: Sequence[int | None]
) -> dict[int, Name]:
    """By number; those that are not stored are left out."""
    parameters = {"namespaces": list(spaces), "ids": [job_id for _, job_id in names]}
    cursor = await connection.execute(_FIND, parameters)
    return {number: names[place - 1] for place, number in await cursor.fetchall()}


async def _write(
    connection: _Connection, changing: Mapping[int, bool]
) -> tuple[list[int], float | None]:
    """The lanes of those that may be claimed now, and how soon others may be."""
    if not changing:
        return [], None
    parameters = {"job_nos": list(changing), "ons": list(changing.values())}
    [(lanes, soonest_s)] = await (await connection.execute(_SET, parameters)).fetchall()
    return lanes, soonest_s
