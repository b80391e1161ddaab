"""Why a job cannot be changed, in the words of this API: a state of the queue may be several."""

from collections.abc import Mapping
from typing import Final

from queue_operator.backends.protocol import DELETE
from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.states import TERMINAL, Event, JobState
from queue_operator.domain.views import may_show
from queue_operator.queue.operations import RESUME, SUSPEND

_ANEW: Final = "submit it anew to run it again"
_FOR_GOOD: Final = f"it was cancelled for good; {_ANEW}"
_RETRY: Final[Mapping[JobState, str]] = {
    JobState.INITIAL_PENDING: "it has not failed, and runs by itself; ask `why` what it waits for",
    JobState.RUNNING: "it is being executed; wait until it has ended, or cancel it",
    JobState.CANCELLING: "its handler is being stopped; wait until it has ended",
    JobState.UNKNOWN_RETRY: "its worker was lost; it runs again by itself",
    JobState.COMPLETED: f"it has succeeded; {_ANEW}",
    JobState.STOPPED: _FOR_GOOD,
    JobState.UNSCHEDULED: _FOR_GOOD,
    JobState.UNKNOWN_STOPPED: f"nobody can say how it ended; {_ANEW}",
}


def not_possible(error: InvalidTransition) -> str:
    """`error` without the states and events of the queue, as far as they are known."""
    if error.state not in frozenset(JobState):
        return error.message
    why = _why(JobState(error.state), error.event)
    return f"job {error.job_id!r} is {shown(error.state)}: {why}"


def shown(state: str) -> str:
    """The states of this API that a job in the queue's `state` may be seen in."""
    known = state in frozenset(JobState)
    return " or ".join(may_show(JobState(state))) if known else state


def _why(state: JobState, event: str) -> str:
    if event == Event.RETRY_NOW and state in _RETRY:
        return _RETRY[state]
    if event == Event.CANCEL:
        return "it has ended" if state in TERMINAL else "it is being cancelled already"
    if event in (SUSPEND, RESUME):
        return "it has ended"
    if event == DELETE and state not in TERMINAL:
        return "only a job that has ended can be deleted; cancel it first"
    return "that does not allow it"
