"""What a job is said to wait for, of several things at once the first."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.backends.steering import Pause, Place
from queue_operator.backends.worker_sessions import SessionOrder, WorkerSession
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.states import JobState
from queue_operator.queue.explaining import (
    WaitReason,
    _free,
    _ordered,
    _takes,
    _why,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = Job(id="a", type="t", tags=frozenset({"eu"}), created_at=NOW, eligible_at=NOW)
LATER = NOW + timedelta(minutes=1)
PAUSED = Place(ahead=2, pauses=(Pause(namespace="default"),))


@pytest.mark.parametrize(
    ("job", "place", "slots", "reason"),
    [
        (JOB, Place(), [1], WaitReason.DUE),
        (JOB, Place(ahead=3), [0, 1], WaitReason.IN_LINE),
        (JOB, Place(ahead=3), [0, 0], WaitReason.NO_FREE_SLOT),
        (JOB, Place(ahead=3), [], WaitReason.NO_WORKER),
        (JOB, PAUSED, [], WaitReason.PAUSED),
        (replace(JOB, eligible_at=LATER), PAUSED, [], WaitReason.DELAYED),
        (replace(JOB, eligible_at=LATER, attempt=1), PAUSED, [], WaitReason.BACKOFF),
        (
            replace(JOB, waiting_for_dependencies=True, eligible_at=LATER),
            replace(PAUSED, parents={"b": None}),
            [],
            WaitReason.DEPENDENCIES,
        ),
        (
            replace(JOB, waiting_for_dependencies=True, eligible_at=LATER, suspended=True),
            replace(PAUSED, parents={"b": None}),
            [],
            WaitReason.SUSPENDED,
        ),
        (
            replace(JOB, state=JobState.FAILED_RETRY, suspended=True),
            PAUSED,
            [1],
            WaitReason.SUSPENDED,
        ),
        (replace(JOB, state=JobState.RUNNING, suspended=True), Place(), [], WaitReason.EXECUTING),
        (replace(JOB, state=JobState.STOPPED, suspended=True), Place(), [], WaitReason.ENDED),
        (replace(JOB, state=JobState.UNKNOWN_RETRY), Place(), [1], WaitReason.DUE),
        (replace(JOB, state=JobState.RUNNING), Place(), [], WaitReason.EXECUTING),
        (replace(JOB, state=JobState.CANCELLING), Place(), [], WaitReason.STOPPING),
        (replace(JOB, state=JobState.STOPPED), PAUSED, [], WaitReason.ENDED),
    ],
)
def test_the_first_reason_is_told(
    job: Job, place: Place, slots: list[int], reason: WaitReason
) -> None:
    told, message = _why(job, place, slots, NOW)
    assert told is reason
    assert message


def test_whose_job_is_suspended_is_told_how_to_resume_it() -> None:
    held = replace(JOB, suspended=True)
    assert _why(held, Place(), [1], NOW)[1] == (
        "the job is suspended until somebody resumes it: POST /v1/jobs/a/resume, or "
        "`queue-operator resume --job a`"
    )
    of_resource = replace(held, resource=ResourceRef("c", "a", "report"))
    assert _why(of_resource, Place(), [1], NOW)[1] == (
        "the job is suspended; set spec.suspend of QueueJob 'report' to false"
    )


@pytest.mark.parametrize(("slots", "who"), [([0], "the one worker"), ([0, 0], "2 workers")])
def test_full_workers_are_counted(slots: list[int], who: str) -> None:
    _, message = _why(JOB, Place(ahead=3), slots, NOW)
    assert message == f"all slots of {who} are taken"


SESSION = WorkerSession(
    session_id="s", namespace="default", worker_name="w", types=frozenset({"t"}), capacity=4, busy=1
)


@pytest.mark.parametrize(
    ("session", "takes"),
    [
        (SESSION, True),
        (replace(SESSION, types=frozenset()), True),
        (replace(SESSION, types=frozenset({"u"})), False),
        (replace(SESSION, namespace="other"), False),
        (replace(SESSION, tags=frozenset({"eu"})), True),
        (replace(SESSION, tags=frozenset({"us"})), False),
        (replace(SESSION, tags=frozenset({"us"}), order=SessionOrder(tags=frozenset())), True),
        (replace(SESSION, draining=True), False),
        (replace(SESSION, order=SessionOrder(drain=True)), False),
    ],
)
def test_which_workers_would_take_it(session: WorkerSession, takes: bool) -> None:
    assert _takes(_ordered(session), JOB) == takes


def test_what_was_ordered_counts_before_what_was_declared() -> None:
    assert _free(_ordered(SESSION)) == 3
    assert _free(_ordered(replace(SESSION, order=SessionOrder(capacity=2)))) == 1
    assert _free(_ordered(replace(SESSION, order=SessionOrder(capacity=1), busy=3))) == 0
