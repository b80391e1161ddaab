"""What only a store that forgets has to prove."""

import pytest

from queue_operator.domain.errors import JobNotFound
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import submitted
from queue_operator.testing.memory import MemoryStore


@proves("queue-semantics.Durability.rule.3")
async def test_memory_is_shared_with_nobody_and_forgets() -> None:
    first, second = MemoryStore(), MemoryStore()
    assert not first.durable
    one, other = await first.open(), await second.open()
    job = await submitted(one)
    with pytest.raises(JobNotFound):
        await other.get_job(job.id)
    assert (await other.get_job_stats([])).total_jobs == 0
    await first.close()
    with pytest.raises(JobNotFound):
        await (await first.open()).get_job(job.id)
