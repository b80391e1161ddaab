"""The product's own storage, through its public contract."""

from collections.abc import Sequence
from typing import Final, LiteralString, Self

import psycopg

from bench.programs.stores import JOB_TYPE, TAGS, Claimed, Stored, job_id
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.backends.sql import load
from queue_operator.domain.job import DEFAULT_NAMESPACE, Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

LEASE_TTL_S: Final = 60.0
_AUDIT: Final = load(__package__, "product_audit")


class Product:
    """Rows move between ready, lease and final; events, counts and attempts with them."""

    audit_statement = _AUDIT

    def __init__(self, backend: PostgresBackend, dsn: str, payload: bytes) -> None:
        self._backend = backend
        self._dsn = dsn
        self._payload = payload

    @classmethod
    async def open(cls, dsn: str, payload: bytes) -> Self:
        await migrate(dsn)
        return cls(await PostgresBackend.open(dsn), dsn, payload)

    async def submit(self, numbers: range) -> None:
        await self._backend.enqueue_jobs(
            [Job(id=job_id(n), type=JOB_TYPE, payload=self._payload, tags=TAGS) for n in numbers]
        )

    async def claim(self, limit: int) -> Claimed:
        demand = Demand(assignee_id="bench", limit=limit, types=frozenset({JOB_TYPE}))
        claimed = await self._backend.claim([demand], lease_ttl_s=LEASE_TTL_S)
        return [(one.job_id, one.token) for one in claimed]

    async def complete(self, claimed: Claimed) -> int:
        return await complete(self._backend, claimed)

    async def stored(self) -> Stored:
        stored = await audit(self._dsn, self.audit_statement)
        stats = await self._backend.get_job_stats(())
        if (stats.total_jobs, stats.completed_jobs) != (stored.jobs, stored.completed):
            raise RuntimeError(f"the counts say {stats}, the tables {stored}")
        return stored

    async def close(self) -> None:
        await self._backend.close()


async def complete(
    backend: PostgresBackend,
    claimed: Sequence[tuple[str, str]],
    namespace: str = DEFAULT_NAMESPACE,
) -> int:
    """Completes what was claimed, and says how many were."""
    outcomes = [
        Outcome(id_, Event.COMPLETE, namespace, token=token, result=b"ok") for id_, token in claimed
    ]
    return sum(answer.error is None for answer in await backend.settle(outcomes))


async def audit(dsn: str, statement: LiteralString = _AUDIT) -> Stored:
    """Counts the rows and the events, whatever the product says itself."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        row = await (await connection.execute(statement)).fetchone()
    return Stored(*(row or (0, 0, 0)))
