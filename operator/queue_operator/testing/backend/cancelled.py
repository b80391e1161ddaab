"""Calls that are cancelled wherever they wait: the caller is told, or nothing was done, or a
repeat finds what was done.
"""

import asyncio
from collections.abc import Sequence

import pytest

from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.states import JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job
from queue_operator.testing.store import TTL_S, Contract, Store
from queue_operator.testing.walking import Walked, walk

Jobs = list[Job]


async def _three(backend: Contract, **fields: object) -> Jobs:
    """Jobs of a type and a tag that no other has."""
    first = a_job(**fields)
    tags = frozenset({first.id})
    jobs = [a_job(**{**fields, "type": first.type, "tags": tags}) for _ in range(3)]
    await backend.enqueue_jobs(jobs)
    return jobs


def _demand(jobs: Sequence[Job], assignee: str, limit: int = 3) -> Demand:
    return Demand(assignee_id=assignee, limit=limit, types=frozenset({jobs[0].type}))


async def _check_claims(store: Store, calls: Sequence[Walked[Jobs, list[str]]]) -> None:
    """What nobody was told of can be claimed by others, once, and no attempt was used up."""
    backend = await store.open()
    for one in calls:
        jobs = one.subject
        told = set(one.answers[0]) if one.answers else set()
        leased = {held.job_id for held in await backend.leased([jobs[0].id])}
        assert leased == told, f"{one}: {leased - told} are assigned, and nobody knows"
        others = await backend.claim([_demand(jobs, "other")], lease_ttl_s=TTL_S)
        again = {other.job_id for other in others}
        assert again == {job.id for job in jobs} - told, f"{one}: lost, or assigned twice"
        assert {other.attempt for other in others} <= {1}, one
        for job in jobs:
            assert (await backend.get_job(job.id)).state is JobState.RUNNING, one


@proves("backend-api.DequeueJobs.error.2")
@pytest.mark.parametrize("delay_s", [None, 50.0], ids=["due", "to be made due"])
async def test_a_cancelled_dequeue_leaves_its_jobs_to_others(
    store: Store, backend: Contract, delay_s: float | None
) -> None:
    async def bring() -> Jobs:
        jobs = await _three(backend, delay_s=delay_s)
        await store.age(60 if delay_s else 0)
        return jobs

    async def call(jobs: Jobs) -> list[str]:
        return [job.id for job in await backend.dequeue_jobs(jobs[0].id, jobs[0].tags, 3)]

    calls = await walk(bring, call)
    # After what is still under way.
    await backend.close()
    await _check_claims(store, calls)


async def test_a_cancelled_claim_leaves_its_jobs_to_others(store: Store, backend: Contract) -> None:
    async def bring() -> Jobs:
        return await _three(backend)

    async def call(jobs: Jobs) -> list[str]:
        # Two that ask for the same lane, by filters of their own, are not served by one look.
        by_tags = Demand(assignee_id=jobs[0].id, limit=1, tags=jobs[0].tags)
        demands = [_demand(jobs, jobs[0].id, 2), by_tags]
        return [one.job_id for one in await backend.claim(demands, lease_ttl_s=TTL_S)]

    calls = await walk(bring, call)
    await backend.close()
    await _check_claims(store, calls)


async def test_closing_waits_until_what_nobody_hears_of_is_back(store: Store) -> None:
    async def bring() -> tuple[Contract, Jobs]:
        backend = await store.open()
        jobs = await _three(backend)
        # While the call that comes next is under way.
        asyncio.get_running_loop().call_soon(
            lambda: closing.append(asyncio.create_task(backend.close()))
        )
        return backend, jobs

    async def call(one: tuple[Contract, Jobs]) -> list[str]:
        backend, jobs = one
        try:
            return [job.id for job in await backend.dequeue_jobs(jobs[0].id, [jobs[0].id], 3)]
        except Unavailable:
            return []

    closing: list[asyncio.Task[None]] = []
    calls = await walk(bring, call)
    await asyncio.gather(*closing)
    await _check_claims(
        store, [Walked(one.subject[1], one.when, one.place, one.answers) for one in calls]
    )
