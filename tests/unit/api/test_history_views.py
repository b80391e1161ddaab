"""What happened to a job, as it was seen then."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.api.views.history import transitions
from queue_operator.backends.lookups import Attempt, JobHistory, TransitionRecord
from queue_operator.domain.job import Job
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.views import Phase

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
RAN = Attempt(version=1, number=1, token="t", assignee_id="w", assigned_at=NOW + HOUR)
STORED = TransitionRecord(event="SUBMIT", before=None, after=JobState.INITIAL_PENDING, at=NOW)


def moved(before: JobState, after: JobState, event: Event) -> TransitionRecord:
    return TransitionRecord(event=event, before=before, after=after, at=NOW + HOUR)


STARTED = moved(JobState.INITIAL_PENDING, JobState.RUNNING, Event.CLAIM)
ENDED = moved(JobState.RUNNING, JobState.COMPLETED, Event.COMPLETE)
LOST = moved(JobState.RUNNING, JobState.UNKNOWN_RETRY, Event.LOSE)


def first_state(due: datetime, attempt: Attempt, *then: TransitionRecord) -> Phase:
    job = Job(id="a", type="t", created_at=NOW, eligible_at=due)
    history = JobHistory(attempts=(attempt,), transitions=(STORED, STARTED, *then))
    return transitions(job, history)[0].to_state


@pytest.mark.parametrize(("due", "phase"), [(NOW + HOUR, Phase.DELAYED), (NOW, Phase.SCHEDULED)])
def test_of_an_attempt_that_does_not_say_so_the_job_tells_what_it_waited_for(
    due: datetime, phase: Phase
) -> None:
    assert first_state(due, RAN, ENDED) is phase
    # Of the attempt's own time nothing else is believed.
    assert first_state(NOW + 2 * HOUR, replace(RAN, eligible_at=due), ENDED) is phase


def test_the_time_of_a_job_that_was_sent_back_is_not_what_it_first_waited_for() -> None:
    assert first_state(NOW + 2 * HOUR, RAN, LOST) is Phase.SCHEDULED


def test_one_that_waited_to_be_resumed_was_not_delayed() -> None:
    job = Job(id="a", type="t", created_at=NOW, eligible_at=NOW + HOUR, suspension_at=NOW + HOUR)
    for attempts in ((RAN,), (replace(RAN, eligible_at=NOW + HOUR),)):
        history = JobHistory(attempts=attempts, transitions=(STORED, STARTED, ENDED))
        assert transitions(job, history)[0].to_state is Phase.SCHEDULED
