"""CancelJobs and AcknowledgeCancellation."""

import pytest

from queue_operator.backends.protocol import Backend
from queue_operator.domain.errors import InvalidArgument, InvalidTransition
from queue_operator.domain.job import CancelRequest
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import TERMINAL, WHILE_CANCELLING, Event, JobState
from queue_operator.testing.driving import apply, job_in, running, settle, submitted

AFTER = {
    JobState.INITIAL_PENDING: JobState.UNSCHEDULED,
    JobState.RUNNING: JobState.CANCELLING,
    JobState.FAILED_RETRY: JobState.STOPPED,
    JobState.UNKNOWN_RETRY: JobState.STOPPED,
    JobState.CANCELLING: JobState.CANCELLING,
}


@pytest.mark.parametrize("state", JobState)
async def test_each_state_is_cancelled_in_its_way(backend: Backend, state: JobState) -> None:
    job, _ = await job_in(backend, state)
    answer = await backend.cancel_jobs([], [job.id])
    if state in TERMINAL:
        assert (answer.cancelled_job_ids, answer.unknown_job_ids) == ((), (job.id,))
    else:
        assert (answer.cancelled_job_ids, answer.unknown_job_ids) == ((job.id,), ())
    assert (await backend.get_job(job.id)).state is AFTER.get(state, state)
    assert bool(answer.requests) == (AFTER.get(state) is JobState.CANCELLING)


async def test_a_running_job_gives_a_request_for_its_worker(backend: Backend) -> None:
    job, token = await running(backend)
    answer = await backend.cancel_jobs([], [job.id], reason="changed my mind")
    expected = CancelRequest(job.id, "default", "worker-1", token, False, "changed my mind")
    assert answer.requests == (expected,)


async def test_the_reason_stays_with_a_job_that_waited(backend: Backend) -> None:
    job = await submitted(backend)
    await backend.cancel_jobs([], [job.id], reason="changed my mind")
    assert (await backend.get_job(job.id)).cancel_reason == "changed my mind"


async def test_the_reason_stays_with_a_job_that_ran(backend: Backend) -> None:
    job, token = await running(backend)
    await backend.cancel_jobs([], [job.id], reason="changed my mind")
    await backend.cancel_jobs([], [job.id], force=True)
    assert (await backend.get_job(job.id)).cancel_reason == "changed my mind"
    await backend.acknowledge_cancellation(job.id, True, token=token)
    assert (await backend.get_job(job.id)).cancel_reason == "changed my mind"


async def test_a_force_after_a_cancel_is_pushed_again_and_stays(backend: Backend) -> None:
    job, _ = await running(backend)
    [first] = (await backend.cancel_jobs([], [job.id])).requests
    [second] = (await backend.cancel_jobs([], [job.id], force=True)).requests
    [third] = (await backend.cancel_jobs([], [job.id])).requests
    assert [first.force, second.force, third.force] == [False, True, True]


async def test_ids_and_tags_select_the_union(backend: Backend) -> None:
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


async def test_an_id_given_twice_is_answered_once(backend: Backend) -> None:
    job = await submitted(backend)
    answer = await backend.cancel_jobs([], [job.id, "missing", job.id, "missing"])
    assert (answer.cancelled_job_ids, answer.unknown_job_ids) == ((job.id,), ("missing",))


async def test_the_ids_alone_count_when_there_are_no_tags(backend: Backend) -> None:
    job, other = await submitted(backend), await submitted(backend)
    await backend.cancel_jobs([], [job.id])
    assert (await backend.get_job(other.id)).state is JobState.INITIAL_PENDING


async def test_selecting_nothing_is_refused(backend: Backend) -> None:
    job = await submitted(backend)
    with pytest.raises(InvalidArgument):
        await backend.cancel_jobs([], [])
    assert (await backend.get_job(job.id)).state is JobState.INITIAL_PENDING


async def test_another_namespace_is_out_of_reach(backend: Backend) -> None:
    job, _ = await running(backend)
    answer = await backend.cancel_jobs([], [job.id], namespace="other")
    assert (answer.cancelled_job_ids, answer.unknown_job_ids) == ((), (job.id,))
    assert (await backend.get_job(job.id)).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("was_executing", "after"), [(True, JobState.STOPPED), (False, JobState.UNKNOWN_STOPPED)]
)
async def test_the_worker_acknowledges(
    backend: Backend, was_executing: bool, after: JobState
) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    await backend.acknowledge_cancellation(job.id, was_executing, token=token)
    stored = await backend.get_job(job.id)
    assert stored.state is after
    assert (stored.assignee_id, stored.finalized_at is not None) == ("worker-1", True)


@pytest.mark.parametrize("event", sorted(WHILE_CANCELLING))
async def test_what_a_worker_says_while_it_is_being_cancelled(
    backend: Backend, event: Event
) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    outcome = Outcome(job.id, event, token=token, error=ErrorInfo("x"))
    # The library's call is an error; a worker cannot know.
    assert isinstance((await settle(backend, outcome)).error, InvalidTransition)
    outcome = Outcome(job.id, event, token=token, error=ErrorInfo("x"), worker_plane=True)
    answer = await settle(backend, outcome)
    assert (answer.state, answer.freed_assignee_id) == (JobState.STOPPED, "worker-1")
    stored = await backend.get_job(job.id)
    counted = WHILE_CANCELLING[event] is Event.STOP_WITH_RETRY
    assert stored.retry_count == int(counted)
    assert (stored.last_retry_at is not None) == counted


async def test_a_job_that_was_done_before_the_cancel_arrived_is_completed(
    backend: Backend,
) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    answer = await apply(backend, job, Event.COMPLETE, token)
    assert (answer.state, answer.freed_assignee_id) == (JobState.COMPLETED, "worker-1")
    assert (await backend.get_job(job.id)).result == b"done"


async def test_a_cancel_can_be_settled_like_an_outcome(backend: Backend) -> None:
    job, _ = await running(backend)
    assert (await apply(backend, job, Event.CANCEL)).state is JobState.CANCELLING
    assert (await backend.get_job(job.id)).state is JobState.CANCELLING
