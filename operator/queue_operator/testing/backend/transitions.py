"""Every row of the state table, and every pair that is in no row."""

import pytest

from queue_operator.domain.errors import InvalidArgument, InvalidTransition
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import apply, claim, happens, job_in, running, skipped
from queue_operator.testing.store import Contract
from queue_operator.testing.table import SLOT_HOLDING, TARGET, TERMINAL, frees_slot

# UNSCHEDULED may be retried only when SKIP made it so, and a second CANCEL is a no-op.
_SPECIAL = {(Event.RETRY_NOW, JobState.UNSCHEDULED), (Event.CANCEL, JobState.CANCELLING)}
_LEGAL = sorted(set(TARGET) - _SPECIAL)


@proves("backend-api.Invariants.rule.3", "backend-api.TestingRequirements.must.1")
@pytest.mark.parametrize(("event", "state"), _LEGAL, ids=lambda value: value.value)
async def test_a_legal_event_leads_to_the_target_of_its_row(
    backend: Contract, event: Event, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    before = await backend.get_job(job.id)
    assert await happens(backend, job, event, token)
    after = await backend.get_job(job.id)
    assert after.state is TARGET[event, state]
    assert after.transition == before.transition + 1
    assert (after.finalized_at is not None) == (after.state in TERMINAL)


@proves("backend-api.Invariants.rule.8", "backend-api.TestingRequirements.must.8")
@pytest.mark.parametrize(("event", "state"), _LEGAL, ids=lambda value: value.value)
async def test_the_slot_is_freed_exactly_when_the_table_says_so(
    backend: Contract, event: Event, state: JobState
) -> None:
    if event in (Event.CLAIM, Event.CANCEL):
        assert not frees_slot(event, state)
        return
    job, token = await job_in(backend, state)
    answer = await apply(backend, job, event, token)
    expected = "worker-1" if frees_slot(event, state) else None
    assert answer.freed_assignee_id == expected


@proves(
    "backend-api.Invariants.rule.3",
    "backend-api.ErrorConditions.error.2",
    "backend-api.StopJobWithRetry.must.4",
    "backend-api.TestingRequirements.must.1",
)
@pytest.mark.parametrize("event", Event, ids=lambda value: value.value)
async def test_an_event_that_the_state_does_not_allow_changes_nothing(
    backend: Contract, event: Event
) -> None:
    tried = 0
    for state in JobState:
        if (event, state) in TARGET or (event, state) in _SPECIAL:
            continue
        job, _ = await job_in(backend, state)
        before = await backend.get_job(job.id)
        # Without a token, for with one it could be a repeat of what led here.
        assert not await happens(backend, job, event, None), state
        assert await backend.get_job(job.id) == before
        tried += 1
    assert tried > 0


async def test_only_a_skipped_job_may_be_retried_from_unscheduled(backend: Contract) -> None:
    job, _ = await skipped(backend)
    assert await happens(backend, job, Event.RETRY_NOW, None)
    assert (await backend.get_job(job.id)).state is JobState.FAILED_RETRY
    cancelled, _ = await job_in(backend, JobState.UNSCHEDULED)
    assert not await happens(backend, cancelled, Event.RETRY_NOW, None)
    assert (await backend.get_job(cancelled.id)).state is JobState.UNSCHEDULED


async def test_cancelling_twice_changes_nothing_and_counts_as_cancelled(backend: Contract) -> None:
    job, _ = await job_in(backend, JobState.CANCELLING)
    before = await backend.get_job(job.id)
    assert await happens(backend, job, Event.CANCEL, None)
    assert await backend.get_job(job.id) == before


async def test_a_claim_cannot_be_settled(backend: Contract) -> None:
    job, _ = await job_in(backend, JobState.INITIAL_PENDING)
    answer = await apply(backend, job, Event.CLAIM)
    assert isinstance(answer.error, InvalidArgument)
    assert (await backend.get_job(job.id)).state is JobState.INITIAL_PENDING


async def test_a_retry_by_hand_gives_another_attempt_and_clears_the_end(backend: Contract) -> None:
    job, token = await running(backend, max_attempts=1)
    await backend.fail_job(job.id, "boom", token=token)
    dead = await backend.get_job(job.id)
    assert (dead.state, dead.retry_count) == (JobState.DEAD_LETTER, 0)
    assert await happens(backend, job, Event.RETRY_NOW, None)
    back = await backend.get_job(job.id)
    assert (back.state, back.max_attempts, back.retry_count) == (JobState.FAILED_RETRY, 2, 0)
    assert (back.finalized_at, back.result, back.reason) == (None, None, "")
    assert await happens(backend, job, Event.CLAIM, None)
    # The old token is void.
    assert not (await apply(backend, job, Event.COMPLETE, token)).freed_assignee_id


async def test_only_a_retry_by_hand_drops_a_result(backend: Contract) -> None:
    job, _ = await running(backend)
    await backend.update_job_status(job.id, JobState.FAILED_RETRY, b"half")
    await claim(backend, job)
    await backend.mark_worker_unresponsive("worker-1")
    assert (await backend.get_job(job.id)).result == b"half"
    await backend.fail_job(job.id, "boom")
    assert (await backend.get_job(job.id)).result == b"half"
    assert await happens(backend, job, Event.RETRY_NOW, None)
    assert (await backend.get_job(job.id)).result is None


@proves("backend-api.MarkWorkerUnresponsive.must.2")
@pytest.mark.parametrize("state", SLOT_HOLDING)
async def test_losing_a_worker_moves_its_jobs_by_state(backend: Contract, state: JobState) -> None:
    job, _ = await job_in(backend, state)
    assert await backend.mark_worker_unresponsive("worker-1") == {"worker-1": 1}
    assert (await backend.get_job(job.id)).state is TARGET[Event.LOSE, state]
    assert await backend.mark_worker_unresponsive("worker-1") == {}


@proves("backend-api.ErrorConditions.error.2")
async def test_the_named_calls_raise_for_an_illegal_state(backend: Contract) -> None:
    job, _ = await job_in(backend, JobState.STOPPED)
    calls = [
        backend.complete_job(job.id, b""),
        backend.fail_job(job.id, "boom"),
        backend.stop_job(job.id, ""),
        backend.stop_job_with_retry(job.id, ""),
        backend.mark_job_unknown_stopped(job.id, ""),
        backend.acknowledge_cancellation(job.id, True),
        backend.acknowledge_cancellation(job.id, False),
    ]
    for call in calls:
        with pytest.raises(InvalidTransition):
            await call
    unknown, _ = await job_in(backend, JobState.UNKNOWN_STOPPED)
    assert await backend.mark_job_unknown_stopped(unknown.id, "again") == {}
