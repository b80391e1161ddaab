from uuid import uuid4

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.postgres.cancel_inbox import CancelInboxStore
from queue_operator.backends.postgres.connection import Pool
from queue_operator.domain.job import CancelRequest, Demand, Job


async def test_requests_are_given_to_their_assignee_until_the_job_has_stopped(
    pool: Pool, backend: PostgresBackend, namespace: str
) -> None:
    jobs = [Job(id=uuid4().hex, type="mail", namespace=namespace) for _ in range(3)]
    await backend.enqueue_jobs(jobs)
    mine, other = f"mine-{namespace}", f"other-{namespace}"
    demands = [
        Demand(assignee_id=mine, limit=2, namespace=namespace),
        Demand(assignee_id=other, limit=1, namespace=namespace),
    ]
    claimed = await backend.claim(demands, lease_ttl_s=60)
    stopping = next(job for job in claimed if job.assignee_id == mine)
    inbox = CancelInboxStore(pool)
    assert (await inbox.pending_cancels([mine, other])).requests == ()

    await backend.cancel_jobs(
        [], [stopping.job_id], namespace=namespace, force=True, reason="no longer needed"
    )
    request = CancelRequest(
        stopping.job_id, namespace, mine, stopping.token, force=True, reason="no longer needed"
    )
    assert (await inbox.pending_cancels([mine, other])).requests == (request,)
    assert (await inbox.pending_cancels([other])).requests == ()
    assert (await inbox.pending_cancels([])).requests == ()

    await backend.acknowledge_cancellation(
        stopping.job_id, True, namespace=namespace, token=stopping.token
    )
    assert (await inbox.pending_cancels([mine])).requests == ()
