"""The state table says what `docs/reference/states.md` promises."""

import itertools

import pytest

from queue_operator.domain import states
from queue_operator.domain.states import Event, JobState
from queue_operator.domain.transition import FENCED
from queue_operator.domain.views import PHASE, SEMANTIC
from queue_operator.testing import table

S = JobState


def test_the_table_is_the_one_that_the_tests_spell_out() -> None:
    assert states.TARGET == table.TARGET
    assert set(states.LEGAL_PAIRS) == set(table.LEGAL_PAIRS)
    freeing = {(e, s) for e, s in itertools.product(Event, JobState) if states.frees_slot(e, s)}
    assert freeing == table.FREEING


@pytest.mark.parametrize(
    "name",
    [
        "ELIGIBLE",
        "SLOT_HOLDING",
        "TERMINAL",
        "CHECKPOINTING",
        "COUNTS_AS_RETRY",
        "RETURNS_ATTEMPT",
    ],
)
def test_what_the_table_groups_is_what_the_tests_spell_out(name: str) -> None:
    assert set(getattr(states, name)) == set(getattr(table, name))


def test_what_needs_a_token_is_what_the_tests_spell_out() -> None:
    assert FENCED == table.FENCED


def test_every_pair_is_decided_once() -> None:
    pairs = [(row.event, source) for row in states.TRANSITIONS for source in row.sources]
    assert len(pairs) == len(set(pairs))


def test_nothing_returns_to_initial_pending() -> None:
    assert S.INITIAL_PENDING not in {row.target for row in states.TRANSITIONS}


def test_completed_never_changes_again() -> None:
    assert not [row for row in states.TRANSITIONS if S.COMPLETED in row.sources]


def test_only_a_late_complete_or_a_manual_retry_leaves_a_terminal_state() -> None:
    leaving = {row.event for row in states.TRANSITIONS for s in row.sources if s in states.TERMINAL}
    assert leaving == {Event.COMPLETE, Event.RETRY_NOW}


def test_running_is_entered_by_claim_only() -> None:
    assert {row.event for row in states.TRANSITIONS if row.target is S.RUNNING} == {Event.CLAIM}


@pytest.mark.parametrize(
    ("event", "state", "after"),
    [
        (Event.CLAIM, S.INITIAL_PENDING, S.RUNNING),
        (Event.CLAIM, S.UNKNOWN_RETRY, S.RUNNING),
        (Event.COMPLETE, S.UNKNOWN_STOPPED, S.COMPLETED),
        (Event.FAIL, S.CANCELLING, None),
        (Event.CANCEL, S.INITIAL_PENDING, S.UNSCHEDULED),
        (Event.CANCEL, S.UNKNOWN_RETRY, S.STOPPED),
        (Event.CANCEL, S.RUNNING, S.CANCELLING),
        (Event.CANCEL, S.COMPLETED, None),
        (Event.LOSE, S.RUNNING, S.UNKNOWN_RETRY),
        (Event.LOSE, S.CANCELLING, S.UNKNOWN_STOPPED),
        (Event.RETRY_NOW, S.DEAD_LETTER, S.FAILED_RETRY),
        (Event.RETRY_NOW, S.COMPLETED, None),
    ],
)
def test_target(event: Event, state: JobState, after: JobState | None) -> None:
    assert states.target(event, state) is after


def test_a_slot_is_freed_exactly_when_a_job_leaves_the_slot_holding_states() -> None:
    for event, state in itertools.product(Event, JobState):
        after = states.target(event, state)
        leaves = (
            after is not None and state in states.SLOT_HOLDING and after not in states.SLOT_HOLDING
        )
        expected = leaves and event is not Event.ACK_UNKNOWN
        assert states.frees_slot(event, state) is expected


def test_while_cancelling_every_replacement_is_legal() -> None:
    for replacement in states.WHILE_CANCELLING.values():
        assert states.target(replacement, S.CANCELLING) is not None


def test_every_state_has_a_view() -> None:
    assert set(PHASE) == set(SEMANTIC) == set(JobState)


def test_sql_literals_quote_the_names() -> None:
    assert states.sql_literals((S.RUNNING, S.CANCELLING)) == "'RUNNING', 'CANCELLING'"
