"""Reads whole job records."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow, dict_row

from queue_operator.backends.postgres.connection import Pool, borrowed
from queue_operator.backends.sql import load
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.job import Job, Progress, ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import OCTETS, ErrorCategory, ErrorInfo
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import JobState

_READ: Final = load(__package__, "read_job")
_BY_NAME: Final = load(__package__, "mirror_find")


class Reader:
    """Job records by id."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def by_id(
        self, namespace_id: int, job_ids: Sequence[str], *, whole: bool = True
    ) -> dict[str, Job]:
        """Not `whole`, without payload and result."""
        async with borrowed(self._pool) as connection:
            rows = await _read(connection, None, namespace_id, list(job_ids), whole)
        return {job.id: job for job in map(job_from_row, rows)}

    async def by_name(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """By namespace and id, without payload and result."""
        parameters = {"namespaces": [one for one, _ in names], "ids": [one for _, one in names]}
        async with borrowed(self._pool) as connection:
            rows = await (await connection.execute(_BY_NAME, parameters)).fetchall()
            job_nos = [job_no for (job_no,) in rows]
            jobs = await read_jobs(connection, job_nos, whole=False) if job_nos else {}
        return {(job.namespace, job.id): job for job in jobs.values()}


async def read_jobs(
    connection: AsyncConnection[TupleRow], job_nos: Sequence[int], *, whole: bool = True
) -> dict[int, Job]:
    """The same by number, as the connection's transaction sees them."""
    rows = await _read(connection, list(job_nos), None, None, whole)
    return {row["job_no"]: job_from_row(row) for row in rows}


async def _read(
    connection: AsyncConnection[TupleRow],
    job_nos: list[int] | None,
    namespace_id: int | None,
    ids: list[str] | None,
    whole: bool,
) -> list[dict[str, Any]]:
    parameters = {"job_nos": job_nos, "namespace_id": namespace_id, "ids": ids, "whole": whole}
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_READ, parameters)
        return await cursor.fetchall()


def job_from_row(row: Mapping[str, Any]) -> Job:
    """The record of a row of `read_job.sql`."""
    return Job(
        id=row["id"],
        type=row["type"],
        payload=row["payload"],
        content_type=row["content_type"],
        namespace=row["namespace"],
        tags=frozenset(row["tags"]),
        priority=Priority(row["priority"]),
        created_at=row["created_at"],
        max_attempts=row["max_attempts"],
        timeout_s=row["timeout_s"],
        backoff=load_backoff(row["backoff"]),
        correlation_id=row["correlation_id"],
        idempotency_key=row["idempotency_key"],
        callback_url=row["callback_url"],
        traceparent=row["traceparent"] or "",
        tracestate=row["tracestate"] or "",
        spawned_by=row["spawned_by"],
        spawn_depth=row["spawn_depth"],
        depends_on=tuple(row["depends_on"] or ()),
        dependency_mode=DependencyMode(row["dependency_mode"] or DependencyMode.AFTER),
        waiting_for_dependencies=row["blocked"],
        suspended=row["suspended"],
        suspension_at=row["suspension_at"],
        resource=_resource(row),
        state=JobState(row["state"]),
        eligible_at=row["eligible_at"],
        started_at=row["started_at"],
        finalized_at=row["finalized_at"],
        updated_at=row["changed_at"],
        error=load_error(row["error"]),
        failed_at=row["failed_at"],
        result=row["result"],
        result_content_type=row["result_content_type"] or OCTETS,
        retry_count=row["retry_count"],
        failure_count=row["failure_count"],
        last_retry_at=row["last_retry_at"],
        attempt=row["attempt"],
        lease_version=row["lease_version"],
        transition=row["transition"],
        assignee_id=row["assignee_id"],
        worker_name=row["worker_name"],
        host=row["host"],
        assigned_at=row["assigned_at"],
        reason=row["reason"],
        cancel_reason=row["cancel_reason"],
        progress=progress_of(row),
    )


def _resource(row: Mapping[str, Any]) -> ResourceRef | None:
    if row["cluster_uid"] is None:
        return None
    return ResourceRef(row["cluster_uid"], row["id"], row["resource_name"], row["generation"])


def progress_of(row: Mapping[str, Any]) -> Progress | None:
    """Of the columns that begin with `progress_`."""
    if row["progress_percent"] is None:
        return None
    return Progress(row["progress_percent"], row["progress_message"], row["progress_at"])


def load_error(stored: Mapping[str, Any] | None) -> ErrorInfo | None:
    if stored is None:
        return None
    return ErrorInfo(**{**stored, "category": ErrorCategory(stored["category"])})


def load_backoff(stored: Mapping[str, Any] | None) -> Backoff | None:
    if stored is None:
        return None
    return Backoff(
        **{
            **stored,
            "strategy": BackoffStrategy(stored["strategy"]),
            "delays_s": tuple(stored["delays_s"]),
        }
    )
