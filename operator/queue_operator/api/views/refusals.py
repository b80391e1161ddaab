"""Why a job cannot be changed, in the words of this API: a state of the queue may be several."""

from collections.abc import Mapping
from typing import Final

from queue_operator.domain.errors import InvalidTransition
from queue_operator.domain.states import TERMINAL, Event, JobState
from queue_operator.domain.views import PHASE, Phase, may_show

_NOT_YET: Final = "it has not failed, and runs by itself; ask `why` what it waits for"
_ANEW: Final = "submit it anew to run it again"
_RETRY: Final[Mapping[Phase, str]] = {
    Phase.SCHEDULED: _NOT_YET,
    Phase.RUNNING: "it is being executed; wait until it has ended, or cancel it",
    Phase.COMPLETED: f"it has succeeded; {_ANEW}",
    Phase.CANCELLED: f"it was cancelled for good; {_ANEW}",
}


def not_possible(error: InvalidTransition) -> str:
    """`error` without the states and events of the queue, as far as they are known."""
    if error.state not in frozenset(JobState):
        return error.message
    state = JobState(error.state)
    shown = " or ".join(may_show(state))
    return f"job {error.job_id!r} is {shown}: {_why(state, error.event)}"


def _why(state: JobState, event: str) -> str:
    if event == Event.RETRY_NOW and PHASE[state] in _RETRY:
        return _RETRY[PHASE[state]]
    if event == _DELETE and state not in TERMINAL:
        return "only a job that has ended can be deleted; cancel it first"
    return "that does not allow it"


_DELETE: Final = "DELETE"
"""What stores call it; it is no event of a job."""
