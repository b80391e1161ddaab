"""The state table as the specifications and the design say it, spelled out. Expected values come
from here: taken from the product's own table, they would agree with whatever is wrong in it.
"""

from typing import Final

from queue_operator.domain.states import Event, JobState

_S = JobState

_BY_EVENT: Final[dict[Event, dict[JobState, JobState]]] = {
    Event.CLAIM: {
        _S.INITIAL_PENDING: _S.RUNNING,
        _S.FAILED_RETRY: _S.RUNNING,
        _S.UNKNOWN_RETRY: _S.RUNNING,
    },
    Event.COMPLETE: {
        _S.RUNNING: _S.COMPLETED,
        _S.CANCELLING: _S.COMPLETED,
        _S.UNKNOWN_RETRY: _S.COMPLETED,
        _S.UNKNOWN_STOPPED: _S.COMPLETED,
    },
    Event.FAIL: {_S.RUNNING: _S.FAILED_RETRY, _S.UNKNOWN_RETRY: _S.FAILED_RETRY},
    Event.EXHAUST: {_S.RUNNING: _S.DEAD_LETTER, _S.UNKNOWN_RETRY: _S.DEAD_LETTER},
    Event.STOP: {
        _S.RUNNING: _S.STOPPED,
        _S.CANCELLING: _S.STOPPED,
        _S.UNKNOWN_RETRY: _S.STOPPED,
    },
    Event.STOP_WITH_RETRY: {_S.CANCELLING: _S.STOPPED},
    Event.MARK_UNKNOWN_STOPPED: {
        _S.RUNNING: _S.UNKNOWN_STOPPED,
        _S.CANCELLING: _S.UNKNOWN_STOPPED,
        _S.UNKNOWN_RETRY: _S.UNKNOWN_STOPPED,
    },
    Event.CANCEL: {
        _S.INITIAL_PENDING: _S.UNSCHEDULED,
        _S.FAILED_RETRY: _S.STOPPED,
        _S.UNKNOWN_RETRY: _S.STOPPED,
        _S.RUNNING: _S.CANCELLING,
    },
    Event.ACK_EXECUTING: {_S.CANCELLING: _S.STOPPED},
    Event.ACK_UNKNOWN: {_S.CANCELLING: _S.UNKNOWN_STOPPED},
    Event.LOSE: {_S.RUNNING: _S.UNKNOWN_RETRY, _S.CANCELLING: _S.UNKNOWN_STOPPED},
    Event.RELEASE: {_S.RUNNING: _S.FAILED_RETRY},
    Event.HAND_BACK: {_S.RUNNING: _S.FAILED_RETRY},
    # From UNSCHEDULED only where SKIP led there.
    Event.RETRY_NOW: {
        _S.DEAD_LETTER: _S.FAILED_RETRY,
        _S.FAILED_RETRY: _S.FAILED_RETRY,
        _S.UNSCHEDULED: _S.FAILED_RETRY,
    },
    Event.SKIP: {_S.INITIAL_PENDING: _S.UNSCHEDULED},
}

TARGET: Final = {(e, s): after for e, moves in _BY_EVENT.items() for s, after in moves.items()}
"""The state after each event that a state allows."""

LEGAL_PAIRS: Final = frozenset((state, after) for (_, state), after in TARGET.items())

ELIGIBLE: Final = (_S.INITIAL_PENDING, _S.FAILED_RETRY, _S.UNKNOWN_RETRY)
SLOT_HOLDING: Final = (_S.RUNNING, _S.CANCELLING)
TERMINAL: Final = (
    _S.COMPLETED,
    _S.STOPPED,
    _S.UNSCHEDULED,
    _S.UNKNOWN_STOPPED,
    _S.DEAD_LETTER,
)
CHECKPOINTING: Final = (_S.RUNNING, _S.CANCELLING, _S.UNKNOWN_RETRY)

COUNTS_AS_RETRY: Final = frozenset(
    {Event.FAIL, Event.STOP_WITH_RETRY, Event.RELEASE, Event.HAND_BACK}
)
RETURNS_ATTEMPT: Final = frozenset({Event.RELEASE, Event.HAND_BACK})

FENCED: Final = frozenset(
    {
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
    }
)
"""Events that a stale token is refused for."""

FREEING: Final = frozenset(
    {
        (Event.COMPLETE, _S.RUNNING),
        (Event.COMPLETE, _S.CANCELLING),
        (Event.FAIL, _S.RUNNING),
        (Event.EXHAUST, _S.RUNNING),
        (Event.STOP, _S.RUNNING),
        (Event.STOP, _S.CANCELLING),
        (Event.STOP_WITH_RETRY, _S.CANCELLING),
        (Event.MARK_UNKNOWN_STOPPED, _S.RUNNING),
        (Event.MARK_UNKNOWN_STOPPED, _S.CANCELLING),
        (Event.ACK_EXECUTING, _S.CANCELLING),
        (Event.LOSE, _S.RUNNING),
        (Event.LOSE, _S.CANCELLING),
        (Event.RELEASE, _S.RUNNING),
        (Event.HAND_BACK, _S.RUNNING),
    }
)
"""What gives the assignee its slot back."""

WHILE_CANCELLING: Final = {
    Event.FAIL: (_S.STOPPED, 1),
    Event.EXHAUST: (_S.STOPPED, 1),
    Event.HAND_BACK: (_S.STOPPED, 0),
    Event.RELEASE: (_S.STOPPED, 0),
    Event.STOP: (_S.STOPPED, 0),
    Event.COMPLETE: (_S.COMPLETED, 0),
}
"""What a worker's outcome makes of a job that is being cancelled, and how many retries it
counts.
"""


def frees_slot(event: Event, state: JobState) -> bool:
    """Whether `event` gives the assignee its slot back."""
    return (event, state) in FREEING
