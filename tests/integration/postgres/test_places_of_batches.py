"""What arrives in a batch is told lane by lane: a claim begins with the oldest jobs at once, and
does not have to find out first in which of the batch's lanes they are.
"""

from collections.abc import Callable

import pytest
from tests.integration.postgres.watching import watched

from queue_operator.backends.postgres import migrate
from queue_operator.domain.job import Demand, Job

LANES = 1_000
"""Five times as many as one claim asks."""
COPIED = LANES
INSERTED = 40


@pytest.mark.parametrize("batch", [COPIED, INSERTED])
async def test_a_claim_of_few_from_a_batch_of_many_lanes_is_one_statement(
    new_database: Callable[[], str], batch: int
) -> None:
    dsn = new_database()
    await migrate(dsn)
    jobs = [Job(id=f"job-{n}", type="t", tags=frozenset({f"order={n}"})) for n in range(LANES)]
    async with watched(dsn, plans="auto") as (backend, seen):
        # So that arrivals are read, and not all lanes that wait.
        assert await backend.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=600) == []
        for first in range(0, LANES, batch):
            await backend.enqueue_jobs(jobs[first : first + batch])
        seen.clear()
        claimed = await backend.claim([Demand(assignee_id="w", limit=50)], lease_ttl_s=600)
        assert [one.job_id for one in claimed] == [job.id for job in jobs[:50]]
        claims = [plan for plan in seen.plans if plan.text.startswith("-- Takes the oldest")]
        assert len(claims) == 1
