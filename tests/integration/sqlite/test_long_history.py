"""What is asked of many finished jobs takes no more memory than the answer."""

import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.testing.sqlite import SqliteStore

JOBS = 2_000
DAY_S = 86_400.0
# An object for a job takes some kilobytes, and an id of nine letters and its place in a list 66.
TOLD_BYTES = 300


async def finish(backend: SqliteBackend, store: SqliteStore, jobs: int) -> None:
    made = [Job(id=f"job-{n:05}", type="t", tags=frozenset({"a", "b"})) for n in range(jobs)]
    await backend.enqueue_jobs(made)
    await backend.cancel_jobs(["a"], [])
    await store.age(DAY_S)


async def peak_of(call: Callable[[], Awaitable[object]]) -> int:
    tracemalloc.start()
    try:
        await call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_a_cancel_by_tags_keeps_of_what_has_ended_the_ids(
    backend: SqliteBackend, store: SqliteStore
) -> None:
    await finish(backend, store, JOBS)
    waiting = Job(id="waiting", type="t", tags=frozenset({"a", "b"}))
    await backend.enqueue_job(waiting)

    async def cancel() -> None:
        answer = await backend.cancel_jobs(["b", "a"], [])
        assert answer.cancelled_job_ids == (waiting.id,)
        assert len(answer.unknown_job_ids) == JOBS

    assert await peak_of(cancel) < TOLD_BYTES * JOBS


async def test_a_delete_by_tags_is_refused_before_what_has_ended_is_read(
    backend: SqliteBackend, store: SqliteStore
) -> None:
    await finish(backend, store, JOBS)
    await backend.enqueue_job(Job(id="waiting", type="t", tags=frozenset({"a"})))

    async def delete() -> None:
        with suppress(InvalidTransition):
            await backend.delete_jobs(["a"], [])

    assert await peak_of(delete) < 500_000
    assert (await backend.get_job_stats(["a"])).total_jobs == JOBS + 1


@pytest.mark.parametrize("call", ["delete", "cleanup"])
async def test_what_deletes_many_has_a_part_of_them_in_memory(
    backend: SqliteBackend, store: SqliteStore, call: str
) -> None:
    peaks = []
    for jobs in (1_000, 2_500):
        await (finish if call == "delete" else complete)(backend, store, jobs)

        async def delete(expected: int = jobs) -> None:
            if call == "delete":
                assert await backend.delete_jobs(["b"], []) == expected
            else:
                assert await backend.cleanup_expired_jobs(1.0) == expected

        peaks.append(await peak_of(delete))
    assert peaks[1] < 1.3 * peaks[0]


async def complete(backend: SqliteBackend, store: SqliteStore, jobs: int) -> None:
    await backend.enqueue_jobs([Job(id=f"job-{n}", type="t") for n in range(jobs)])
    taken = await backend.dequeue_jobs("w", [], jobs)
    await backend.settle([Outcome(job.id, Event.COMPLETE, result=b"") for job in taken])
    await store.age(DAY_S)
