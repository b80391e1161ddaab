"""What holds for all methods together."""

from itertools import pairwise
from typing import Final

import pytest

from queue_operator.domain.outcome import ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, apply, claim, happens, job_in, running, submitted
from queue_operator.testing.store import Contract
from queue_operator.testing.table import SLOT_HOLDING, TARGET

_OUTCOMES: Final = (
    Event.COMPLETE,
    Event.FAIL,
    Event.EXHAUST,
    Event.STOP,
    Event.STOP_WITH_RETRY,
    Event.MARK_UNKNOWN_STOPPED,
    Event.ACK_EXECUTING,
    Event.ACK_UNKNOWN,
    Event.LOSE,
    Event.RELEASE,
    Event.HAND_BACK,
)


@proves("backend-api.FreedAssigneeIDs.rule.1", "backend-api.FreedAssigneeIDs.rule.4")
@pytest.mark.parametrize("assignee", ["w", "worker ü/1", "x" * 255])
async def test_freed_names_the_assignee(backend: Contract, assignee: str) -> None:
    job = await submitted(backend)
    await backend.dequeue_jobs(assignee, [], 1)
    assert await backend.fail_job(job.id, "boom") == {assignee: 1}
    await backend.dequeue_jobs("another", [], 1)
    assert await backend.complete_job(job.id, b"") == {"another": 1}


@proves("backend-api.FreedAssigneeIDs.rule.2", "backend-api.FreedAssigneeIDs.rule.5")
async def test_freed_counts_the_jobs_of_each_assignee(backend: Contract) -> None:
    for name, count in (("a", 3), ("b", 2)):
        await backend.enqueue_jobs([a_job() for _ in range(count)])
        assert len(await backend.dequeue_jobs(name, [], count)) == count
    await submitted(backend)
    assert await backend.reset_running_jobs() == {"a": 3, "b": 2}


@proves("backend-api.FreedAssigneeIDs.rule.3", "backend-api.FreedAssigneeIDs.rule.4")
async def test_freed_is_empty_where_no_slot_was_taken(backend: Contract) -> None:
    lost, token = await job_in(backend, JobState.UNKNOWN_RETRY)
    given_up, late = await job_in(backend, JobState.UNKNOWN_STOPPED)
    assert await backend.fail_job(lost.id, "boom", token=token) == {}
    assert await backend.complete_job(given_up.id, b"", token=late) == {}
    assert await backend.mark_worker_unresponsive("nobody") == {}
    assert await backend.reset_running_jobs() == {}


@proves("backend-api.ObservableStateChanges.effect.2", "backend-api.TestingRequirements.must.8")
async def test_freed_maps_add_up_to_what_was_taken(backend: Contract) -> None:
    jobs = [await running(backend) for _ in range(4)]
    (a, token_a), (b, token_b), (c, token_c), (d, _) = jobs
    freed = [
        await backend.complete_job(a.id, b"", token=token_a),
        await backend.fail_job(b.id, "boom", token=token_b),
        await backend.stop_job(c.id, "", token=token_c),
        await backend.mark_worker_unresponsive("worker-1"),
        await backend.complete_job(d.id, b""),
    ]
    assert freed == [{"worker-1": 1}] * 4 + [{}]


@proves("backend-api.Invariants.rule.7")
@pytest.mark.parametrize("state", SLOT_HOLDING)
@pytest.mark.parametrize("event", _OUTCOMES)
async def test_the_assignee_is_never_cleared(
    backend: Contract, event: Event, state: JobState
) -> None:
    job, token = await job_in(backend, state)
    before = await backend.get_job(job.id)
    assert (before.assignee_id, before.assigned_at is not None) == ("worker-1", True)
    assert await happens(backend, job, event, token) == ((event, state) in TARGET)
    after = await backend.get_job(job.id)
    assert (after.assignee_id, after.assigned_at) == (before.assignee_id, before.assigned_at)


@proves("backend-api.Invariants.rule.7", "backend-api.Invariants.rule.6")
async def test_only_a_new_assignment_replaces_the_assignee(backend: Contract) -> None:
    job, token = await running(backend)
    await backend.fail_job(job.id, "boom", token=token)
    await backend.cancel_jobs([], [job.id])
    assert (await apply(backend, job, Event.RETRY_NOW)).error is not None
    assert (await backend.get_job(job.id)).assignee_id == "worker-1"
    other, token = await running(backend, max_attempts=1)
    await backend.fail_job(other.id, "boom", token=token)
    assert (await apply(backend, other, Event.RETRY_NOW)).error is None
    assert (await backend.get_job(other.id)).assignee_id == "worker-1"
    await claim(backend, other, "worker-2")
    assert (await backend.get_job(other.id)).assignee_id == "worker-2"


@proves("backend-api.Invariants.rule.3")
async def test_no_life_leads_back_to_the_beginning(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=3)
    seen = [(await backend.get_job(job.id)).state]
    for event in (
        Event.CLAIM,
        Event.RELEASE,
        Event.CLAIM,
        Event.LOSE,
        Event.CLAIM,
        Event.FAIL,
        Event.CLAIM,
        Event.FAIL,
        Event.RETRY_NOW,
        Event.CLAIM,
        Event.CANCEL,
        Event.ACK_UNKNOWN,
        Event.COMPLETE,
    ):
        assert await happens(backend, job, event, None), event
        seen.append((await backend.get_job(job.id)).state)
    assert seen.count(JobState.INITIAL_PENDING) == 1
    assert seen[-1] is JobState.COMPLETED
    pairs = {(source, target) for (_, source), target in TARGET.items()}
    # FAIL without an attempt left is EXHAUST, which has rows of its own.
    assert set(pairwise(seen)) <= pairs


@proves(
    "backend-api.Invariants.rule.2",
    "backend-api.ImplementationGuidelines.expect.3",
    "backend-api.ImplementationGuidelines.must.20",
)
async def test_a_batch_of_outcomes_changes_only_what_it_may(backend: Contract) -> None:
    good, token = await running(backend)
    bad, _ = await running(backend)
    before = await backend.get_job(bad.id)
    answers = await backend.settle(
        [
            Outcome(good.id, Event.COMPLETE, token=token, result=b"r"),
            Outcome(bad.id, Event.FAIL, token="not its token", error=ErrorInfo("x")),  # noqa: S106
        ]
    )
    assert [answer.error is None for answer in answers] == [True, False]
    assert await backend.get_job(bad.id) == before
    stored = await backend.get_job(good.id)
    assert (stored.state, stored.result) == (JobState.COMPLETED, b"r")
    assert stored.finalized_at == stored.updated_at
