"""Jobs that wait for others."""

import asyncio
from typing import Final

import pytest

from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound, StaleLease
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.driving import a_job, apply, claim, job_in, running, submitted
from queue_operator.testing.store import Contract, Store
from queue_operator.testing.table import TERMINAL

_FAILED: Final = sorted(set(TERMINAL) - {JobState.COMPLETED})
_ANY: Final = DependencyMode.AFTER_ANY


async def _child(
    backend: Contract, *parents: Job, mode: DependencyMode = DependencyMode.AFTER, **fields: object
) -> Job:
    ids = tuple(parent.id for parent in parents)
    return await submitted(backend, depends_on=ids, dependency_mode=mode, **fields)


async def _complete(backend: Contract, job: Job, result: bytes = b"") -> None:
    await backend.complete_job(job.id, result, token=(await claim(backend, job)).token)


async def _waits(backend: Contract, job: Job) -> bool:
    """True while it waits for others, False once it can be claimed."""
    stored = await backend.get_job(job.id)
    assert stored.state is JobState.INITIAL_PENDING
    return stored.waiting_for_dependencies


async def _skipped(backend: Contract, job: Job) -> bool:
    stored = await backend.get_job(job.id)
    if stored.state is not JobState.UNSCHEDULED:
        return False
    assert (stored.reason, stored.waiting_for_dependencies) == (Event.SKIP.value, False)
    assert stored.finalized_at is not None
    return True


async def test_a_child_waits_for_all_its_parents(backend: Contract) -> None:
    first, second = await submitted(backend), await submitted(backend)
    child = await _child(backend, first, second)
    assert await _waits(backend, child)
    await _complete(backend, first)
    assert await _waits(backend, child)
    assert (await backend.get_job_stats([])).pending_jobs == 2
    taken = await backend.dequeue_jobs("w", [], 5)
    assert [job.id for job in taken] == [second.id]
    await backend.complete_job(second.id, b"")
    assert not await _waits(backend, child)
    assert (await claim(backend, child)).job_id == child.id


async def test_jobs_that_wait_hold_up_nobody_behind_them(backend: Contract) -> None:
    parent, _ = await running(backend)
    waiting = [a_job(type="t", depends_on=(parent.id,)) for _ in range(200)]
    free = [a_job(type="t") for _ in range(10)]
    await backend.enqueue_jobs(waiting)
    await backend.enqueue_jobs(free)
    assert [job.id for job in await backend.dequeue_jobs("w", [], 20)] == [job.id for job in free]
    await backend.complete_job(parent.id, b"")
    taken = await backend.dequeue_jobs("w", [], 300)
    assert {job.id for job in taken} == {job.id for job in waiting}


async def test_a_child_of_any_waits_for_one_parent(backend: Contract) -> None:
    first, second, third = [await submitted(backend) for _ in range(3)]
    child = await _child(backend, first, second, third, mode=_ANY)
    await backend.cancel_jobs([], [first.id])
    assert await _waits(backend, child)
    await _complete(backend, third)
    assert not await _waits(backend, child)
    await claim(backend, child)
    # What becomes of the others does not matter any more.
    await backend.cancel_jobs([], [second.id])
    assert (await backend.get_job(child.id)).state is JobState.RUNNING


async def test_a_chained_child_gets_the_output_of_its_last_parent(backend: Contract) -> None:
    first, last = await submitted(backend), await submitted(backend)
    child = await _child(backend, first, last, mode=DependencyMode.CHAIN)
    token = (await claim(backend, last)).token
    outcome = Outcome(
        last.id, Event.COMPLETE, token=token, result=b"[1]", result_content_type="application/json"
    )
    assert (await backend.settle([outcome]))[0].error is None
    await _complete(backend, first, b"not this")
    assignment = await claim(backend, child)
    assert (assignment.parent_result, assignment.parent_content_type) == (
        b"[1]",
        "application/json",
    )


async def test_the_output_outlives_its_parent(backend: Contract) -> None:
    parent = await submitted(backend)
    child = await _child(backend, parent, mode=DependencyMode.CHAIN)
    await _complete(backend, parent, b"kept")
    await backend.delete_jobs([], [parent.id])
    assert (await claim(backend, child)).parent_result == b"kept"


@pytest.mark.parametrize("mode", [DependencyMode.AFTER, DependencyMode.AFTER_ANY])
async def test_only_a_chained_child_gets_an_output(backend: Contract, mode: DependencyMode) -> None:
    parent = await submitted(backend)
    child = await _child(backend, parent, mode=mode)
    await _complete(backend, parent, b"not for the child")
    assert (await claim(backend, child)).parent_result is None


@pytest.mark.parametrize("mode", DependencyMode)
@pytest.mark.parametrize("state", _FAILED)
async def test_a_child_of_a_parent_that_ended_otherwise_is_skipped_at_once(
    backend: Contract, mode: DependencyMode, state: JobState
) -> None:
    parent, _ = await job_in(backend, state)
    child = await _child(backend, parent, mode=mode)
    assert await _skipped(backend, child)


@pytest.mark.parametrize("mode", DependencyMode)
async def test_a_child_of_a_completed_parent_runs_at_once(
    backend: Contract, mode: DependencyMode
) -> None:
    parent, _ = await job_in(backend, JobState.COMPLETED)
    child = await _child(backend, parent, mode=mode)
    assert not await _waits(backend, child)
    chained = mode is DependencyMode.CHAIN
    assert (await claim(backend, child)).parent_result == (b"done" if chained else None)


_ENDINGS: Final = {
    Event.STOP: JobState.STOPPED,
    Event.EXHAUST: JobState.DEAD_LETTER,
    Event.MARK_UNKNOWN_STOPPED: JobState.UNKNOWN_STOPPED,
}


@pytest.mark.parametrize("event", _ENDINGS)
async def test_a_child_whose_parent_fails_is_skipped_and_so_on_down(
    backend: Contract, event: Event
) -> None:
    parent, token = await running(backend)
    child = await _child(backend, parent)
    grandchild = await _child(backend, child)
    cousin = await _child(backend, child, mode=_ANY)
    other = await submitted(backend)
    hopeful = await _child(backend, child, other, mode=_ANY)
    assert (await apply(backend, parent, event, token)).state is _ENDINGS[event]
    for job in (child, grandchild, cousin):
        assert await _skipped(backend, job)
    assert await _waits(backend, hopeful)


async def test_a_cancelled_child_takes_its_children_with_it(backend: Contract) -> None:
    parent = await submitted(backend)
    child = await _child(backend, parent)
    grandchild = await _child(backend, child)
    await backend.cancel_jobs([], [child.id])
    assert (await backend.get_job(child.id)).state is JobState.UNSCHEDULED
    assert await _skipped(backend, grandchild)
    assert (await backend.get_job(parent.id)).state is JobState.INITIAL_PENDING


async def test_a_family_cancelled_in_one_call_is_cancelled_and_not_skipped(
    backend: Contract,
) -> None:
    parent = await submitted(backend)
    child = await _child(backend, parent)
    other = await _child(backend, parent)
    answer = await backend.cancel_jobs([], [parent.id, child.id], reason="enough")
    assert set(answer.cancelled_job_ids) == {parent.id, child.id}
    stored = await backend.get_job(child.id)
    assert (stored.reason, stored.cancel_reason) == (Event.CANCEL.value, "enough")
    assert await _skipped(backend, other)


async def test_waiting_for_others_is_no_queue_latency(backend: Contract) -> None:
    parent = await submitted(backend)
    child = await _child(backend, parent)
    submitted_at = (await backend.get_job(child.id)).eligible_at
    await _complete(backend, parent)
    done_at = (await backend.get_job(parent.id)).finalized_at
    eligible_at = (await backend.get_job(child.id)).eligible_at
    assert submitted_at is not None
    assert done_at is not None
    assert eligible_at is not None
    assert submitted_at < done_at <= eligible_at


async def test_a_child_of_any_is_skipped_when_the_last_parent_fails(backend: Contract) -> None:
    parents = [await submitted(backend) for _ in range(3)]
    child = await _child(backend, *parents, mode=_ANY)
    for parent in parents[:2]:
        await backend.cancel_jobs([], [parent.id])
        assert await _waits(backend, child)
    await backend.cancel_jobs([], [parents[2].id])
    assert await _skipped(backend, child)


async def test_a_failure_that_is_retried_keeps_the_child_waiting(backend: Contract) -> None:
    parent, token = await running(backend, max_attempts=2)
    child = await _child(backend, parent)
    await backend.fail_job(parent.id, "boom", token=token)
    assert await _waits(backend, child)
    await _complete(backend, parent)
    assert not await _waits(backend, child)


async def test_a_parent_retried_by_hand_counts_again_for_who_still_waits(
    backend: Contract,
) -> None:
    first, token = await running(backend, max_attempts=1)
    second = await submitted(backend)
    patient = await _child(backend, first, second, mode=_ANY)
    gone = await _child(backend, first)
    await backend.fail_job(first.id, "boom", token=token)
    assert await _skipped(backend, gone)
    assert (await apply(backend, first, Event.RETRY_NOW)).error is None
    await backend.cancel_jobs([], [second.id])
    assert await _waits(backend, patient)
    await _complete(backend, first)
    assert not await _waits(backend, patient)
    # Only those that still wait are touched.
    assert await _skipped(backend, gone)


async def test_a_late_success_counts_for_who_still_waits(backend: Contract) -> None:
    first, token = await job_in(backend, JobState.UNKNOWN_STOPPED)
    second = await submitted(backend)
    child = await _child(backend, first, second, mode=_ANY)
    assert await _waits(backend, child)
    await backend.complete_job(first.id, b"late", token=token)
    assert not await _waits(backend, child)


async def test_a_skipped_job_retried_by_hand_runs_without_its_parents(backend: Contract) -> None:
    parent, _ = await job_in(backend, JobState.STOPPED)
    child = await _child(backend, parent)
    assert await _skipped(backend, child)
    assert (await apply(backend, child, Event.RETRY_NOW)).error is None
    back = await backend.get_job(child.id)
    assert (back.state, back.waiting_for_dependencies) == (JobState.FAILED_RETRY, False)
    await _complete(backend, child)


async def test_a_delay_holds_beside_the_parents(backend: Contract, store: Store) -> None:
    parent = await submitted(backend)
    child = await _child(backend, parent, delay_s=500.0)
    await _complete(backend, parent)
    assert not await _waits(backend, child)
    assert await backend.dequeue_jobs("w", [], 5) == []
    await store.age(501.0)
    assert [job.id for job in await backend.dequeue_jobs("w", [], 5)] == [child.id]


async def test_a_parent_must_exist_in_the_namespace(backend: Contract) -> None:
    here = await submitted(backend)
    elsewhere = await submitted(backend, namespace="elsewhere")
    for missing in ("nobody", elsewhere.id):
        orphan = a_job(depends_on=(here.id, missing))
        with pytest.raises(InvalidArgument) as raised:
            await backend.enqueue_job(orphan)
        assert raised.value.field == "depends_on[1]"
        with pytest.raises(InvalidArgument) as in_batch:
            await backend.enqueue_jobs([a_job(), orphan])
        assert in_batch.value.field == "jobs[1].depends_on[1]"
        with pytest.raises(JobNotFound):
            await backend.get_job(orphan.id)
    assert (await backend.get_job_stats([])).total_jobs == 1


async def test_a_deleted_parent_does_not_exist(backend: Contract) -> None:
    parent, _ = await job_in(backend, JobState.COMPLETED)
    await backend.delete_jobs([], [parent.id])
    with pytest.raises(InvalidArgument, match="depends_on"):
        await _child(backend, parent)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_parents_may_be_anywhere_in_the_same_batch(
    backend: Contract, order: tuple[int, int, int]
) -> None:
    parent = a_job()
    child = a_job(depends_on=(parent.id,))
    grandchild = a_job(depends_on=(child.id, parent.id))
    family = [parent, child, grandchild]
    await backend.enqueue_jobs([family[n] for n in order])
    for job in family:
        taken = await backend.dequeue_jobs("w", [], 5)
        assert [one.id for one in taken] == [job.id]
        await backend.complete_job(job.id, b"")


@pytest.mark.parametrize("length", [2, 3, 50])
async def test_a_circle_is_refused_and_nothing_is_stored(backend: Contract, length: int) -> None:
    names = [f"circle-{n}" for n in range(length)]
    jobs = [a_job(id=name, depends_on=(names[n - 1],)) for n, name in enumerate(names)]
    with pytest.raises(InvalidArgument) as raised:
        await backend.enqueue_jobs([a_job(), *jobs])
    assert raised.value.field.endswith("].depends_on")
    assert (await backend.get_job_stats([])).total_jobs == 0


async def test_all_of_a_circle_are_refused_and_who_waits_for_them_lacks_a_parent(
    backend: Contract,
) -> None:
    circle = [a_job(id=f"c-{n}", depends_on=(f"c-{(n + 1) % 3}",)) for n in range(3)]
    line = [a_job(id=f"l-{n}", depends_on=(f"l-{n - 1}" if n else "c-0",)) for n in range(200)]
    fine = a_job()
    answers = await backend.submit([*circle, *line, fine], atomic=False)
    told = [str(answer.error) for answer in answers]
    assert told[:3] == [
        f"jobs[{n}].depends_on: job 'c-{n}' waits for itself through the batch" for n in range(3)
    ]
    assert told[3:5] == [
        "jobs[3].depends_on[0]: there is no job 'c-0' to wait for",
        "jobs[4].depends_on[0]: there is no job 'l-0' to wait for",
    ]
    assert all(isinstance(answer.error, InvalidArgument) for answer in answers[:-1])
    assert answers[-1].error is None
    assert (await backend.get_job_stats([])).total_jobs == 1


async def test_a_child_of_a_rejected_parent_is_rejected_too(backend: Contract) -> None:
    parent = a_job(type="")
    child = a_job(depends_on=(parent.id,))
    grandchild = a_job(depends_on=(child.id,))
    fine = a_job()
    answers = await backend.submit([grandchild, child, parent, fine], atomic=False)
    assert [answer.error is None for answer in answers] == [False, False, False, True]
    assert (await backend.get_job_stats([])).total_jobs == 1


async def test_a_thousand_parents(backend: Contract) -> None:
    parents = [a_job(type="parent") for _ in range(1000)]
    await backend.enqueue_jobs(parents)
    child = await _child(backend, *parents)
    assert (await backend.get_job(child.id)).depends_on == tuple(job.id for job in parents)
    taken = await backend.dequeue_jobs("w", [], 2000)
    assert len(taken) == 1000
    done = [Outcome(job.id, Event.COMPLETE, result=b"") for job in taken]
    await backend.settle(done[:-1])
    assert await _waits(backend, child)
    await backend.settle(done[-1:])
    assert not await _waits(backend, child)


async def test_a_family_settled_in_one_batch(backend: Contract) -> None:
    parents = [await running(backend) for _ in range(3)]
    child = await _child(backend, *(job for job, _ in parents))
    doomed = await _child(backend, parents[0][0], parents[2][0])
    outcomes = [Outcome(job.id, Event.COMPLETE, token=token) for job, token in parents[:2]]
    outcomes.append(Outcome(parents[2][0].id, Event.STOP, token=parents[2][1]))
    assert all(answer.error is None for answer in await backend.settle(outcomes))
    assert await _skipped(backend, child)
    assert await _skipped(backend, doomed)


async def test_outcomes_of_a_family_apply_in_their_order(backend: Contract) -> None:
    parent, token = await running(backend)
    child = await _child(backend, parent)
    outcomes = [
        Outcome(parent.id, Event.STOP, token=token[::-1]),
        Outcome(parent.id, Event.STOP, token=token),
        Outcome(child.id, Event.CANCEL),
    ]
    stale, stopped, late = await backend.settle(outcomes)
    assert isinstance(stale.error, StaleLease)
    assert stopped.error is None
    assert isinstance(late.error, InvalidTransition)
    assert await _skipped(backend, child)


async def test_a_child_submitted_while_its_parent_ends_is_never_stuck(store: Store) -> None:
    one, two = await store.open(), await store.open()
    for event in (Event.COMPLETE, Event.STOP) * 10:
        parent, token = await running(one)
        child = a_job(depends_on=(parent.id,))
        await asyncio.gather(apply(one, parent, event, token), two.enqueue_job(child))
        if event is Event.COMPLETE:
            assert not await _waits(one, child)
        else:
            assert await _skipped(one, child)


async def test_parents_that_end_at_once_let_the_child_go_once(store: Store) -> None:
    backends = [await store.open() for _ in range(4)]
    for _ in range(10):
        parents = [await running(backends[0]) for _ in range(4)]
        child = await _child(backends[0], *(job for job, _ in parents))
        await asyncio.gather(
            *(
                apply(backend, job, Event.COMPLETE, token)
                for backend, (job, token) in zip(backends, parents, strict=True)
            )
        )
        assert not await _waits(backends[0], child)
        await claim(backends[0], child)
