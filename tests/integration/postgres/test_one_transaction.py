"""What is promised as one step is one transaction: the rows of the event log that a call wrote, and
the deltas of the counts, are all of it.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from tests.integration.postgres.conftest import Ask

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.domain.job import Demand, Job
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.testing.clauses import proves

TTL_S: Final = 600.0
MANY: Final = 30
# What the statements of one transaction wrote has one number.
_SINCE: Final = """
SELECT count(DISTINCT xid::text), sum(cardinality(job_nos))::int FROM job_event WHERE seq > %s
"""
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM job_event"

Prepare = Callable[[PostgresBackend, str], Awaitable[list[str]]]
Call = Callable[[PostgresBackend, str, list[str]], Awaitable[object]]


async def _new(backend: PostgresBackend, space: str) -> list[str]:
    jobs = [Job(id=f"{space}-{n}", type="t", namespace=space) for n in range(MANY)]
    return await backend.enqueue_jobs(jobs)


async def _held(backend: PostgresBackend, space: str) -> list[str]:
    """Half of them are asked to stop: what happens to each half is told by a row of its own."""
    names = await _new(backend, space)
    demand = Demand(assignee_id=space, limit=MANY, namespace=space)
    assert len(await backend.claim([demand], lease_ttl_s=TTL_S)) == MANY
    await backend.cancel_jobs([], names[: MANY // 2], namespace=space)
    return names


async def _mixed(backend: PostgresBackend, space: str) -> list[str]:
    """Some run, some wait, some were lost."""
    names = await _new(backend, space)
    for assignee in (f"{space}-1", f"{space}-2"):
        demand = Demand(assignee_id=assignee, limit=MANY // 3, namespace=space)
        await backend.claim([demand], lease_ttl_s=TTL_S)
    await backend.mark_worker_unresponsive(f"{space}-1")
    return names


async def _ended(backend: PostgresBackend, space: str) -> list[str]:
    names = await _held(backend, space)
    await backend.settle([Outcome(name, Event.STOP, namespace=space) for name in names])
    return names


async def _none(backend: PostgresBackend, space: str) -> list[str]:
    return []


async def _settle(backend: PostgresBackend, space: str, names: list[str]) -> None:
    """Of all kinds; a cancelling job cannot fail."""
    events = [*[Event.STOP] * (MANY // 2), *[Event.FAIL] * (MANY // 2)]
    error = ErrorInfo("no")
    outcomes = [
        Outcome(name, event, namespace=space, error=error)
        for name, event in zip(names, events, strict=True)
    ]
    assert [answer.error for answer in await backend.settle(outcomes)] == [None] * MANY


_STEPS: Final[dict[str, tuple[Prepare, Call]]] = {
    "enqueue_jobs": (_none, lambda b, space, _: _new(b, space)),
    "settle": (_held, _settle),
    "cancel_jobs": (_mixed, lambda b, space, names: b.cancel_jobs([], names, namespace=space)),
    "mark_worker_unresponsive": (_held, lambda b, space, _: b.mark_worker_unresponsive(space)),
    "reset_running_jobs": (_held, lambda b, space, _: b.reset_running_jobs(namespace=space)),
    "delete_jobs": (_ended, lambda b, space, names: b.delete_jobs([], names, namespace=space)),
}


@proves(
    "backend-api.Invariants.rule.2",
    "backend-api.ImplementationGuidelines.must.2",
    "backend-api.CancelJobs.must.7",
    "backend-api.MarkWorkerUnresponsive.must.6",
    "backend-api.ResetRunningJobs.must.6",
)
@pytest.mark.parametrize("name", _STEPS)
async def test_a_call_on_many_jobs_is_one_transaction(
    backend: PostgresBackend, ask: Ask, namespace: str, name: str
) -> None:
    prepare, call = _STEPS[name]
    names = await prepare(backend, namespace)
    [(before,)] = await ask(_LAST)
    await call(backend, namespace, names)
    assert await ask(_SINCE, before) == [(1, MANY)]
