"""Brings jobs into each state, and makes each event happen, through the contract alone."""

from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Final

from queue_operator.backends.protocol import Backend
from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.job import Assignment, Demand, Job
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome, Settled
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.store import TTL_S, Store

_numbers = count(1)


def a_job(**fields: object) -> Job:
    """A job of a type of its own, so that nobody else's claim takes it."""
    name = f"job-{next(_numbers)}"
    return Job(**{"id": name, "type": name, **fields})  # type: ignore[arg-type]


async def submitted(backend: Backend, **fields: object) -> Job:
    job = a_job(**fields)
    await backend.enqueue_job(job)
    return job


async def claim(
    backend: Backend, job: Job, assignee: str = "worker-1", ttl_s: float = TTL_S
) -> Assignment:
    demand = Demand(assignee_id=assignee, limit=1, types=frozenset({job.type}))
    [assignment] = await backend.claim([demand], lease_ttl_s=ttl_s)
    assert assignment.job_id == job.id
    return assignment


async def passed(backend: Backend, store: Store, seconds: float) -> None:
    """What comes due meanwhile may be claimed: a store may leave that to whoever looks in vain."""
    await store.age(seconds)
    assert await backend.dequeue_jobs("nobody", ["nobody's"], 1) == []


async def running(backend: Backend, **fields: object) -> tuple[Job, str]:
    """A claimed job and its token."""
    job = await submitted(backend, **fields)
    return job, (await claim(backend, job)).token


async def settle(backend: Backend, outcome: Outcome) -> Settled:
    [answer] = await backend.settle([outcome])
    return answer


async def apply(backend: Backend, job: Job, event: Event, token: str | None = None) -> Settled:
    """Settles `event` with what such an event usually carries."""
    errors = {
        Event.FAIL: ErrorInfo("boom"),
        Event.EXHAUST: ErrorInfo("boom", ErrorCategory.PERMANENT),
    }
    result = b"done" if event is Event.COMPLETE else None
    return await settle(
        backend, Outcome(job.id, event, token=token, result=result, error=errors.get(event))
    )


async def _after(backend: Backend, *events: Event) -> tuple[Job, str | None]:
    job, token = await running(backend)
    for event in events:
        if event is Event.CANCEL:
            await backend.cancel_jobs([], [job.id])
        else:
            assert (await apply(backend, job, event, token)).error is None
    return job, token


async def _waiting(backend: Backend) -> tuple[Job, None]:
    return await submitted(backend), None


async def _unscheduled(backend: Backend) -> tuple[Job, None]:
    job = await submitted(backend)
    await backend.cancel_jobs([], [job.id])
    return job, None


async def skipped(backend: Backend) -> tuple[Job, None]:
    job = await submitted(backend)
    assert (await apply(backend, job, Event.SKIP)).error is None
    return job, None


_Bring = Callable[[Backend], Awaitable[tuple[Job, str | None]]]

_BRING: Final[Mapping[JobState, _Bring]] = {
    JobState.INITIAL_PENDING: _waiting,
    JobState.RUNNING: lambda b: _after(b),
    JobState.COMPLETED: lambda b: _after(b, Event.COMPLETE),
    JobState.FAILED_RETRY: lambda b: _after(b, Event.FAIL),
    JobState.STOPPED: lambda b: _after(b, Event.STOP),
    JobState.UNSCHEDULED: _unscheduled,
    JobState.UNKNOWN_RETRY: lambda b: _after(b, Event.LOSE),
    JobState.CANCELLING: lambda b: _after(b, Event.CANCEL),
    JobState.UNKNOWN_STOPPED: lambda b: _after(b, Event.CANCEL, Event.LOSE),
    JobState.DEAD_LETTER: lambda b: _after(b, Event.EXHAUST),
}


async def job_in(backend: Backend, state: JobState) -> tuple[Job, str | None]:
    """A job that is in `state`, and its token if it ever had one."""
    job, token = await _BRING[state](backend)
    assert (await backend.get_job(job.id)).state is state
    return job, token


async def happens(backend: Backend, job: Job, event: Event, token: str | None) -> bool:
    """Makes `event` happen to the job, and says whether it was legal."""
    if event is Event.CLAIM:
        demand = Demand(assignee_id="worker-2", limit=1, types=frozenset({job.type}))
        return bool(await backend.claim([demand], lease_ttl_s=TTL_S))
    if event is Event.CANCEL:
        return job.id in (await backend.cancel_jobs([], [job.id])).cancelled_job_ids
    answer = await apply(backend, job, event, token)
    assert answer.error is None or isinstance(answer.error, InvalidTransition)
    return answer.error is None
