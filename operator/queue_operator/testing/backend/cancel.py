"""CancelJobs."""

import asyncio
from typing import Any, Final

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import CancelRequest, Job
from queue_operator.domain.states import JobState
from queue_operator.testing.breaking import (
    in_a_cancelled_task,
    needs_the_store,
    shape,
    whole_or_not_at_all,
)
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, job_in, running, submitted
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.table import TERMINAL

_AFTER: Final = {
    JobState.INITIAL_PENDING: JobState.UNSCHEDULED,
    JobState.RUNNING: JobState.CANCELLING,
    JobState.FAILED_RETRY: JobState.STOPPED,
    JobState.UNKNOWN_RETRY: JobState.STOPPED,
    JobState.CANCELLING: JobState.CANCELLING,
}


@proves(
    "backend-api.CancelJobs.pre.1",
    "backend-api.CancelJobs.error.2",
    "backend-api.CancelJobs.must.2",
)
async def test_cancel_jobs_cancelled(backend: Contract) -> None:
    job = await submitted(backend)
    await in_a_cancelled_task(lambda: backend.cancel_jobs([], [job.id]))

    async def bring() -> list[Job]:
        return [(await job_in(backend, state))[0] for state in _AFTER]

    async def read(jobs: list[Job]) -> list[object]:
        return [await shape(backend, job) for job in jobs]

    await whole_or_not_at_all(
        bring, lambda jobs: backend.cancel_jobs([], [job.id for job in jobs]), read
    )


@proves("backend-api.CancelJobs.pre.2", "backend-api.CancelJobs.post.1")
async def test_cancel_jobs_by_ids_alone(backend: Contract) -> None:
    job, other = await submitted(backend), await submitted(backend, tags=frozenset({"a"}))
    answer = await backend.cancel_jobs([], [job.id])
    assert answer.cancelled_job_ids == (job.id,)
    assert (await backend.get_job(other.id)).state is JobState.INITIAL_PENDING


@proves("backend-api.CancelJobs.pre.3", "backend-api.CancelJobs.post.1")
async def test_cancel_jobs_by_tags_alone(backend: Contract) -> None:
    tagged = [await submitted(backend, tags=frozenset({"a", "b", f"{n}"})) for n in range(3)]
    half = await submitted(backend, tags=frozenset({"a"}))
    answer = await backend.cancel_jobs(["b", "a"], [])
    assert set(answer.cancelled_job_ids) == {job.id for job in tagged}
    assert (await backend.get_job(half.id)).state is JobState.INITIAL_PENDING
    assert (await backend.cancel_jobs(["nobody"], [])).cancelled_job_ids == ()


@proves("backend-api.CancelJobs.pre.2", "backend-api.CancelJobs.pre.3")
@pytest.mark.parametrize(
    ("field", "tags", "job_ids"),
    [
        ("tags", "a", ["x"]),
        ("tags", [""], ["x"]),
        ("tags", None, ["x"]),
        ("job_ids", ["a"], "x"),
        ("job_ids", ["a"], [""]),
        ("job_ids", ["a"], None),
    ],
)
async def test_cancel_jobs_with_a_bad_selection(
    backend: Contract, field: str, tags: Any, job_ids: Any
) -> None:
    job = await submitted(backend, id="x", tags=frozenset({"a"}))
    with pytest.raises(InvalidArgument) as raised:
        await backend.cancel_jobs(tags, job_ids)
    assert raised.value.field == field
    assert (await backend.get_job(job.id)).state is JobState.INITIAL_PENDING


@proves("backend-api.CancelJobs.pre.4")
async def test_cancel_jobs_of_nothing_is_refused(backend: Contract) -> None:
    job = await submitted(backend)
    with pytest.raises(InvalidArgument):
        await backend.cancel_jobs([], [])
    assert (await backend.get_job(job.id)).state is JobState.INITIAL_PENDING


@proves(
    "backend-api.CancelJobs.post.2",
    "backend-api.CancelJobs.post.3",
    "backend-api.CancelJobs.post.4",
    "backend-api.CancelJobs.post.5",
    "backend-api.CancelJobs.post.6",
)
@pytest.mark.parametrize("state", _AFTER)
async def test_cancel_jobs_cancels_each_state_in_its_way(
    backend: Contract, state: JobState
) -> None:
    job, _ = await job_in(backend, state)
    before = await backend.get_job(job.id)
    answer = await backend.cancel_jobs([], [job.id])
    assert (answer.cancelled_job_ids, answer.unknown_job_ids) == ((job.id,), ())
    after = await backend.get_job(job.id)
    assert after.state is _AFTER[state]
    assert (after == before) == (state is JobState.CANCELLING)
    assert (after.assignee_id, after.assigned_at) == (before.assignee_id, before.assigned_at)
    assert (after.finalized_at is not None) == (after.state in TERMINAL)


@proves(
    "backend-api.CancelJobs.post.7",
    "backend-api.CancelJobs.post.8",
    "backend-api.CancelJobs.error.3",
    "backend-api.CancelJobs.must.3",
    "backend-api.CancelJobs.must.4",
)
async def test_cancel_jobs_tells_apart_what_it_could_not_cancel(backend: Contract) -> None:
    jobs = {state: (await job_in(backend, state))[0] for state in JobState}
    ended = {state: await backend.get_job(jobs[state].id) for state in TERMINAL}
    answer = await backend.cancel_jobs([], [*(job.id for job in jobs.values()), "missing"])
    assert set(answer.cancelled_job_ids) == {jobs[state].id for state in _AFTER}
    assert set(answer.unknown_job_ids) == {*(jobs[state].id for state in TERMINAL), "missing"}
    for state in TERMINAL:
        assert await backend.get_job(jobs[state].id) == ended[state]


@proves("backend-api.CancelJobs.post.8", "backend-api.CancelJobs.error.3")
async def test_cancel_jobs_by_tags_tells_what_had_ended(backend: Contract) -> None:
    tags = frozenset({"a"})
    waiting, ended, done = [await submitted(backend, tags=tags) for _ in range(3)]
    await submitted(backend, tags=tags, namespace="other")
    await backend.cancel_jobs([], [ended.id])
    await backend.delete_jobs([], [ended.id])
    await backend.cancel_jobs([], [done.id])
    before = await backend.get_job(done.id)
    answer = await backend.cancel_jobs(tags, [done.id, ended.id])
    assert answer.cancelled_job_ids == (waiting.id,)
    assert sorted(answer.unknown_job_ids) == sorted([done.id, ended.id])
    again = await backend.cancel_jobs(tags, [])
    assert (again.cancelled_job_ids, set(again.unknown_job_ids)) == ((), {waiting.id, done.id})
    assert await backend.get_job(done.id) == before


@proves("backend-api.CancelJobs.expect.1")
async def test_cancel_jobs_by_tags_cancels_what_waits_for_another(backend: Contract) -> None:
    """As a cancel of each, not as what becomes of it when the other one is."""
    tags = frozenset({"a"})
    parent = await submitted(backend, tags=tags)
    child = await submitted(backend, tags=tags, depends_on=(parent.id,))
    outside = await submitted(backend, depends_on=(parent.id,))
    answer = await backend.cancel_jobs(tags, [], reason="enough")
    assert set(answer.cancelled_job_ids) == {parent.id, child.id}
    assert (await backend.get_job(child.id)).cancel_reason == "enough"
    skipped = await backend.get_job(outside.id)
    assert skipped.state is JobState.UNSCHEDULED
    assert skipped.cancel_reason != "enough"


@proves("backend-api.CancelJobs.post.8")
async def test_cancel_jobs_of_another_namespace_is_out_of_reach(backend: Contract) -> None:
    job, _ = await running(backend)
    answer = await backend.cancel_jobs([], [job.id], namespace="other")
    assert (answer.cancelled_job_ids, answer.unknown_job_ids) == ((), (job.id,))
    assert (await backend.get_job(job.id)).state is JobState.RUNNING


@proves(
    "backend-api.CancelJobs.post.9",
    "backend-api.CancelJobs.error.1",
    "backend-api.AcknowledgeCancellation.error.3",
    "backend-api.MarkWorkerUnresponsive.post.4",
    "backend-api.MarkWorkerUnresponsive.error.1",
)
async def test_cancel_and_acknowledge_without_the_store(backend: Contract, store: Store) -> None:
    jobs = [await submitted(backend), (await running(backend))[0]]
    leaving, _ = await job_in(backend, JobState.CANCELLING)
    before = [await shape(backend, job) for job in (*jobs, leaving)]
    await needs_the_store(
        store,
        backend,
        lambda: backend.cancel_jobs([], [job.id for job in jobs]),
        lambda: backend.acknowledge_cancellation(leaving.id, True),
        lambda: backend.mark_worker_unresponsive("worker-1"),
    )
    assert [await shape(backend, job) for job in (*jobs, leaving)] == before


@proves(
    "backend-api.CancelJobs.effect.1",
    "backend-api.CancelJobs.effect.2",
    "backend-api.CancelJobs.must.2",
)
async def test_cancel_jobs_ends_what_waits_and_asks_what_runs(backend: Contract) -> None:
    waiting = await submitted(backend)
    busy, token = await running(backend)
    answer = await backend.cancel_jobs([], [waiting.id, busy.id])
    assert [request.job_id for request in answer.requests] == [busy.id]
    assert (await backend.get_job(waiting.id)).state is JobState.UNSCHEDULED
    assert (await backend.get_job(busy.id)).state is JobState.CANCELLING
    assert await backend.dequeue_jobs("w", [], 5) == []
    # The slot comes back with the acknowledgement, and not before.
    freed = await backend.stop_job(busy.id, "", token=token)
    assert freed == {"worker-1": 1}


@proves("backend-api.CancelJobs.expect.1", "backend-api.CancelJobs.must.1")
async def test_cancel_jobs_takes_the_union(backend: Contract) -> None:
    tagged = await submitted(backend, tags=frozenset({"a", "b"}))
    half = await submitted(backend, tags=frozenset({"a"}))
    named = await submitted(backend)
    both = await submitted(backend, tags=frozenset({"a", "b", "c"}))
    await submitted(backend, tags=frozenset({"a", "b"}), namespace="other")
    answer = await backend.cancel_jobs(["b", "a"], [named.id, both.id, "missing"])
    assert set(answer.cancelled_job_ids) == {tagged.id, named.id, both.id}
    assert len(answer.cancelled_job_ids) == 3
    assert answer.unknown_job_ids == ("missing",)
    assert (await backend.get_job(half.id)).state is JobState.INITIAL_PENDING


@proves("backend-api.CancelJobs.expect.1")
async def test_cancel_jobs_answers_an_id_given_twice_once(backend: Contract) -> None:
    job = await submitted(backend)
    answer = await backend.cancel_jobs([], [job.id, "missing", job.id, "missing"])
    assert (answer.cancelled_job_ids, answer.unknown_job_ids) == ((job.id,), ("missing",))


@proves(
    "backend-api.CancelJobs.expect.2",
    "backend-api.Invariants.rule.2",
    "backend-api.CancelJobs.must.7",
    "backend-api.GetJobStats.must.3",
)
async def test_cancel_jobs_is_seen_whole_or_not_at_all(store: Store) -> None:
    writer, reader = await store.open(), await store.open()
    jobs = [a_job(tags=frozenset({"all"})) for _ in range(200)]
    await writer.enqueue_jobs(jobs)
    cancelling = asyncio.ensure_future(writer.cancel_jobs(["all"], []))
    seen = set()
    while not cancelling.done():
        seen.add((await reader.get_job_stats(["all"])).pending_jobs)
        await asyncio.sleep(0)
    assert len((await cancelling).cancelled_job_ids) == 200
    assert seen <= {200, 0}
    assert (await reader.get_job_stats(["all"])).stopped_jobs == 200


async def test_a_running_job_gives_a_request_for_its_worker(backend: Contract) -> None:
    job, token = await running(backend)
    answer = await backend.cancel_jobs([], [job.id], reason="changed my mind")
    expected = CancelRequest(job.id, "default", "worker-1", token, False, "changed my mind")
    assert answer.requests == (expected,)


async def test_the_reason_stays_with_a_job_that_waited(backend: Contract) -> None:
    job = await submitted(backend)
    await backend.cancel_jobs([], [job.id], reason="changed my mind")
    assert (await backend.get_job(job.id)).cancel_reason == "changed my mind"


async def test_the_reason_stays_with_a_job_that_ran(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.cancel_jobs([], [job.id], reason="changed my mind")
    await backend.cancel_jobs([], [job.id], force=True)
    assert (await backend.get_job(job.id)).cancel_reason == "changed my mind"
    await backend.acknowledge_cancellation(job.id, True, token=token)
    assert (await backend.get_job(job.id)).cancel_reason == "changed my mind"


async def test_a_force_after_a_cancel_is_pushed_again_and_stays(backend: Contract) -> None:
    job, _ = await running(backend)
    [first] = (await backend.cancel_jobs([], [job.id])).requests
    asked = await backend.get_job(job.id)
    [second] = (await backend.cancel_jobs([], [job.id], force=True)).requests
    forced = await backend.get_job(job.id)
    [third] = (await backend.cancel_jobs([], [job.id])).requests
    assert [first.force, second.force, third.force] == [False, True, True]
    # The force is news, and no transition.
    assert asked.updated_at is not None
    assert forced.updated_at is not None
    assert forced.updated_at > asked.updated_at
    assert (forced.state, forced.transition) == (asked.state, asked.transition)
    assert await backend.get_job(job.id) == forced
