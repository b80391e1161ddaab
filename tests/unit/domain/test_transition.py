"""What an outcome does to a job, decided without a store."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, StaleLease
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.retry import Backoff, BackoffStrategy
from queue_operator.domain.states import (
    COUNTS_AS_RETRY,
    RETURNS_ATTEMPT,
    TARGET,
    WHILE_CANCELLING,
    Event,
    JobState,
    frees_slot,
)
from queue_operator.domain.transition import (
    FENCED,
    Current,
    Move,
    caused,
    decide,
    decide_update,
)

CURRENT = Current(
    job_id="j",
    state=JobState.RUNNING,
    token="now",
    attempt=1,
    max_attempts=3,
    failure_count=0,
    backoff=Backoff(BackoffStrategy.LINEAR, initial_delay_s=2.0),
)
PAIRS = sorted(pair for pair in TARGET if pair[0] is not Event.CLAIM)


def half() -> float:
    return 0.5


def move_of(current: Current, outcome: Outcome) -> Move:
    move = decide(current, outcome, half)
    assert move is not None
    return move


@pytest.mark.parametrize(("event", "state"), PAIRS)
def test_every_row_of_the_table_is_decided_as_it_says(event: Event, state: JobState) -> None:
    current = replace(CURRENT, state=state, skipped=True)
    move = move_of(current, Outcome("j", event, token="now"))
    assert (move.event, move.before, move.after) == (event, state, TARGET[event, state])
    assert move.counts_retry == (event in COUNTS_AS_RETRY)
    assert move.returns_attempt == (event in RETURNS_ATTEMPT)
    assert move.frees_slot == frees_slot(event, state)


@given(event=st.sampled_from(Event), state=st.sampled_from(JobState))
def test_a_pair_outside_the_table_is_refused(event: Event, state: JobState) -> None:
    if (event, state) in TARGET or event is Event.CLAIM:
        return
    with pytest.raises(InvalidTransition):
        decide(replace(CURRENT, state=state), Outcome("j", event, token="now"), half)


def test_a_claim_is_no_outcome() -> None:
    with pytest.raises(InvalidArgument):
        decide(replace(CURRENT, state=JobState.INITIAL_PENDING), Outcome("j", Event.CLAIM), half)


@pytest.mark.parametrize("event", sorted(FENCED))
def test_a_fenced_event_with_another_token_is_stale(event: Event) -> None:
    with pytest.raises(StaleLease):
        decide(CURRENT, Outcome("j", event, token="before"), half)


def test_a_repeat_is_recognised_before_the_token_and_the_state() -> None:
    current = replace(CURRENT, state=JobState.COMPLETED, recorded=Event.COMPLETE)
    assert decide(current, Outcome("j", Event.COMPLETE, token="before"), half) is None


@pytest.mark.parametrize("event", sorted(WHILE_CANCELLING))
def test_a_repeat_is_recognised_by_what_it_became(event: Event) -> None:
    recorded = WHILE_CANCELLING[event]
    current = replace(CURRENT, state=JobState.STOPPED, recorded=recorded)
    assert decide(current, Outcome("j", event, token="now"), half) is None


def test_another_outcome_of_the_same_attempt_is_no_repeat() -> None:
    current = replace(CURRENT, state=JobState.FAILED_RETRY, recorded=Event.FAIL)
    with pytest.raises(InvalidTransition):
        decide(current, Outcome("j", Event.COMPLETE, token="now"), half)


@pytest.mark.parametrize("event", sorted(WHILE_CANCELLING))
def test_only_the_worker_plane_bends_an_outcome_while_cancelling(event: Event) -> None:
    current = replace(CURRENT, state=JobState.CANCELLING)
    with pytest.raises(InvalidTransition):
        decide(current, Outcome("j", event, token="now"), half)
    bent = move_of(current, Outcome("j", event, token="now", worker_plane=True))
    assert (bent.event, bent.after) == (WHILE_CANCELLING[event], JobState.STOPPED)


@pytest.mark.parametrize(
    ("attempt", "max_attempts", "event"),
    [
        (1, None, Event.FAIL),
        (1, 0, Event.FAIL),
        (2, 3, Event.FAIL),
        (3, 3, Event.EXHAUST),
        (4, 3, Event.EXHAUST),
    ],
)
@pytest.mark.parametrize("error", [None, ErrorInfo("x"), ErrorInfo("x", ErrorCategory.TIMEOUT)])
def test_a_failure_exhausts_on_the_last_attempt(
    attempt: int, max_attempts: int | None, event: Event, error: ErrorInfo | None
) -> None:
    current = replace(CURRENT, attempt=attempt, max_attempts=max_attempts)
    assert move_of(current, Outcome("j", Event.FAIL, error=error)).event is event


def test_a_permanent_failure_says_so() -> None:
    outcome = Outcome("j", Event.FAIL, error=ErrorInfo("x", ErrorCategory.PERMANENT))
    move = move_of(CURRENT, outcome)
    assert (move.event, move.reason, move.delay_s) == (Event.EXHAUST, "PERMANENT_FAILURE", 0.0)


def test_the_wait_after_a_failure_is_the_handlers_or_the_backoffs() -> None:
    failed = Outcome("j", Event.FAIL, error=ErrorInfo("x"))
    assert move_of(replace(CURRENT, failure_count=2), failed).delay_s == 6.0
    assert move_of(CURRENT, failed._replace(retry_after_s=9.0)).delay_s == 9.0
    assert move_of(CURRENT, failed._replace(retry_after_s=-9.0)).delay_s == 0.0
    assert move_of(replace(CURRENT, backoff=None), failed).delay_s == 0.0


@pytest.mark.parametrize("event", [Event.LOSE, Event.RELEASE, Event.HAND_BACK])
def test_what_was_not_a_failure_waits_for_nothing(event: Event) -> None:
    move = move_of(CURRENT, Outcome("j", event, token="now"))
    assert (move.delay_s, move.counts_failure, move.waits) == (0.0, False, True)


def test_a_second_loss_in_a_row_waits_the_backoff_and_says_so() -> None:
    lose = Outcome("j", Event.LOSE, token="now")
    first = move_of(CURRENT, lose)
    assert (first.delay_s, first.error, first.returns_attempt) == (0.0, None, False)
    again = replace(CURRENT, attempt=2, lost_before=True)
    second = move_of(again, lose)
    assert second.error is not None
    assert (second.delay_s, second.error.code) == (4.0, "WORKER_LOST_AGAIN")
    assert (second.counts_failure, second.returns_attempt) == (False, False)
    # Of a job without a backoff the system's: half of the second step, a second.
    assert move_of(replace(again, backoff=None), lose).delay_s == 0.5
    # Nothing waits for an attempt that there is not.
    assert move_of(replace(again, attempt=3), lose).delay_s == 0.0
    cancelled = move_of(replace(again, state=JobState.CANCELLING), lose)
    assert (cancelled.after, cancelled.error) == (JobState.UNKNOWN_STOPPED, None)


def test_a_loss_that_somebody_caused_is_not_the_jobs_doing() -> None:
    again = replace(CURRENT, attempt=2, lost_before=True)
    move = caused(move_of(again, Outcome("j", Event.LOSE)))
    assert (move.delay_s, move.error, move.returns_attempt) == (0.0, None, True)


def test_a_release_waits_as_long_as_it_says() -> None:
    release = Outcome("j", Event.RELEASE, token="now", retry_after_s=7)
    assert move_of(CURRENT, release).delay_s == 7.0


def test_only_a_skip_may_be_retried_from_unscheduled() -> None:
    current = replace(CURRENT, state=JobState.UNSCHEDULED)
    with pytest.raises(InvalidTransition):
        decide(current, Outcome("j", Event.RETRY_NOW), half)
    assert move_of(replace(current, skipped=True), Outcome("j", Event.RETRY_NOW)).waits


def test_a_result_belongs_to_a_success_only() -> None:
    stopped = move_of(CURRENT, Outcome("j", Event.STOP, result=b"x"))
    assert (stopped.result, stopped.ends) == (None, True)
    assert move_of(CURRENT, Outcome("j", Event.COMPLETE, result=b"x")).result == b"x"


@pytest.mark.parametrize(
    ("attempt", "bound", "allowed"),
    [(3, 3, 4), (5, 3, 6), (1, 3, 3), (3, None, None), (3, 0, None)],
)
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.UNKNOWN_RETRY, JobState.DEAD_LETTER])
def test_a_status_of_waiting_for_a_retry_leaves_an_attempt(
    state: JobState, attempt: int, bound: int | None, allowed: int | None
) -> None:
    current = replace(CURRENT, state=state, attempt=attempt, max_attempts=bound)
    move = decide_update(current, None, JobState.FAILED_RETRY, None, "")
    assert move is not None
    assert (move.max_attempts, move.frees_slot) == (allowed, False)


def test_a_status_that_ends_the_job_allows_no_more_attempts() -> None:
    move = decide_update(replace(CURRENT, attempt=3), "now", JobState.STOPPED, None, "")
    assert move is not None
    assert (move.max_attempts, move.frees_slot) == (None, True)


@pytest.mark.parametrize("status", [JobState.FAILED_RETRY, JobState.UNKNOWN_RETRY])
def test_a_status_that_does_not_end_the_job_frees_no_slot(status: JobState) -> None:
    move = decide_update(CURRENT, "now", status, None, "")
    assert move is not None
    assert not move.frees_slot


def test_only_a_manual_retry_drops_the_result() -> None:
    dead = replace(CURRENT, state=JobState.DEAD_LETTER)
    assert move_of(dead, Outcome("j", Event.RETRY_NOW)).drops_result
    update = decide_update(dead, None, JobState.FAILED_RETRY, None, "")
    assert update is not None
    assert not update.drops_result


def test_a_status_that_the_attempt_ended_in_is_a_repeat_for_its_token_only() -> None:
    again = replace(CURRENT, recorded=Event.FAIL, recorded_state=JobState.FAILED_RETRY)
    assert decide_update(again, "before", JobState.FAILED_RETRY, b"r", "m") is None
    assert decide_update(again, None, JobState.FAILED_RETRY, b"r", "m") is not None
    with pytest.raises(StaleLease):
        decide_update(again, "before", JobState.STOPPED, None, "")


@pytest.mark.parametrize("recorded", [JobState.UNKNOWN_RETRY, JobState.UNKNOWN_STOPPED])
def test_a_loss_is_told_from_another_by_where_it_led(recorded: JobState) -> None:
    lost = replace(CURRENT, state=recorded, recorded=Event.LOSE, recorded_state=recorded)
    assert decide_update(lost, "now", recorded, None, "") is None
    if recorded is JobState.UNKNOWN_RETRY:
        assert decide_update(lost, "now", JobState.UNKNOWN_STOPPED, None, "") is not None
