"""Decides what an outcome does to a job. Stores only carry out what is decided here."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from queue_operator.domain.errors import InvalidArgument, InvalidTransition, StaleLease
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import OCTETS, ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.retry import DEFAULT_BACKOFF, Backoff, delay_s, failure_event
from queue_operator.domain.states import (
    COUNTS_AS_RETRY,
    ELIGIBLE,
    RETURNS_ATTEMPT,
    TERMINAL,
    WHILE_CANCELLING,
    Event,
    Fence,
    JobState,
    frees_slot,
    target,
)
from queue_operator.domain.states import TRANSITIONS as _TRANSITIONS

REASON_WORKER_LOST: Final = "WORKER_LOST"
WORKER_LOST_AGAIN: Final = ErrorInfo(
    "two attempts in a row were lost with their worker; the next has a worker to itself",
    ErrorCategory.SYSTEM,
    "WORKER_LOST_AGAIN",
)
PERMANENT_FAILURE: Final = "PERMANENT_FAILURE"
RESULT_NOT_STORABLE: Final = "RESULT_NOT_STORABLE"

# A caller may say why it cancels; the queue says why it skips.
_REASONED: Final = frozenset({Event.CANCEL, Event.SKIP})
FENCED: Final = frozenset(
    row.event for row in _TRANSITIONS if row.fence in (Fence.TOKEN, Fence.SEEN_TOKEN)
)
# An outcome that was applied may have been recorded as something else than was asked for.
_RECORDED_AS: Final[dict[Event, frozenset[Event]]] = {
    Event.COMPLETE: frozenset({Event.COMPLETE}),
    Event.FAIL: frozenset({Event.FAIL, Event.EXHAUST, Event.STOP_WITH_RETRY}),
    Event.EXHAUST: frozenset({Event.EXHAUST, Event.STOP_WITH_RETRY}),
    Event.HAND_BACK: frozenset({Event.HAND_BACK, Event.STOP}),
    Event.RELEASE: frozenset({Event.RELEASE, Event.STOP}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """What a store knows of a job at the moment it decides, under a lock.

    `recorded` is the event in the attempt row of the outcome's token, if there is one that came
    with the token, and `recorded_state` the state that it led to. What somebody said without the
    token is no word of its holder, who is not to be told that its own counted.
    `skipped` says that SKIP, and not CANCEL, made it UNSCHEDULED. `lost_before` says that the
    last attempt before the running one that counted was lost with its worker.
    """

    job_id: str
    state: JobState
    token: str | None
    attempt: int
    max_attempts: int | None
    failure_count: int
    backoff: Backoff | None
    recorded: Event | None = None
    recorded_state: JobState | None = None
    skipped: bool = False
    lost_before: bool = False

    @property
    def is_used_up(self) -> bool:
        """No attempt is left."""
        return bool(self.max_attempts) and self.attempt >= (self.max_attempts or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A decided transition. `delay_s` is the time until the job may be claimed again.

    `max_attempts` and `priority` are what a manual retry changes them to, None what they were;
    `resets_attempts` says that it sets the attempt to 0. A `result` of None keeps the stored
    one, unless it `drops_result`. `fenced` says that it came with the token.
    """

    event: Event
    before: JobState
    after: JobState
    counts_retry: bool
    counts_failure: bool
    returns_attempt: bool
    frees_slot: bool
    delay_s: float = 0.0
    error: ErrorInfo | None = None
    result: bytes | None = None
    result_content_type: str = OCTETS
    drops_result: bool = False
    reason: str = ""
    cancel_reason: str = ""
    resets_attempts: bool = False
    max_attempts: int | None = None
    priority: Priority | None = None
    fenced: bool = False

    @property
    def ends(self) -> bool:
        return self.after in TERMINAL

    @property
    def waits(self) -> bool:
        return self.after in ELIGIBLE


def decide(current: Current, outcome: Outcome, rng: Callable[[], float]) -> Move | None:
    """The move that `outcome` makes, or None when it is a repeat of one already stored.

    Raises InvalidArgument for a claim, StaleLease when somebody claimed since,
    InvalidTransition when the state does not allow the event; in this order, after the repeat.
    """
    if outcome.event is Event.CLAIM:
        raise InvalidArgument("event", "a claim gives a token, so it cannot be an outcome")
    if _is_repeat(current, outcome):
        return None
    if outcome.event in FENCED:
        _check_token(current, outcome.token)
    event = _applied_event(current, outcome)
    after = target(event, current.state)
    if after is None or _is_retry_of_cancelled(current, event):
        raise InvalidTransition(current.job_id, current.state, event)
    counts_failure = event is Event.FAIL
    manual = event is Event.RETRY_NOW
    return Move(
        event=event,
        before=current.state,
        after=after,
        counts_retry=event in COUNTS_AS_RETRY,
        counts_failure=counts_failure,
        returns_attempt=event in RETURNS_ATTEMPT,
        frees_slot=frees_slot(event, current.state),
        delay_s=_delay_s(current, outcome, rng, event),
        error=_error(current, outcome, event),
        result=outcome.result if event is Event.COMPLETE else None,
        result_content_type=outcome.result_content_type,
        drops_result=manual,
        reason=_reason(event, outcome),
        cancel_reason=outcome.reason if event in _REASONED else "",
        resets_attempts=manual and outcome.reset_attempts,
        max_attempts=_allowed_attempts(current, outcome) if manual else None,
        priority=outcome.priority if manual else None,
        fenced=outcome.token is not None and event is not Event.LOSE,
    )


def decide_update(
    current: Current, token: str | None, status: JobState, result: bytes | None, error_msg: str
) -> Move | None:
    """The move of UpdateJobStatus (`backend-api.md`): any pair of states that a row of the
    table has, except into RUNNING, with that row's event and without its retry counts. None
    when the token's attempt ended in `status` already: it is a repeat.

    Raises StaleLease, InvalidTransition. A result of None and an empty message leave the
    fields alone.
    """
    if token is not None and current.recorded_state is status:
        return None
    _check_token(current, token)
    event = next(
        (
            row.event
            for row in _TRANSITIONS
            if current.state in row.sources
            and row.target is status
            and row.event is not Event.CLAIM
        ),
        None,
    )
    if event is None:
        raise InvalidTransition(current.job_id, current.state, f"a change to {status}")
    outcome = Outcome(current.job_id, event, error=ErrorInfo(error_msg))
    return Move(
        event=event,
        before=current.state,
        after=status,
        counts_retry=False,
        counts_failure=False,
        returns_attempt=False,
        # The exception of the specification: the worker may still be at it.
        frees_slot=frees_slot(event, current.state) and status in TERMINAL,
        error=ErrorInfo(error_msg) if error_msg else None,
        result=result,
        reason=_reason(event, outcome),
        # Without another attempt nobody could ever claim it, and nothing would end it.
        max_attempts=(
            _allowed_attempts(current, outcome) if status is JobState.FAILED_RETRY else None
        ),
        fenced=token is not None,
    )


def _check_token(current: Current, token: str | None) -> None:
    if token not in (None, current.token):
        raise StaleLease(current.job_id, empty=not token)


def _allowed_attempts(current: Current, outcome: Outcome) -> int | None:
    """At least one more than were used, where there is a bound."""
    if not current.max_attempts or outcome.reset_attempts:
        return None
    return max(current.max_attempts, current.attempt + 1)


def _is_retry_of_cancelled(current: Current, event: Event) -> bool:
    """UNSCHEDULED by a caller's CANCEL is for good; by SKIP it may be tried all the same."""
    unscheduled = current.state is JobState.UNSCHEDULED
    return event is Event.RETRY_NOW and unscheduled and not current.skipped


def _is_repeat(current: Current, outcome: Outcome) -> bool:
    # Without a token nobody can say which attempt is meant, so it is never a repeat.
    if outcome.token is None or current.recorded is None:
        return False
    return current.recorded in _RECORDED_AS.get(outcome.event, frozenset({outcome.event}))


def _applied_event(current: Current, outcome: Outcome) -> Event:
    event = outcome.event
    if outcome.worker_plane and current.state is JobState.CANCELLING:
        return WHILE_CANCELLING.get(event, event)
    if event is Event.FAIL:
        error = outcome.error or ErrorInfo("")
        return failure_event(error, current.attempt, current.max_attempts)
    return event


def caused(move: Move) -> Move:
    """The loss of a job whose worker somebody took away: it is not the job's doing, and its attempt
    does not count.
    """
    return replace(move, returns_attempt=True, error=None, delay_s=0.0)


def _is_lost_again(current: Current, event: Event) -> bool:
    return event is Event.LOSE and current.state is JobState.RUNNING and current.lost_before


def _error(current: Current, outcome: Outcome, event: Event) -> ErrorInfo | None:
    if _is_lost_again(current, event):
        return WORKER_LOST_AGAIN
    return None if event is Event.COMPLETE else outcome.error


def _delay_s(current: Current, outcome: Outcome, rng: Callable[[], float], event: Event) -> float:
    if _is_lost_again(current, event):
        if current.is_used_up:
            return 0.0
        return delay_s(current.backoff or DEFAULT_BACKOFF, current.attempt, rng)
    if event not in (Event.FAIL, Event.RETRY_NOW, Event.RELEASE):
        return 0.0
    if outcome.retry_after_s is not None:
        return max(outcome.retry_after_s, 0.0)
    if current.backoff is None or event is not Event.FAIL:
        return 0.0
    return delay_s(current.backoff, current.failure_count + 1, rng)


def _reason(event: Event, outcome: Outcome) -> str:
    """Stored with a finalisation, so that views and searches need no guess."""
    if event is Event.EXHAUST and outcome.error is not None:
        permanent = outcome.error.category is ErrorCategory.PERMANENT
        return PERMANENT_FAILURE if permanent else "ATTEMPTS_EXHAUSTED"
    return event.value
