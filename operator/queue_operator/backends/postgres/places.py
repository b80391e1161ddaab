"""Places: where a job stands, and what it waits for."""

from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from queue_operator.backends.postgres.connection import Pool, again_when_undone, borrowed
from queue_operator.backends.postgres.lanes import Lanes
from queue_operator.backends.postgres.pauses import pauses_of
from queue_operator.backends.protocol import AHEAD_BOUND, Place
from queue_operator.backends.sql import load
from queue_operator.domain.states import JobState

_FIND: Final = load(__package__, "place_find")
_EDGES: Final = load(__package__, "dependency_edges")


class PlaceStore:
    """The protocol `Places`."""

    def __init__(self, pool: Pool, lanes: Lanes) -> None:
        self._pool = pool
        self._lanes = lanes

    @again_when_undone
    async def place_of(self, namespace: str, job_id: str) -> Place | None:
        namespace_id = await self._lanes.namespace_id(namespace)
        if namespace_id is None:
            return None
        parameters = {"namespace_id": namespace_id, "id": job_id, "bound": AHEAD_BOUND + 1}
        async with borrowed(self._pool) as connection:
            found = await (await connection.execute(_FIND, parameters)).fetchone()
            if found is None:
                return None
            job_no, kind, ahead = found
            return Place(
                ahead=min(ahead, AHEAD_BOUND),
                ahead_is_exact=ahead <= AHEAD_BOUND,
                parents=await _parents(connection, job_no),
                pauses=tuple(await pauses_of(connection, namespace, kind)),
            )


async def _parents(
    connection: AsyncConnection[TupleRow], job_no: int
) -> dict[str, JobState | None]:
    cursor = await connection.execute(_EDGES, {"children": [job_no]})
    return {
        parent_id: outcome and JobState(outcome)
        for _, _, parent_id, outcome, _ in await cursor.fetchall()
    }
