"""The span of a submission stays with its job, through every attempt."""

import pytest

from queue_operator.domain.job import Demand, Job
from queue_operator.domain.states import Event
from queue_operator.testing.driving import a_job, apply, claim, submitted
from queue_operator.testing.store import TTL_S, Contract

_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_KEY = "a key of its own"


def _traced(number: int) -> Job:
    """Every third job belongs to a trace, and every sixth has a vendor's state beside it."""
    if number % 3:
        return a_job(type="t")
    state = "" if number % 2 else f"vendor={number}"
    return a_job(
        type="t", traceparent=f"00-{number + 1:032x}-b7ad6b7169203331-00", tracestate=state
    )


@pytest.mark.parametrize("number", [1, 7, 120], ids=["one", "a few", "many"])
async def test_a_batch_keeps_the_trace_of_each_job(backend: Contract, number: int) -> None:
    jobs = [_traced(n) for n in range(number)]
    await backend.enqueue_jobs(jobs)
    given = {job.id: (job.traceparent, job.tracestate) for job in jobs}
    demands = [Demand(assignee_id=name, limit=number) for name in ("v", "w")]
    claimed = await backend.claim(demands, lease_ttl_s=TTL_S)
    assert {one.job_id: (one.traceparent, one.tracestate) for one in claimed} == given
    for job in jobs[:7]:
        stored = await backend.get_job(job.id)
        assert (stored.traceparent, stored.tracestate) == given[job.id]


async def test_another_attempt_has_the_trace_of_the_first(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=2, traceparent=_PARENT, tracestate="a=b")
    first = await claim(backend, job)
    await apply(backend, job, Event.HAND_BACK, first.token)
    second = await claim(backend, job)
    for one in first, second:
        assert (one.traceparent, one.tracestate) == (_PARENT, "a=b")


async def test_a_repeat_from_another_trace_is_a_repeat(backend: Contract) -> None:
    first = await submitted(backend, type="t", idempotency_key=_KEY, traceparent=_PARENT)
    again = a_job(type="t", idempotency_key=_KEY, traceparent=_PARENT.replace("-b7", "-c7"))
    assert await backend.enqueue_job(again) == first.id
    assert (await backend.get_job(first.id)).traceparent == _PARENT
