"""Fencing: whose outcome counts, and what a repeat does."""

from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from queue_operator.domain.errors import InvalidTransition, JobNotFound, StaleLease
from queue_operator.domain.job import Demand
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.clauses import proves
from queue_operator.testing.driving import a_job, apply, claim, job_in, running, settle, submitted
from queue_operator.testing.store import TTL_S, Contract

_REPEATABLE = [
    Event.COMPLETE,
    Event.FAIL,
    Event.EXHAUST,
    Event.STOP,
    Event.RELEASE,
    Event.HAND_BACK,
    Event.MARK_UNKNOWN_STOPPED,
]


@pytest.mark.parametrize("event", _REPEATABLE)
async def test_a_repeat_is_a_success_that_writes_nothing(backend: Contract, event: Event) -> None:
    job, token = await running(backend)
    first = await apply(backend, job, event, token)
    assert (first.error, first.freed_assignee_id, first.repeated) == (None, "worker-1", False)
    before = await backend.get_job(job.id)
    again = await apply(backend, job, event, token)
    assert (again.error, again.freed_assignee_id, again.repeated) == (None, None, True)
    assert again.state is before.state
    assert await backend.get_job(job.id) == before


@pytest.mark.parametrize("event", [Event.FAIL, Event.EXHAUST, Event.HAND_BACK, Event.RELEASE])
async def test_a_repeat_is_known_by_what_it_became_while_cancelling(
    backend: Contract, event: Event
) -> None:
    job, token = await running(backend)
    await backend.cancel_jobs([], [job.id])
    outcome = Outcome(job.id, event, token=token, error=ErrorInfo("x"), worker_plane=True)
    assert (await settle(backend, outcome)).state is JobState.STOPPED
    again = await settle(backend, outcome)
    assert (again.repeated, again.state) == (True, JobState.STOPPED)


async def test_a_repeat_of_a_superseded_attempt_is_still_known(backend: Contract) -> None:
    job, token = await running(backend)
    await apply(backend, job, Event.FAIL, token)
    await claim(backend, job, "worker-2")
    again = await apply(backend, job, Event.FAIL, token)
    assert (again.repeated, again.state) == (True, JobState.RUNNING)


@proves("queue-semantics.Fencing.rule.2")
async def test_tokens_tell_nothing_of_each_other(backend: Contract) -> None:
    """Neither a number that goes on, nor one draw that all tokens are made of."""
    jobs = [a_job(type="tokens") for _ in range(400)]
    await backend.enqueue_jobs(jobs)
    demand = Demand(assignee_id="w", limit=200, types=frozenset({"tokens"}))
    claimed = [one for _ in range(2) for one in await backend.claim([demand], lease_ttl_s=TTL_S)]
    # What is before it may be the place of the job.
    halves = [UUID(one.token).int % 2**64 for one in claimed]
    assert len(set(halves)) == len(jobs)
    assert len({(after - before) % 2**64 for before, after in pairwise(halves)}) == len(jobs) - 1
    assert len({after ^ before for before, after in pairwise(halves)}) == len(jobs) - 1
    set_bits = [sum(half >> bit & 1 for half in halves) for bit in range(62)]
    assert all(len(jobs) / 4 < count < len(jobs) * 3 / 4 for count in set_bits)


async def test_without_a_token_nothing_is_a_repeat(backend: Contract) -> None:
    job, token = await running(backend)
    await apply(backend, job, Event.COMPLETE, token)
    assert isinstance((await apply(backend, job, Event.COMPLETE)).error, InvalidTransition)


@pytest.mark.parametrize(
    "event", [Event.COMPLETE, Event.FAIL, Event.EXHAUST, Event.STOP, Event.RELEASE]
)
@pytest.mark.parametrize("token", [str(uuid4()), "no token at all", ""])
async def test_a_token_that_is_not_current_is_stale(
    backend: Contract, event: Event, token: str
) -> None:
    job, _ = await running(backend)
    before = await backend.get_job(job.id)
    assert isinstance((await apply(backend, job, event, token)).error, StaleLease)
    assert await backend.get_job(job.id) == before


async def test_a_dequeued_job_has_the_token_of_its_lease(backend: Contract) -> None:
    job = await submitted(backend)
    [mine] = await backend.dequeue_jobs("w", [], 1, lease_ttl_s=60.0)
    assert mine.id == job.id
    # A record that is read has none: whoever reads a job is not whoever runs it.
    assert (await backend.get_job(job.id)).token == ""
    assert await backend.complete_job(job.id, b"", token=mine.token) == {"w": 1}


async def test_an_empty_token_is_said_to_be_empty(backend: Contract) -> None:
    job, _ = await running(backend)
    with pytest.raises(StaleLease, match=r"is empty, .* or None to act without one"):
        await backend.complete_job(job.id, b"", token="")
    with pytest.raises(StaleLease, match="is empty"):
        await backend.update_job_status(job.id, JobState.STOPPED, token="")


async def test_after_somebody_claimed_the_old_token_is_stale(backend: Contract) -> None:
    job, old = await running(backend)
    await backend.mark_worker_unresponsive("worker-1")
    new = await claim(backend, job, "worker-2")
    assert new.token != old
    assert isinstance((await apply(backend, job, Event.COMPLETE, old)).error, StaleLease)
    assert (await apply(backend, job, Event.COMPLETE, new.token)).freed_assignee_id == "worker-2"


@pytest.mark.parametrize("event", [Event.RELEASE, Event.HAND_BACK])
async def test_a_job_given_back_takes_no_other_outcome(backend: Contract, event: Event) -> None:
    job, token = await running(backend)
    await apply(backend, job, event, token)
    assert isinstance((await apply(backend, job, Event.COMPLETE, token)).error, StaleLease)


@pytest.mark.parametrize("event", [Event.COMPLETE, Event.FAIL, Event.EXHAUST, Event.STOP])
async def test_whose_job_another_ended_without_the_token_is_told_that_its_outcome_did_not_count(
    backend: Contract, event: Event
) -> None:
    job, token = await running(backend)
    errors = {Event.FAIL: ErrorInfo("an administrator's"), Event.EXHAUST: ErrorInfo("an admin's")}
    theirs = b"an administrator's" if event is Event.COMPLETE else None
    ended = Outcome(job.id, event, result=theirs, error=errors.get(event))
    assert (await settle(backend, ended)).error is None
    before = await backend.get_job(job.id)
    # The holder says the same, and then whatever it likes: nothing of it counts.
    for said in (event, Event.COMPLETE, Event.FAIL, event):
        answer = await apply(backend, job, said, token)
        assert isinstance(answer.error, InvalidTransition | StaleLease), said
        assert (answer.freed_assignee_id, answer.repeated) == (None, False)
    assert await backend.get_job(job.id) == before
    if event is Event.COMPLETE:
        with pytest.raises(InvalidTransition):
            await backend.update_job_status(job.id, JobState.COMPLETED, token=token)


async def test_of_a_job_that_was_given_up_a_late_completion_by_another_is_not_the_holders(
    backend: Contract,
) -> None:
    job, token = await running(backend)
    await backend.mark_job_unknown_stopped(job.id, "given up")
    assert await backend.complete_job(job.id, b"an administrator's") == {}
    answer = await apply(backend, job, Event.COMPLETE, token)
    assert isinstance(answer.error, InvalidTransition)
    assert (await backend.get_job(job.id)).result == b"an administrator's"
    # With its token the same is its own, and may be said again.
    other, token = await running(backend)
    await backend.mark_job_unknown_stopped(other.id, "given up")
    assert (await apply(backend, other, Event.COMPLETE, token)).error is None
    assert (await apply(backend, other, Event.COMPLETE, token)).repeated


async def test_the_library_may_leave_the_token_out(backend: Contract) -> None:
    job, _ = await running(backend)
    assert await backend.complete_job(job.id, b"r") == {"worker-1": 1}
    assert (await backend.get_job(job.id)).result == b"r"


@pytest.mark.parametrize(
    ("event", "after"),
    [(Event.COMPLETE, JobState.COMPLETED), (Event.FAIL, JobState.FAILED_RETRY)],
)
async def test_a_late_outcome_of_a_lost_job_counts(
    backend: Contract, event: Event, after: JobState
) -> None:
    job, token = await job_in(backend, JobState.UNKNOWN_RETRY)
    answer = await apply(backend, job, event, token)
    assert (answer.state, answer.freed_assignee_id) == (after, None)
    assert (await backend.get_job(job.id)).state is after


async def test_a_late_success_of_a_job_given_up_counts(backend: Contract) -> None:
    job, token = await job_in(backend, JobState.UNKNOWN_STOPPED)
    ended = (await backend.get_job(job.id)).finalized_at
    assert await backend.complete_job(job.id, b"late", token=token) == {}
    stored = await backend.get_job(job.id)
    assert (stored.state, stored.result) == (JobState.COMPLETED, b"late")
    assert ended is not None
    assert stored.finalized_at is not None
    assert stored.finalized_at > ended
    assert (await apply(backend, job, Event.COMPLETE, token)).repeated


async def test_outcomes_of_one_job_in_one_batch_apply_in_order(backend: Contract) -> None:
    job, token = await running(backend)
    outcomes = [
        Outcome(job.id, Event.FAIL, token=token, error=ErrorInfo("x")),
        Outcome(job.id, Event.COMPLETE, token=token, result=b""),
        Outcome(job.id, Event.FAIL, token=token, error=ErrorInfo("x")),
    ]
    failed, completed, repeat = await backend.settle(outcomes)
    assert failed.state is JobState.FAILED_RETRY
    assert isinstance(completed.error, InvalidTransition)
    assert repeat.repeated


async def test_one_bad_outcome_does_not_disturb_the_others(backend: Contract) -> None:
    jobs = [await running(backend) for _ in range(6)]
    outcomes = [
        Outcome(job.id, Event.COMPLETE, token=token, result=b"ok") for job, token in jobs[:3]
    ]
    outcomes += [
        Outcome("never submitted", Event.COMPLETE, token=str(uuid4())),
        Outcome("nowhere", Event.STOP, namespace="no such namespace"),
        Outcome(jobs[3][0].id, Event.COMPLETE, token=str(uuid4())),
        Outcome(jobs[4][0].id, Event.FAIL, token=jobs[4][1], error=ErrorInfo("a\x00b")),
        Outcome(jobs[5][0].id, Event.FAIL, token=jobs[5][1], error=ErrorInfo("fine")),
    ]
    answers = await backend.settle(outcomes)
    assert [a.state for a in answers[:3]] == [JobState.COMPLETED] * 3
    assert isinstance(answers[3].error, JobNotFound)
    assert isinstance(answers[4].error, JobNotFound)
    assert isinstance(answers[5].error, StaleLease)
    # A text that no store holds is no reason to leave its job running.
    assert answers[6].state is JobState.FAILED_RETRY
    assert (await backend.get_job(jobs[4][0].id)).error_message == "a\N{REPLACEMENT CHARACTER}b"
    assert answers[7].state is JobState.FAILED_RETRY


async def test_a_batch_of_every_kind_is_answered_in_order(backend: Contract) -> None:
    events = [Event.COMPLETE, Event.FAIL, Event.STOP, Event.RELEASE, Event.EXHAUST] * 20
    jobs = [a_job(type="t") for _ in events]
    await backend.enqueue_jobs(jobs)
    assert len(await backend.dequeue_jobs("w", [], len(jobs))) == len(jobs)
    permanent = ErrorInfo("x", ErrorCategory.PERMANENT)
    outcomes = [
        Outcome(job.id, event, error=permanent if event is Event.EXHAUST else None)
        for job, event in zip(jobs, events, strict=True)
    ]
    answers = await backend.settle(outcomes)
    assert [a.job_id for a in answers] == [job.id for job in jobs]
    assert all(a.freed_assignee_id == "w" for a in answers)


async def test_a_late_failure_counts_only_once_for_a_given_up_job(backend: Contract) -> None:
    job = await submitted(backend, max_attempts=1)
    token = (await claim(backend, job)).token
    assert (await apply(backend, job, Event.FAIL, token)).state is JobState.DEAD_LETTER
    again = await apply(backend, job, Event.FAIL, token)
    assert (again.repeated, again.state) == (True, JobState.DEAD_LETTER)
