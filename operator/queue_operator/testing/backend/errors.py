"""What every method has in common: how it is cancelled, and how it fails."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from queue_operator.backends.protocol import FailureSearch, JobSearch
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidTransition,
    JobNotFound,
)
from queue_operator.domain.job import Demand
from queue_operator.domain.lease import Held
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.breaking import in_a_cancelled_task, needs_the_store, shape
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, claim, running, submitted
from queue_operator.testing.store import TTL_S, Contract, Store

_Call = Callable[[Contract, str], Awaitable[object]]

# Every method of the contract but `close`, on the id of a running job.
EVERY: Final[dict[str, _Call]] = {
    "enqueue_job": lambda b, _: b.enqueue_job(a_job()),
    "enqueue_jobs": lambda b, _: b.enqueue_jobs([a_job()]),
    "submit": lambda b, _: b.submit([a_job()], atomic=False),
    "dequeue_jobs": lambda b, _: b.dequeue_jobs("w", [], 1),
    "claim": lambda b, _: b.claim([Demand(assignee_id="w", limit=1)], lease_ttl_s=TTL_S),
    "settle": lambda b, x: b.settle([Outcome(x, Event.STOP)]),
    "complete_job": lambda b, x: b.complete_job(x, b""),
    "fail_job": lambda b, x: b.fail_job(x, "boom"),
    "stop_job": lambda b, x: b.stop_job(x, ""),
    "stop_job_with_retry": lambda b, x: b.stop_job_with_retry(x, ""),
    "mark_job_unknown_stopped": lambda b, x: b.mark_job_unknown_stopped(x, ""),
    "update_job_status": lambda b, x: b.update_job_status(x, JobState.STOPPED),
    "cancel_jobs": lambda b, x: b.cancel_jobs([], [x]),
    "acknowledge_cancellation": lambda b, x: b.acknowledge_cancellation(x, True),
    "mark_worker_unresponsive": lambda b, _: b.mark_worker_unresponsive("worker-1"),
    "extend_leases": lambda b, x: b.extend_leases([Held(x, "t")], lease_ttl_s=TTL_S),
    "leased": lambda b, x: b.leased([x]),
    "expire_leases": lambda b, _: b.expire_leases(lease_ttl_s=TTL_S),
    "get_job": lambda b, x: b.get_job(x),
    "get_job_stats": lambda b, _: b.get_job_stats([]),
    "reset_running_jobs": lambda b, _: b.reset_running_jobs(),
    "cleanup_expired_jobs": lambda b, _: b.cleanup_expired_jobs(1.0),
    "delete_jobs": lambda b, x: b.delete_jobs([], [x]),
    "ping": lambda b, _: b.ping(),
    "search_jobs": lambda b, _: b.search_jobs(JobSearch()),
    "search_failures": lambda b, _: b.search_failures(FailureSearch()),
    "get_history": lambda b, x: b.get_history(x),
    "look_up": lambda b, x: b.look_up([x]),
    "named_jobs": lambda b, x: b.named_jobs([("default", x)]),
}


def test_every_method_is_called() -> None:
    methods = {name for name in dir(Contract) if not name.startswith("_")}
    assert set(EVERY) == methods - {"close"}


@proves(
    "backend-api.ErrorConditions.error.1",
    "backend-api.ImplementationGuidelines.must.18",
    "backend-api.ImplementationGuidelines.must.19",
    "backend-api.TestingRequirements.must.5",
)
@pytest.mark.parametrize("name", EVERY)
async def test_every_method_raises_in_a_cancelled_task(backend: Contract, name: str) -> None:
    job, _ = await running(backend)
    await in_a_cancelled_task(lambda: EVERY[name](backend, job.id))
    # The backend is as good as before.
    assert (await backend.get_job(job.id)).id == job.id


@proves(
    "backend-api.ErrorConditions.error.4",
    "backend-api.ImplementationGuidelines.expect.3",
    "backend-api.ImplementationGuidelines.must.18",
    "backend-api.ImplementationGuidelines.must.19",
    "backend-api.TestingRequirements.must.5",
)
async def test_every_method_is_unavailable_without_the_store(
    backend: Contract, store: Store
) -> None:
    job, token = await running(backend)
    before = await shape(backend, job)
    calls = [lambda call=call: call(backend, job.id) for call in EVERY.values()]
    await needs_the_store(store, backend, *calls)
    assert await shape(backend, job) == before
    assert (await backend.get_job_stats([])).total_jobs == 1
    assert await backend.complete_job(job.id, b"", token=token) == {"worker-1": 1}


_NAMED: Final = (
    "complete_job",
    "fail_job",
    "stop_job",
    "stop_job_with_retry",
    "mark_job_unknown_stopped",
    "update_job_status",
    "acknowledge_cancellation",
    "get_job",
    "get_history",
)


@proves(
    "backend-api.ErrorConditions.error.3",
    "backend-api.ImplementationGuidelines.must.19",
    "backend-api.TestingRequirements.must.5",
)
@pytest.mark.parametrize("name", _NAMED)
async def test_a_missing_job_is_not_found(backend: Contract, name: str) -> None:
    with pytest.raises(JobNotFound) as raised:
        await EVERY[name](backend, "missing")
    assert (raised.value.job_id, raised.value.namespace) == ("missing", "default")


@proves("backend-api.ErrorConditions.error.3")
async def test_a_missing_job_in_a_selection_is_no_error(backend: Contract) -> None:
    assert (await backend.cancel_jobs([], ["missing"])).unknown_job_ids == ("missing",)
    assert await backend.delete_jobs([], ["missing"]) == 0
    [answer] = await backend.settle([Outcome("missing", Event.STOP)])
    assert isinstance(answer.error, JobNotFound)


@proves(
    "backend-api.ErrorConditions.error.2",
    "backend-api.ImplementationGuidelines.must.19",
    "backend-api.TestingRequirements.must.5",
)
async def test_a_job_that_ended_takes_no_outcome(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.complete_job(job.id, b"r", token=token)
    before = await backend.get_job(job.id)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: backend.complete_job(job.id, b"again"),
        lambda: backend.fail_job(job.id, "boom"),
        lambda: backend.stop_job(job.id, ""),
        lambda: backend.update_job_status(job.id, JobState.STOPPED),
    ]
    for call in calls:
        with pytest.raises(InvalidTransition) as raised:
            await call()
        assert (raised.value.job_id, raised.value.state) == (job.id, JobState.COMPLETED)
    assert await backend.get_job(job.id) == before


@proves("backend-api.ErrorConditions.error.6", "backend-api.ImplementationGuidelines.must.20")
async def test_a_validation_that_fails_writes_nothing(backend: Contract) -> None:
    job = await submitted(backend)
    await claim(backend, job)
    before = await backend.get_job(job.id)
    with pytest.raises(DuplicateJob):
        await backend.enqueue_jobs([a_job(), job])
    with pytest.raises(InvalidTransition):
        await backend.delete_jobs([], [job.id])
    assert await backend.get_job(job.id) == before
    assert (await backend.get_job_stats([])).total_jobs == 1
