"""Tags as maps and sets, and the phase of a job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.domain import tags
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.ordering import Priority, order_time
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.record import answered
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase, phase, refining, states_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = Job(id="a", type="t", created_at=NOW)


@pytest.mark.parametrize(
    ("demanded", "carried", "expected"),
    [
        ({"a", "b"}, {"a", "b"}, True),
        ({"a", "b"}, {"a", "b", "c"}, True),
        ({"a", "b"}, {"a"}, False),
        (set(), {"a"}, True),
        ({"A"}, {"a"}, False),
    ],
)
def test_matching(demanded: set[str], carried: set[str], expected: bool) -> None:
    assert tags.matches(demanded, frozenset(carried)) is expected


_KEYS = st.text(st.characters(exclude_characters="="), min_size=1)


@given(st.dictionaries(_KEYS, st.text()))
def test_a_map_survives_the_way_through_the_set(given_map: dict[str, str]) -> None:
    assert tags.to_map(tags.from_map(given_map)) == given_map


@pytest.mark.parametrize("key", ["", "a=b"])
def test_a_bad_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidArgument):
        tags.from_map({key: "v"})


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (JOB, Phase.SCHEDULED),
        (replace(JOB, waiting_for_dependencies=True), Phase.PENDING),
        (replace(JOB, eligible_at=NOW + timedelta(seconds=1)), Phase.DELAYED),
        (replace(JOB, eligible_at=NOW), Phase.SCHEDULED),
        (replace(JOB, state=JobState.CANCELLING), Phase.RUNNING),
        (replace(JOB, state=JobState.DEAD_LETTER), Phase.DEAD_LETTER),
        (
            replace(
                JOB,
                state=JobState.DEAD_LETTER,
                error=ErrorInfo("no", ErrorCategory.PERMANENT),
            ),
            Phase.FAILED,
        ),
        (replace(JOB, state=JobState.UNKNOWN_STOPPED), Phase.CANCELLED),
    ],
)
def test_phase(job: Job, expected: Phase) -> None:
    assert phase(job, NOW) is expected


def test_an_urgent_job_counts_as_older_but_not_for_ever() -> None:
    urgent = order_time(NOW, None, Priority.HIGH)
    assert urgent < order_time(NOW - timedelta(minutes=59), None, Priority.NORMAL)
    assert urgent > order_time(NOW - timedelta(minutes=61), None, Priority.NORMAL)


_KINDS = [
    *(replace(JOB, state=state) for state in JobState),
    replace(JOB, waiting_for_dependencies=True),
    replace(JOB, eligible_at=NOW + timedelta(seconds=1)),
    replace(JOB, state=JobState.DEAD_LETTER, error=ErrorInfo("no", ErrorCategory.PERMANENT)),
]


@given(st.frozensets(st.sampled_from(Phase)))
def test_a_mix_of_phases_is_some_states_and_what_tells_their_jobs_apart(
    wanted: frozenset[Phase],
) -> None:
    states = states_of(wanted)
    refined = refining(wanted, states)
    apart = {JobState.INITIAL_PENDING, JobState.DEAD_LETTER}
    for job in _KINDS:
        seen_as = phase(job, NOW)
        found = job.state in states and (
            not refined or job.state not in apart or seen_as in refined
        )
        assert found == (seen_as in wanted), job


def test_phases_that_the_state_alone_decides_refine_nothing() -> None:
    assert refining({Phase.RUNNING, Phase.RETRYING}, states_of({Phase.RUNNING})) == frozenset()
    pending = {Phase.PENDING, Phase.DELAYED, Phase.SCHEDULED}
    assert refining(pending, states_of(pending)) == frozenset()
    assert refining(set(Phase), set(JobState)) == frozenset()
    assert refining({Phase.DELAYED, Phase.RUNNING}, set(JobState)) == {Phase.DELAYED}


def test_an_answer_to_a_submission_has_the_phase_of_its_job() -> None:
    for job in _KINDS:
        assert phase(answered(job, duplicate=True), NOW) is phase(job, NOW)
