"""The life of a job: one table of every legal transition, and what follows from it.

Everything that needs to know about states derives it from here: the guards in the SQL
statements, the checks in the schema, the enums of the CRD and of the API, the state table
and the diagram in the documentation. A pair of states that no row allows is illegal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """The ten states of `queue-api.md` plus DEAD_LETTER."""

    INITIAL_PENDING = "INITIAL_PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED_RETRY = "FAILED_RETRY"
    STOPPED = "STOPPED"
    UNSCHEDULED = "UNSCHEDULED"
    UNKNOWN_RETRY = "UNKNOWN_RETRY"
    CANCELLING = "CANCELLING"
    UNKNOWN_STOPPED = "UNKNOWN_STOPPED"
    DEAD_LETTER = "DEAD_LETTER"


class Event(StrEnum):
    """What can happen to a job. Submission is not an event: it creates the job."""

    CLAIM = "CLAIM"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    EXHAUST = "EXHAUST"
    STOP = "STOP"
    STOP_WITH_RETRY = "STOP_WITH_RETRY"
    MARK_UNKNOWN_STOPPED = "MARK_UNKNOWN_STOPPED"
    CANCEL = "CANCEL"
    ACK_EXECUTING = "ACK_EXECUTING"
    ACK_UNKNOWN = "ACK_UNKNOWN"
    LOSE = "LOSE"
    RELEASE = "RELEASE"
    HAND_BACK = "HAND_BACK"
    RETRY_NOW = "RETRY_NOW"
    SKIP = "SKIP"


class Fence(StrEnum):
    """What a transition must prove before it is applied, beside the state."""

    NONE = "none"
    NEW_TOKEN = "gives a new token"  # noqa: S105
    TOKEN = "token"  # noqa: S105  (a word of the table, not a secret)
    SEEN_TOKEN = "the token the service saw"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table: `event` takes a job from any of `sources` to `target`."""

    event: Event
    sources: tuple[JobState, ...]
    target: JobState
    actor: str
    fence: Fence


_S = JobState
_E = Event

TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        _E.CLAIM,
        (_S.INITIAL_PENDING, _S.FAILED_RETRY, _S.UNKNOWN_RETRY),
        _S.RUNNING,
        "queue",
        Fence.NEW_TOKEN,
    ),
    Transition(
        _E.COMPLETE,
        (_S.RUNNING, _S.CANCELLING, _S.UNKNOWN_RETRY, _S.UNKNOWN_STOPPED),
        _S.COMPLETED,
        "worker",
        Fence.TOKEN,
    ),
    Transition(
        _E.FAIL,
        (_S.RUNNING, _S.UNKNOWN_RETRY),
        _S.FAILED_RETRY,
        "worker; the sweeper for a timeout",
        Fence.TOKEN,
    ),
    Transition(
        _E.EXHAUST,
        (_S.RUNNING, _S.UNKNOWN_RETRY),
        _S.DEAD_LETTER,
        "worker; the sweeper for a timeout or a lost job with no attempt left",
        Fence.TOKEN,
    ),
    Transition(
        _E.STOP,
        (_S.RUNNING, _S.CANCELLING, _S.UNKNOWN_RETRY),
        _S.STOPPED,
        "worker or queue",
        Fence.TOKEN,
    ),
    Transition(_E.STOP_WITH_RETRY, (_S.CANCELLING,), _S.STOPPED, "worker", Fence.TOKEN),
    Transition(
        _E.MARK_UNKNOWN_STOPPED,
        (_S.RUNNING, _S.CANCELLING, _S.UNKNOWN_RETRY),
        _S.UNKNOWN_STOPPED,
        "service",
        Fence.SEEN_TOKEN,
    ),
    Transition(_E.CANCEL, (_S.INITIAL_PENDING,), _S.UNSCHEDULED, "any caller", Fence.NONE),
    Transition(
        _E.CANCEL, (_S.FAILED_RETRY, _S.UNKNOWN_RETRY), _S.STOPPED, "any caller", Fence.NONE
    ),
    Transition(_E.CANCEL, (_S.RUNNING,), _S.CANCELLING, "any caller", Fence.NONE),
    Transition(_E.ACK_EXECUTING, (_S.CANCELLING,), _S.STOPPED, "worker", Fence.TOKEN),
    Transition(_E.ACK_UNKNOWN, (_S.CANCELLING,), _S.UNKNOWN_STOPPED, "worker", Fence.TOKEN),
    Transition(_E.LOSE, (_S.RUNNING,), _S.UNKNOWN_RETRY, "sweeper or service", Fence.SEEN_TOKEN),
    Transition(
        _E.LOSE, (_S.CANCELLING,), _S.UNKNOWN_STOPPED, "sweeper or service", Fence.SEEN_TOKEN
    ),
    Transition(_E.RELEASE, (_S.RUNNING,), _S.FAILED_RETRY, "queue", Fence.TOKEN),
    Transition(_E.HAND_BACK, (_S.RUNNING,), _S.FAILED_RETRY, "worker", Fence.TOKEN),
    Transition(
        _E.RETRY_NOW,
        # UNSCHEDULED only when SKIP put it there: the reason of the finalisation says so.
        (_S.DEAD_LETTER, _S.FAILED_RETRY, _S.UNSCHEDULED),
        _S.FAILED_RETRY,
        "any caller",
        Fence.NONE,
    ),
    Transition(_E.SKIP, (_S.INITIAL_PENDING,), _S.UNSCHEDULED, "queue", Fence.NONE),
)

TARGET: dict[tuple[Event, JobState], JobState] = {
    (row.event, source): row.target for row in TRANSITIONS for source in row.sources
}

LEGAL_PAIRS: frozenset[tuple[JobState, JobState]] = frozenset(
    (source, row.target) for row in TRANSITIONS for source in row.sources
)

ELIGIBLE: tuple[JobState, ...] = next(r.sources for r in TRANSITIONS if r.event is _E.CLAIM)
"""States from which a job can be claimed."""

SLOT_HOLDING: tuple[JobState, ...] = (_S.RUNNING, _S.CANCELLING)
"""A job in one of these takes a slot of the stream it was assigned to."""

TERMINAL: tuple[JobState, ...] = (
    _S.COMPLETED,
    _S.STOPPED,
    _S.UNSCHEDULED,
    _S.UNKNOWN_STOPPED,
    _S.DEAD_LETTER,
)
"""States that end a job; only a late COMPLETE or a RETRY_NOW may follow."""

COUNTS_AS_RETRY: frozenset[Event] = frozenset(
    {_E.FAIL, _E.STOP_WITH_RETRY, _E.RELEASE, _E.HAND_BACK}
)
"""Events that add one to retry_count and set last_retry_at."""

RETURNS_ATTEMPT: frozenset[Event] = frozenset({_E.RELEASE, _E.HAND_BACK})
"""Events after which the attempt does not count against max_attempts."""

CHECKPOINTING: tuple[JobState, ...] = tuple(
    state
    for row in TRANSITIONS
    if row.event is _E.COMPLETE
    for state in row.sources
    if state not in TERMINAL
)
"""States in which the worker that has the token may store a checkpoint: those from which it
may still complete the job.
"""

KEEPS_SLOT: frozenset[Event] = frozenset({_E.ACK_UNKNOWN})
"""Events that leave SLOT_HOLDING without freeing the slot (the worker was not executing)."""

WHILE_CANCELLING: dict[Event, Event] = {
    _E.FAIL: _E.STOP_WITH_RETRY,
    _E.EXHAUST: _E.STOP_WITH_RETRY,
    _E.HAND_BACK: _E.STOP,
    _E.RELEASE: _E.STOP,
}
"""What an outcome from the worker plane becomes when the job is already CANCELLING."""


def sources(event: Event) -> tuple[JobState, ...]:
    """States from which `event` is legal."""
    return tuple(source for (e, source) in TARGET if e is event)


def target(event: Event, state: JobState) -> JobState | None:
    """The state after `event`, or None when the table has no such row."""
    return TARGET.get((event, state))


def is_terminal(state: JobState) -> bool:
    return state in TERMINAL


def frees_slot(event: Event, state: JobState) -> bool:
    """True when `event` gives the assignee its slot back."""
    after = target(event, state)
    return (
        state in SLOT_HOLDING
        and after is not None
        and after not in SLOT_HOLDING
        and event not in KEEPS_SLOT
    )


def sql_literals(states: Iterable[JobState]) -> str:
    """`'A', 'B'`: states as SQL literals, so that the planner sees the partial index."""
    return ", ".join(f"'{state.value}'" for state in states)
