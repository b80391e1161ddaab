"""The product's own backend, through its public contract."""

from collections.abc import Sequence
from typing import ClassVar, Self

from bench.candidates import Claimed
from queue_operator.backends.postgres import PostgresBackend, migrate
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event

LEASE_TTL_S = 60.0


class SeparateRows:
    """Rows move between ready, lease and final."""

    name: ClassVar[str] = "separate rows"

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend

    @classmethod
    async def open(cls, dsn: str) -> Self:
        await migrate(dsn)
        return cls(await PostgresBackend.open(dsn))

    async def submit(self, ids: Sequence[str], payload: bytes) -> None:
        await self._backend.enqueue_jobs([Job(id=i, type="noop", payload=payload) for i in ids])

    async def claim(self, limit: int) -> Claimed:
        demand = Demand(assignee_id="bench", limit=limit, types=frozenset({"noop"}))
        claimed = await self._backend.claim([demand], lease_ttl_s=LEASE_TTL_S)
        return [(one.job_id, one.token) for one in claimed]

    async def complete(self, claimed: Claimed) -> int:
        outcomes = [
            Outcome(job_id, Event.COMPLETE, token=token, result=b"ok") for job_id, token in claimed
        ]
        return sum(answer.error is None for answer in await self._backend.settle(outcomes))

    async def close(self) -> None:
        await self._backend.close()
