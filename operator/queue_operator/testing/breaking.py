"""Calls that are cancelled on their way, and stores that cannot be reached."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest

from queue_operator.domain.errors import Unavailable
from queue_operator.domain.job import Job
from queue_operator.domain.states import JobState
from queue_operator.testing.driving import job_in
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.walking import walk

# Connections are made anew in the background, and a first call may still meet an old one.
_PINGS: Final = 10_000

T = TypeVar("T")
Call = Callable[[], Awaitable[object]]


async def in_a_cancelled_task(call: Call) -> None:
    """Asserts that `call` raises CancelledError in a task that is being cancelled."""

    async def run() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await call()

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    assert task.cancelled() or task.exception(), "the call went on as if nobody had cancelled it"
    with pytest.raises(asyncio.CancelledError):
        task.result()


async def whole_or_not_at_all(
    bring: Callable[[], Awaitable[T]],
    call: Callable[[T], Awaitable[object]],
    read: Callable[[T], Awaitable[object]],
) -> None:
    """Asserts that a call, cancelled wherever it waits, happens as a whole or not at all, and as
    a whole if it answers.

    `bring` makes something to call on, `call` does what is tested, `read` gives what can be
    compared between two things that were brought.
    """
    subject = await bring()
    untouched = await read(subject)
    await call(subject)
    done = await read(subject)
    async for one in walk(bring, call):
        found = await read(one.subject)
        assert found in ((untouched, done) if one.cancelled else (done,)), one


async def job_call_cancelled(
    backend: Contract, state: JobState, call: Callable[[Job], Awaitable[object]]
) -> None:
    """`in_a_cancelled_task` and `whole_or_not_at_all` for a call on one job in `state`."""
    job, _ = await job_in(backend, state)
    await in_a_cancelled_task(lambda: call(job))

    async def bring() -> Job:
        return (await job_in(backend, state))[0]

    await whole_or_not_at_all(bring, call, lambda job: shape(backend, job))


async def shape(backend: Contract, job: Job) -> tuple[object, ...]:
    """What two jobs that went through the same have in common."""
    stored = await backend.get_job(job.id, namespace=job.namespace)
    counts = (stored.retry_count, stored.failure_count, stored.attempt, stored.lease_version)
    ends = (stored.finalized_at is not None, stored.result, stored.error, stored.reason)
    return (stored.state, stored.transition, stored.assignee_id, *counts, *ends)


async def needs_the_store(store: Store, backend: Contract, *calls: Call) -> None:
    """Asserts that each call raises Unavailable while the store is broken, and that the same
    backend works again afterwards.
    """
    await store.break_down()
    try:
        answers = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    finally:
        await store.mend()
    assert [a for a in answers if not isinstance(a, Unavailable)] == []
    await reachable(backend)


async def reachable(backend: Contract) -> None:
    """Returns once the backend reaches its store again."""
    for _ in range(_PINGS):
        try:
            return await backend.ping()
        except Unavailable:
            await asyncio.sleep(0)
    pytest.fail("the backend did not find back to its store")
