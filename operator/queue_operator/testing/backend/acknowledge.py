"""AcknowledgeCancellation, and what else a worker says of a job that is being cancelled."""

from typing import Final

import pytest

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, JobNotFound
from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.breaking import job_call_cancelled
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import apply, job_in, running, settle, submitted
from queue_operator.testing.store import Contract

_BOTH: Final = [(True, JobState.STOPPED), (False, JobState.UNKNOWN_STOPPED)]


@proves(
    "backend-api.AcknowledgeCancellation.pre.1",
    "backend-api.AcknowledgeCancellation.error.4",
    "backend-api.AcknowledgeCancellation.must.1",
)
@pytest.mark.parametrize("was_executing", [True, False])
async def test_acknowledge_cancellation_cancelled(backend: Contract, was_executing: bool) -> None:
    await job_call_cancelled(
        backend,
        JobState.CANCELLING,
        lambda job: backend.acknowledge_cancellation(job.id, was_executing),
    )


@proves("backend-api.AcknowledgeCancellation.pre.2")
async def test_acknowledge_cancellation_without_an_id(backend: Contract) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await backend.acknowledge_cancellation("", True)
    assert raised.value.field == "job_id"


@proves("backend-api.AcknowledgeCancellation.pre.3", "backend-api.AcknowledgeCancellation.error.1")
async def test_acknowledge_cancellation_that_is_not_stored(backend: Contract) -> None:
    job = await submitted(backend, namespace="here")
    await backend.dequeue_jobs("w", [], 1, namespace="here")
    await backend.cancel_jobs([], [job.id], namespace="here")
    for job_id, namespace in (("missing", "here"), (job.id, "default")):
        with pytest.raises(JobNotFound):
            await backend.acknowledge_cancellation(job_id, True, namespace=namespace)
    await backend.acknowledge_cancellation(job.id, True, namespace="here")


@proves(
    "backend-api.AcknowledgeCancellation.pre.4",
    "backend-api.AcknowledgeCancellation.post.6",
    "backend-api.AcknowledgeCancellation.error.2",
    "backend-api.AcknowledgeCancellation.must.2",
    "backend-api.AcknowledgeCancellation.must.4",
)
@pytest.mark.parametrize("was_executing", [True, False])
@pytest.mark.parametrize("state", sorted(set(JobState) - {JobState.CANCELLING}))
async def test_acknowledge_cancellation_in_another_state_changes_nothing(
    backend: Contract, state: JobState, was_executing: bool
) -> None:
    job, _ = await job_in(backend, state)
    before = await backend.get_job(job.id)
    with pytest.raises(InvalidTransition) as raised:
        await backend.acknowledge_cancellation(job.id, was_executing)
    assert (raised.value.job_id, raised.value.state) == (job.id, state)
    assert await backend.get_job(job.id) == before


@proves(
    "backend-api.AcknowledgeCancellation.post.1",
    "backend-api.AcknowledgeCancellation.post.2",
    "backend-api.AcknowledgeCancellation.post.5",
    "backend-api.AcknowledgeCancellation.move.1",
    "backend-api.AcknowledgeCancellation.must.3",
)
async def test_acknowledge_cancellation_of_what_was_executing(backend: Contract) -> None:
    await _acknowledged(backend, True, JobState.STOPPED)


@proves(
    "backend-api.AcknowledgeCancellation.post.3",
    "backend-api.AcknowledgeCancellation.post.4",
    "backend-api.AcknowledgeCancellation.post.5",
    "backend-api.AcknowledgeCancellation.move.2",
    "backend-api.AcknowledgeCancellation.must.3",
)
async def test_acknowledge_cancellation_of_what_was_not(backend: Contract) -> None:
    await _acknowledged(backend, False, JobState.UNKNOWN_STOPPED)


async def _acknowledged(backend: Contract, was_executing: bool, state: JobState) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    before = await backend.get_job(job.id)
    assert before.finalized_at is None
    await backend.acknowledge_cancellation(job.id, was_executing, token=token)
    after = await backend.get_job(job.id)
    assert after.state is state
    assert after.finalized_at == after.updated_at
    assert before.assigned_at is not None
    assert after.finalized_at is not None
    assert after.finalized_at > before.assigned_at
    assert (after.assignee_id, after.assigned_at) == (before.assignee_id, before.assigned_at)


@proves(
    "backend-api.AcknowledgeCancellation.effect.1", "backend-api.AcknowledgeCancellation.must.1"
)
@pytest.mark.parametrize(("was_executing", "state"), _BOTH)
async def test_acknowledge_cancellation_ends_the_job(
    backend: Contract, was_executing: bool, state: JobState
) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    await backend.acknowledge_cancellation(job.id, was_executing, token=token)
    assert await backend.dequeue_jobs("w", [], 5) == []
    assert (await backend.cancel_jobs([], [job.id])).unknown_job_ids == (job.id,)
    assert (await backend.get_job_stats([])).by_state[state] == 1


@proves("backend-api.AcknowledgeCancellation.effect.2", "backend-api.Invariants.rule.8")
@pytest.mark.parametrize(
    ("event", "freed"), [(Event.ACK_EXECUTING, "worker-1"), (Event.ACK_UNKNOWN, None)]
)
async def test_acknowledge_cancellation_frees_the_slot_if_it_was_executing(
    backend: Contract, event: Event, freed: str | None
) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    # The call gives nothing back; the same as an outcome tells of the slot.
    assert (await apply(backend, job, event, token)).freed_assignee_id == freed
    assert await backend.mark_worker_unresponsive("worker-1") == {}


@pytest.mark.parametrize(
    "event", [Event.FAIL, Event.EXHAUST, Event.HAND_BACK, Event.RELEASE], ids=lambda e: e.value
)
async def test_what_a_worker_says_while_it_is_being_cancelled(
    backend: Contract, event: Event
) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    outcome = Outcome(job.id, event, token=token, error=ErrorInfo("x"))
    # The library's call is an error; a worker cannot know.
    assert isinstance((await settle(backend, outcome)).error, InvalidTransition)
    outcome = Outcome(job.id, event, token=token, error=ErrorInfo("x"), worker_plane=True)
    answer = await settle(backend, outcome)
    assert (answer.state, answer.freed_assignee_id) == (JobState.STOPPED, "worker-1")


async def test_a_job_that_was_done_before_the_cancel_arrived_is_completed(
    backend: Contract,
) -> None:
    job, token = await job_in(backend, JobState.CANCELLING)
    answer = await apply(backend, job, Event.COMPLETE, token)
    assert (answer.state, answer.freed_assignee_id) == (JobState.COMPLETED, "worker-1")
    assert (await backend.get_job(job.id)).result == b"done"


async def test_a_cancel_can_be_settled_like_an_outcome(backend: Contract) -> None:
    job, _ = await running(backend)
    assert (await apply(backend, job, Event.CANCEL)).state is JobState.CANCELLING
    assert (await backend.get_job(job.id)).state is JobState.CANCELLING
