"""`check`: every broken promise of a history. Pure: it reads no clock and asks nobody."""

from collections.abc import Callable, Iterator
from typing import Final

from queue_operator.testing.history import (
    kept_rules,
    message_rules,
    outcome_rules,
    run_rules,
    stored_rules,
    stream_rules,
)
from queue_operator.testing.history.history import History
from queue_operator.testing.history.violation import Violation

_RULES: Final[tuple[Callable[[History], Iterator[Violation]], ...]] = (
    stored_rules.submits,
    stored_rules.transitions,
    stored_rules.events,
    stored_rules.attempts,
    stored_rules.leases,
    stored_rules.completed,
    stored_rules.cancels,
    stored_rules.endings,
    outcome_rules.acknowledged,
    outcome_rules.refused,
    outcome_rules.results,
    outcome_rules.tokens,
    run_rules.token_once,
    run_rules.started_after_completion,
    kept_rules.checkpoints,
    kept_rules.children,
    kept_rules.lines,
    message_rules.messages,
    message_rules.read,
    stream_rules.renewals,
    stream_rules.stored_capacity,
    stream_rules.handlers,
    stream_rules.slots,
)


def check(history: History) -> list[Violation]:
    """All violations, those of one rule together."""
    return [violation for rule in _RULES for violation in rule(history)]
