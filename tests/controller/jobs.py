"""What workers do to jobs, without workers."""

from tests.controller.running import until

from queue_operator.backends.protocol import Backend, Signals
from queue_operator.domain.errors import JobNotFound
from queue_operator.domain.job import Assignment, Demand
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState

LEASE_TTL_S = 60.0


async def until_state(backend: Backend, uid: str, namespace: str, *states: JobState) -> None:
    """Waits until the job is there and, if any are given, in one of the states."""

    async def holds() -> bool:
        try:
            job = await backend.get_job(uid, namespace=namespace)
        except JobNotFound:
            return False
        return not states or job.state in states

    assert isinstance(backend, Signals)
    await until(backend, holds)


async def claim(backend: Backend, namespace: str, limit: int = 1) -> list[Assignment]:
    demand = Demand(
        assignee_id="session-1", limit=limit, namespace=namespace, worker_name="worker-1"
    )
    return await backend.claim([demand], lease_ttl_s=LEASE_TTL_S)


async def settle(
    backend: Backend, assignments: list[Assignment], event: Event = Event.COMPLETE
) -> None:
    failed = event is not Event.COMPLETE
    outcomes = [
        Outcome(
            a.job_id,
            event,
            namespace=a.namespace,
            token=a.token,
            result=None if failed else b'{"ok":true}',
            result_content_type="application/json",
            error=ErrorInfo("no such user", ErrorCategory.PERMANENT, "NO_SUCH_USER")
            if failed
            else None,
            worker_plane=True,
        )
        for a in assignments
    ]
    errors = [settled.error for settled in await backend.settle(outcomes) if settled.error]
    assert not errors


async def run_one(backend: Backend, namespace: str, event: Event = Event.COMPLETE) -> Assignment:
    """Claims the one job that waits and settles it."""
    (assignment,) = await claim(backend, namespace)
    await settle(backend, [assignment], event)
    return assignment
