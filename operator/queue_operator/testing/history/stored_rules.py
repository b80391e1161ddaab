"""Rules about what the store says of each job, and what was acknowledged to clients."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from queue_operator.backends.protocol import Attempt
from queue_operator.domain.states import (
    RETURNS_ATTEMPT,
    TARGET,
    TERMINAL,
    Event,
    JobState,
    is_terminal,
)
from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.records import Kind
from queue_operator.testing.history.violation import Rule, Violation

_SUBMIT: Final = "SUBMIT"
# What a cancel may lead to: the job may have completed all the same.
_AFTER_CANCEL: Final = frozenset(set(TERMINAL) - {JobState.DEAD_LETTER})
_UNASKED: Final = frozenset({"ALREADY_COMPLETE", "NOT_FOUND"})


def submits(history: History) -> Iterator[Violation]:
    told = {record.job_id: record for record in history.of(Kind.SUBMIT_ACKNOWLEDGED)}
    for job_id, record in told.items():
        if job_id not in history.jobs:
            text = f"its submit was acknowledged to {record.process}, and the store has no such job"
            yield Violation(Rule.SUBMIT_KEPT, job_id, text, history.around(job_id))


def transitions(history: History) -> Iterator[Violation]:
    for job_id, stored in history.jobs.items():
        for text in _wrong_steps(stored):
            yield Violation(Rule.TABLE, job_id, text, history.around(job_id))


def _wrong_steps(stored: StoredJob) -> Iterator[str]:
    steps = stored.transitions
    if not steps or steps[0].event != _SUBMIT:
        yield "its history does not begin with a submission"
        return
    for earlier, step in pairwise(steps):
        before = earlier.after
        known = Event(step.event) if step.event in set(Event) else None
        if step.before is not before:
            yield f"{step.event} is told to come from {step.before}, but the job was {before}"
        elif known is None or TARGET.get((known, before)) is not step.after:
            yield f"{step.event} took it from {before} to {step.after}, which no row allows"
    if steps[-1].after is not stored.job.state:
        yield f"it is {stored.job.state}, but its history ends with {steps[-1].after}"
    if stored.job.transition != len(steps):
        yield f"it counts {stored.job.transition} transitions, and its history has {len(steps)}"


def events(history: History) -> Iterator[Violation]:
    for job_id, stored in history.jobs.items():
        if stored.events is None:
            continue
        logged = [(one.event, one.after) for one in stored.events]
        told = [(one.event, one.after) for one in stored.transitions]
        if logged != told:
            text = f"the log tells {_names(logged)}, the history {_names(told)}"
            yield Violation(Rule.EVENTS, job_id, text, history.around(job_id))


def _names(steps: Sequence[tuple[str, JobState | None]]) -> str:
    return ", ".join(event for event, _ in steps) or "nothing"


def attempts(history: History) -> Iterator[Violation]:
    for job_id, stored in history.jobs.items():
        for text in _wrong_counts(stored):
            yield Violation(Rule.ATTEMPTS, job_id, text, history.around(job_id))


def _wrong_counts(stored: StoredJob) -> Iterator[str]:
    bound = stored.job.max_attempts
    claims = sum(1 for _ in stored.claims())
    if claims != len(stored.attempts):
        yield f"its history has {claims} claims, and {len(stored.attempts)} attempts are stored"
    for attempt in stored.attempts:
        if bound and attempt.number > bound:
            yield f"attempt {attempt.number} was claimed, and it may have {bound}"
    for earlier, later in pairwise(stored.attempts):
        grown = later.number - earlier.number
        if earlier.event in RETURNS_ATTEMPT:
            right = grown == 0
        elif stored.was_lost(earlier):
            # A loss that a caller caused does not count, whatever the worker says later.
            right = grown in (0, 1)
        else:
            right = grown == 1
        if not right:
            yield (
                f"attempt {earlier.number} ended with {earlier.event} and the next one was "
                f"counted as attempt {later.number}"
            )


def leases(history: History) -> Iterator[Violation]:
    """By the store's own times: each attempt ends before the next one begins."""
    for job_id, stored in history.jobs.items():
        tokens = [attempt.token for attempt in stored.attempts]
        if len(set(tokens)) < len(tokens):
            text = "two of its claims gave the same token"
            yield Violation(Rule.ONE_LEASE, job_id, text, history.around(job_id))
        for earlier, later in pairwise(stored.attempts):
            if text := _overlap(earlier, later, history.statement_s):
                yield Violation(Rule.ONE_LEASE, job_id, text, history.around(job_id))


def _overlap(earlier: Attempt, later: Attempt, statement_s: float) -> str:
    if later.version <= earlier.version:
        return f"version {later.version} of its lease follows version {earlier.version}"
    if earlier.ended_at is None:
        return f"{later.assignee_id} got it while {earlier.assignee_id} had it"
    if (earlier.ended_at - later.assigned_at).total_seconds() > statement_s:
        return (
            f"{later.assignee_id} got it at {later.assigned_at:%H:%M:%S.%f}, before the attempt "
            f"of {earlier.assignee_id} ended at {earlier.ended_at:%H:%M:%S.%f}"
        )
    return ""


def completed(history: History) -> Iterator[Violation]:
    for job_id, stored in history.jobs.items():
        states = [one.after for one in stored.transitions]
        if JobState.COMPLETED in states[:-1]:
            after = stored.transitions[states.index(JobState.COMPLETED) + 1]
            text = f"it was completed, and then came {after.event}"
            yield Violation(Rule.COMPLETED_ONCE, job_id, text, history.around(job_id))


def cancels(history: History) -> Iterator[Violation]:
    asked = {
        record.job_id: record
        for record in history.of(Kind.CANCEL_ACKNOWLEDGED)
        if record.said.get("answer") not in _UNASKED
    }
    for job_id, record in asked.items():
        stored = history.jobs.get(job_id)
        if stored is None:
            continue  # a submit that is not kept is told of elsewhere
        seen = any(one.event == Event.CANCEL for one in stored.transitions)
        if not seen:
            text = f"its cancel was acknowledged to {record.process} and its history has none"
            yield Violation(Rule.CANCEL_KEPT, job_id, text, history.around(job_id))
        elif history.quiet and stored.job.state not in _AFTER_CANCEL:
            text = f"its cancel was acknowledged, and it is {stored.job.state}"
            yield Violation(Rule.CANCEL_KEPT, job_id, text, history.around(job_id))


def endings(history: History) -> Iterator[Violation]:
    if not history.quiet:
        return
    asked = {record.job_id for record in history.of(Kind.CANCEL_CALLED)}
    for job_id, stored in history.jobs.items():
        if text := _unexplained(stored, job_id in asked):
            yield Violation(Rule.ALL_ENDED, job_id, text, history.around(job_id))


def _unexplained(stored: StoredJob, cancel_asked: bool) -> str:
    state = stored.job.state
    if not is_terminal(state):
        return f"it is still {state}"
    if state is JobState.COMPLETED:
        return ""
    if state is JobState.DEAD_LETTER:
        known = stored.job.error is not None and (stored.job.reason or stored.job.error.code)
        return "" if known else "it is a dead letter, and nothing says why"
    skipped = any(one.event == Event.SKIP for one in stored.transitions)
    return "" if cancel_asked or skipped else f"it is {state}, and nobody asked to cancel it"
