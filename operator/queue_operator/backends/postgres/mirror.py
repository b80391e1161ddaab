"""The feed of changes that the controller writes to the status of custom resources."""

from collections.abc import Collection
from typing import Final

from queue_operator.backends.postgres.assigned import STANDING
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.reading import Reader
from queue_operator.backends.protocol import MirrorEntry
from queue_operator.backends.sql import load

_PENDING: Final = load(__package__, "mirror_pending")
_ACKNOWLEDGE: Final = load(__package__, "mirror_acknowledge")
_ATTACHED: Final = load(__package__, "mirror_attached", standing=STANDING)
_BY_UID: Final = load(__package__, "find_by_uid")


class MirrorStore:
    """The reading side of the protocol `ResourceMirror`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reader = Reader(pool)

    async def pending_mirrors(self, limit: int = 500) -> list[MirrorEntry]:
        """One entry per job among the oldest `limit` changes, the longest waiting first.

        Changes that a later one of the same job has overtaken are dropped here, and so are
        those whose job was deleted or whose resource is gone. The record may be newer than
        the change; that change then comes again, and says the same.
        """
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_PENDING, {"limit": limit})).fetchall()
        jobs = await self._reader.by_number([job_no for job_no, _ in rows]) if rows else {}
        await self.acknowledge_mirrors([seq for job_no, seq in rows if job_no not in jobs])
        return [
            MirrorEntry(sequence=sequence, job=jobs[job_no])
            for job_no, sequence in rows
            if job_no in jobs
        ]

    async def acknowledge_mirrors(self, sequences: Collection[int]) -> None:
        if not sequences:
            return
        async with borrowed(self._pool) as connection:
            await connection.execute(_ACKNOWLEDGE, {"sequences": list(sequences)})

    async def taken_in(self, uids: Collection[str]) -> set[str]:
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_BY_UID, {"uids": list(uids)})
            return {uid for _, uid in await cursor.fetchall()}

    async def attached(self, cluster_uid: str) -> list[tuple[str, str]]:
        """(namespace, uid) of every attached job of this cluster that has not finished."""
        async with borrowed(self._pool) as connection:
            cursor = await connection.execute(_ATTACHED, {"cluster_uid": cluster_uid})
            return [(namespace, uid) for namespace, uid in await cursor.fetchall()]
