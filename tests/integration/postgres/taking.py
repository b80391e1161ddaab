"""A claim, as most tests of this folder need it."""

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Demand


async def claim(backend: PostgresBackend, limit: int = 100) -> list[str]:
    """The ids of the jobs of the default namespace that it gets, for ten minutes."""
    demand = Demand(assignee_id="w", limit=limit)
    return [one.job_id for one in await backend.claim([demand], lease_ttl_s=600)]
