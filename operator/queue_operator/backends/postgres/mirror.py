"""The feed of changes that the controller writes to the status of custom resources."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow, dict_row

from queue_operator.backends.postgres.assigned import STANDING
from queue_operator.backends.postgres.batch import Batch
from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.postgres.reading import progress_of
from queue_operator.backends.postgres.submission import Submission
from queue_operator.backends.protocol import MirrorEntry, TakenIn
from queue_operator.backends.splitting import store_apart
from queue_operator.backends.sql import load
from queue_operator.domain.errors import DuplicateJob, QueueError, Unavailable
from queue_operator.domain.job import Job, ResourceRef, Submitted
from queue_operator.domain.outcome import OCTETS, ErrorCategory
from queue_operator.domain.shown import SHOWN_MESSAGE, SHOWN_RESULT_BYTES, ShownJob
from queue_operator.domain.states import JobState

_PENDING: Final = load(__package__, "mirror_pending")
_READ: Final = load(__package__, "mirror_read")
_ACKNOWLEDGE: Final = load(__package__, "mirror_acknowledge")
_ATTACHED: Final = load(__package__, "mirror_attached", standing=STANDING)
_BY_UID: Final = load(__package__, "find_by_uid")
_BY_ID: Final = load(__package__, "mirror_find")
_BURIED: Final = load(__package__, "tombstone_find")
_PRUNE: Final = load(__package__, "tombstone_prune")
_QUEUE_UID: Final = load(__package__, "queue_uid")

KEPT_S: Final = 90 * 86_400.0
"""A resource that comes back from an older backup than this may run again."""
_STEP: Final = 10_000


class MirrorStore:
    """The protocol `ResourceMirror`, but for what moves jobs."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def queue_uid(self) -> str:
        async with borrowed(self._pool) as connection:
            [(uid,)] = await (await connection.execute(_QUEUE_UID)).fetchall()
        return str(uid)

    async def take_in(self, jobs: Sequence[Job], submission: Submission) -> TakenIn:
        graves = _Graves()
        given = list(zip(jobs, await _store_apart(jobs, submission, graves), strict=True))
        errors = {job.id: one.error for job, one in given if one.error}
        return TakenIn(
            new=tuple(job.id for job, one in given if not (one.error or one.duplicate)),
            stands_for={
                job.id: one.job_id for job, one in given if one.duplicate and one.job_id != job.id
            },
            ended={uid: graves.found[uid] for uid in errors if uid in graves.found},
            refused={
                uid: error
                for uid, error in errors.items()
                if uid not in graves.found and not isinstance(error, DuplicateJob)
            },
        )

    async def pending_mirrors(self, limit: int = 500) -> list[MirrorEntry]:
        """One entry per job among the oldest `limit` changes, the longest waiting first.

        Changes that a later one of the same job has overtaken are dropped here, and so are
        those whose job was deleted or whose resource is gone. The record may be newer than
        the change; that change then comes again, and says the same.
        """
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_PENDING, {"limit": limit})).fetchall()
        jobs = await self._read([job_no for job_no, _ in rows]) if rows else {}
        await self.acknowledge_mirrors([seq for job_no, seq in rows if job_no not in jobs])
        return [
            MirrorEntry(sequence=sequence, job=jobs[job_no])
            for job_no, sequence in rows
            if job_no in jobs
        ]

    async def shown_jobs(
        self, names: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], ShownJob]:
        parameters = {"namespaces": [one for one, _ in names], "ids": [one for _, one in names]}
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_BY_ID, parameters)).fetchall()
        jobs = await self._read([job_no for (job_no,) in rows]) if rows else {}
        return {(job.namespace, job.id): job for job in jobs.values()}

    async def _read(self, job_nos: Collection[int]) -> dict[int, ShownJob]:
        parameters = {
            "job_nos": list(job_nos),
            "message_characters": SHOWN_MESSAGE + 1,
            "result_bytes": SHOWN_RESULT_BYTES,
        }
        async with borrowed(self._pool) as connection, connection.cursor(row_factory=dict_row) as c:
            await c.execute(_READ, parameters)
            return {row["job_no"]: _shown(row) for row in await c.fetchall()}

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

    async def prune(self) -> None:
        """Removes tombstones that are older than any backup that is put back."""
        parameters = {"max_age_s": KEPT_S, "limit": _STEP}
        async with borrowed(self._pool) as connection:
            await connection.execute(_PRUNE, parameters)


async def _store_apart(
    jobs: Sequence[Job], submission: Submission, graves: "_Graves"
) -> list[Submitted]:
    """One that the database does not take is refused alone. Jobs of resources wait for no others,
    so they can be parted.
    """
    store = partial(submission.store, atomic=False, guard=graves)
    answers: list[Submitted] = []
    for job, answer in zip(jobs, await store_apart(store, jobs), strict=True):
        if isinstance(answer, QueueError) and not answer.retryable:
            answers.append(Submitted(job_id=job.id, error=answer))
        elif isinstance(answer, Exception):
            raise answer
        else:
            answers.append(answer)
    return answers


@dataclass(slots=True)
class _Graves:
    """Keeps the jobs of resources out that were stored once, and deleted."""

    found: dict[str, ShownJob] = field(default_factory=dict)

    async def refusals(
        self, connection: AsyncConnection[TupleRow], batch: Batch
    ) -> Mapping[int, QueueError]:
        await self._look(connection, batch, range(len(batch)))
        return {
            n: DuplicateJob((job.id,), (batch.places[n],))
            for n, job in enumerate(batch.jobs)
            if job.id in self.found
        }

    async def note(
        self, connection: AsyncConnection[TupleRow], batch: Batch, new: Collection[int]
    ) -> None:
        """Whoever was deleting one of them had ended when it was stored again."""
        before = len(self.found)
        await self._look(connection, batch, new)
        if len(self.found) > before:
            raise Unavailable("a job was deleted while its resource was taken in; call again")

    async def _look(
        self, connection: AsyncConnection[TupleRow], batch: Batch, places: Collection[int]
    ) -> None:
        uids = {batch.jobs[n].id: batch.jobs[n] for n in places}
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(_BURIED, {"uids": list(uids)})
            for row in await cursor.fetchall():
                self.found[row["uid"]] = _buried(uids[row["uid"]], row)


def _buried(job: Job, row: Mapping[str, Any]) -> ShownJob:
    return ShownJob(
        id=job.id,
        namespace=job.namespace,
        resource=job.resource,
        state=JobState(row["state"]),
        transition=row["transition"],
        attempt=row["attempt"],
        created_at=row["created_at"],
        finalized_at=row["finalized_at"],
        error_category=ErrorCategory.PERMANENT if row["permanent"] else None,
        message="The job ended and was deleted; it is not run again",
    )


def _shown(row: Mapping[str, Any]) -> ShownJob:
    resource = None
    if row["cluster_uid"] is not None:
        resource = ResourceRef(
            row["cluster_uid"], row["id"], row["resource_name"], row["generation"]
        )
    category = row["error_category"]
    return ShownJob(
        id=row["id"],
        namespace=row["namespace"],
        resource=resource,
        state=JobState(row["state"]),
        transition=row["transition"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        worker=row["worker"],
        created_at=row["created_at"],
        eligible_at=row["eligible_at"],
        waiting_for_dependencies=row["blocked"],
        suspended=row["suspended"],
        suspension_at=row["suspension_at"],
        assigned_at=row["assigned_at"],
        started_at=row["started_at"],
        finalized_at=row["finalized_at"],
        error_category=ErrorCategory(category) if category else None,
        error_code=row["error_code"],
        message=row["message"],
        result_head=row["result_head"],
        result_bytes=row["result_bytes"],
        result_content_type=row["result_content_type"] or OCTETS,
        progress=progress_of(row),
    )
