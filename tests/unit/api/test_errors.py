"""Every error of the domain has its place in HTTP."""

import pytest

from queue_operator.api.errors import (
    DuplicateInBatch,
    details_of,
    item_error,
    message_of,
    status_of,
)
from queue_operator.backends.protocol import DELETE
from queue_operator.domain import errors
from queue_operator.domain.errors import QueueError
from queue_operator.domain.states import TERMINAL, Event, JobState, sources
from queue_operator.domain.views import Phase, may_show
from queue_operator.testing.clauses import proves


def subclasses(kind: type[QueueError]) -> set[type[QueueError]]:
    found = {kind}
    for child in kind.__subclasses__():
        found |= subclasses(child)
    return {each for each in found if each.__module__ == errors.__name__}


EXAMPLES: list[tuple[QueueError, int, str]] = [
    (errors.InvalidArgument("type", "is required"), 400, "INVALID_REQUEST"),
    (errors.PayloadTooLarge("payload", 2, 1), 413, "INVALID_REQUEST"),
    (errors.DuplicateJob(("a",)), 409, "DUPLICATE"),
    (errors.KeyConflict("k", "a"), 409, "DUPLICATE"),
    (errors.JobNotFound("a", "b"), 404, "NOT_FOUND"),
    (errors.MessageNotFound("a", "b"), 404, "NOT_FOUND"),
    (errors.PositionExpired(), 410, "POSITION_EXPIRED"),
    (errors.InvalidTransition("a", "X", "Y"), 409, "INVALID_REQUEST"),
    (errors.StaleLease("a"), 409, "INVALID_REQUEST"),
    (errors.Unauthenticated("who?"), 401, "UNAUTHORIZED"),
    (errors.Forbidden("no"), 403, "FORBIDDEN"),
    (errors.QuotaExceeded("jobs", 10, 10, 3), 429, "QUOTA_EXCEEDED"),
    (errors.Unavailable("down"), 503, "INTERNAL_ERROR"),
    (errors.AccessRefused("wrong password"), 503, "INTERNAL_ERROR"),
    (errors.SchemaMismatch("old"), 503, "INTERNAL_ERROR"),
    (errors.MissingPrivilege("may not"), 503, "INTERNAL_ERROR"),
    (QueueError("what?"), 500, "INTERNAL_ERROR"),
]


@proves("external-api.APIError.rule.1")
@pytest.mark.parametrize(("error", "status", "code"), EXAMPLES)
def test_status_and_code(error: QueueError, status: int, code: str) -> None:
    assert status_of(error) == (status, code)


def test_no_error_was_forgotten() -> None:
    assert {type(error) for error, _, _ in EXAMPLES} == subclasses(QueueError)


@proves("external-api.APIError.rule.5")
def test_the_id_is_named_as_the_caller_knows_it() -> None:
    told = item_error(errors.InvalidArgument("jobs[3].id", "must not be empty"))
    assert told.message == "jobs[3].job_id: must not be empty"
    assert [detail.field for detail in told.details] == ["jobs[3].job_id"]


def test_a_field_that_merely_ends_in_id_keeps_its_name() -> None:
    (detail,) = details_of(errors.InvalidArgument("correlation_id", "is too long"))
    assert detail.field == "correlation_id"


@proves("external-api.APIError.rule.5")
def test_duplicates_of_a_batch_are_told_by_position() -> None:
    details = details_of(DuplicateInBatch(("a", "b"), (4, 7)))
    assert [detail.field for detail in details] == ["jobs[4].job_id", "jobs[7].job_id"]


def test_a_conflict_says_with_what() -> None:
    [detail] = details_of(errors.KeyConflict("k", "a"))
    assert (detail.field, detail.job_id) == ("idempotency_key", "a")
    [detail] = details_of(errors.InvalidTransition("a", JobState.CANCELLING, Event.RETRY_NOW))
    assert (detail.job_id, detail.state, detail.event) == ("a", "RUNNING", "RETRY")
    [detail] = details_of(errors.InvalidTransition("a", JobState.INITIAL_PENDING, DELETE))
    assert (detail.state, detail.event) == ("PENDING or DELAYED or SCHEDULED", "DELETE")


INTERNAL = {state.value for state in JobState} - {phase.value for phase in Phase}


@pytest.mark.parametrize("event", [DELETE, Event.RETRY_NOW.value, "SPAWN"])
@pytest.mark.parametrize("state", list(JobState))
def test_states_are_told_as_the_caller_sees_them(state: JobState, event: str) -> None:
    error = errors.InvalidTransition("a", state, event)
    told = message_of(error)
    assert told.startswith(f"job 'a' is {' or '.join(may_show(state))}: ")
    assert not INTERNAL & set(told.replace(":", "").split())
    [detail] = details_of(error)
    assert detail.message == told


def refusal(state: JobState, event: str) -> str:
    return message_of(errors.InvalidTransition("a", state, event))


@pytest.mark.parametrize(
    ("event", "state"),
    [
        # UNSCHEDULED may be retried where SKIP put it there.
        *((Event.RETRY_NOW, s) for s in JobState if s not in sources(Event.RETRY_NOW)),
        (Event.RETRY_NOW, JobState.UNSCHEDULED),
        *((Event.CANCEL, s) for s in JobState if s not in sources(Event.CANCEL)),
        *((DELETE, s) for s in JobState if s not in TERMINAL),
    ],
)
def test_every_refusal_gives_a_reason(event: str, state: JobState) -> None:
    assert refusal(state, event) != refusal(state, "SPAWN")


def test_a_refusal_says_what_to_do() -> None:
    assert refusal(JobState.RUNNING, DELETE).endswith("can be deleted; cancel it first")
    assert refusal(JobState.COMPLETED, Event.RETRY_NOW).endswith("submit it anew to run it again")
    assert "its worker was lost; it runs again by" in refusal(
        JobState.UNKNOWN_RETRY, Event.RETRY_NOW
    )
    assert "PENDING or DELAYED or SCHEDULED" in refusal(JobState.INITIAL_PENDING, Event.RETRY_NOW)
