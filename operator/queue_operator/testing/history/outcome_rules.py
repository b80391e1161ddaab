"""Rules about what workers were told of their outcomes, and about their tokens."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from queue_operator.backends.protocol import Attempt
from queue_operator.domain.overdue import TIMED_OUT, WORKER_LOST
from queue_operator.domain.states import WHILE_CANCELLING, Event
from queue_operator.testing.history.calls import digest
from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.records import Kind, Record
from queue_operator.testing.history.violation import Rule, Violation

# As what else an outcome may have been recorded.
_ALSO: Final = {Event.FAIL: {Event.EXHAUST}, Event.COMPLETE: {Event.EXHAUST}}
# What the sweeper says of an attempt that it ends. No holder is told that it said so itself.
_OF_THE_SWEEPER: Final = (TIMED_OUT, WORKER_LOST)
_TOO_LATE: Final = frozenset({"STALE_LEASE", "INVALID_TRANSITION"})


def acknowledged(history: History) -> Iterator[Violation]:
    for record in history.of(Kind.OUTCOME_ACKNOWLEDGED):
        stored = history.jobs.get(record.job_id)
        if stored is not None and record.said.get("outcome"):
            yield from _acknowledged(history, record, stored)


def _acknowledged(history: History, record: Record, stored: StoredJob) -> Iterator[Violation]:
    told = str(record.said["outcome"])
    attempt = stored.by_token.get(record.token)
    around = history.around(record.job_id)
    if attempt is None:
        text = f"{told} was acknowledged under token {record.token}, which the store never gave"
        yield Violation(Rule.NO_STALE_OUTCOME, record.job_id, text, around)
        return
    following = stored.next_after(attempt)
    if not _is_recorded(attempt, told):
        rule = Rule.OUTCOME_KEPT if following is None else Rule.NO_STALE_OUTCOME
        text = (
            f"{told} was acknowledged to {record.process}, and the store has "
            f"{attempt.event or 'nothing'} under its token"
        )
        yield Violation(rule, record.job_id, text, around)
    elif attempt.error in _OF_THE_SWEEPER:
        text = f"{told} was acknowledged to {record.process}, and the sweeper's word is stored"
        yield Violation(Rule.OUTCOME_KEPT, record.job_id, text, around)
    elif following and _later(attempt, following) > history.statement_s:
        text = f"{told} of attempt {attempt.number} was stored when the next one had begun"
        yield Violation(Rule.NO_STALE_OUTCOME, record.job_id, text, around)


def _later(attempt: Attempt, following: Attempt) -> float:
    """By how much it ended after the next one began."""
    ended_at = attempt.ended_at or following.assigned_at
    return (ended_at - following.assigned_at).total_seconds()


def _is_recorded(attempt: Attempt, told: str) -> bool:
    """A worker that had said that it does not run the job may have completed it all the same."""
    if told not in set(Event):
        return True
    event = Event(told)
    possible = {event, WHILE_CANCELLING.get(event, event), *_ALSO.get(event, ())}
    late = event is Event.ACK_UNKNOWN and attempt.event == Event.COMPLETE
    return attempt.event in possible or late


def refused(history: History) -> Iterator[Violation]:
    """An outcome that was refused as too late is not the one that was stored. One of the same
    kind may be, if the store says that the sweeper had ended the attempt before.
    """
    for record in history.of(Kind.OUTCOME_REFUSED):
        stored = history.jobs.get(record.job_id)
        attempt = stored.by_token.get(record.token) if stored else None
        if stored is None or attempt is None or record.said.get("error") not in _TOO_LATE:
            continue
        told = str(record.said.get("outcome"))
        if _is_stored_as(attempt, told) and not _was_swept(stored, attempt, before=record):
            text = f"{attempt.event} is stored, and {record.process} was told that it came too late"
            around = history.around(record.job_id)
            yield Violation(Rule.OUTCOME_KEPT, record.job_id, text, around)


def _is_stored_as(attempt: Attempt, told: str) -> bool:
    """Whether it would be a repeat of what is stored, had the same worker said that."""
    if told not in set(Event):
        return False
    event = Event(told)
    also = {Event.EXHAUST} if event is Event.FAIL else set()
    return attempt.event in {event, WHILE_CANCELLING.get(event, event), *also}


def _was_swept(stored: StoredJob, attempt: Attempt, before: Record) -> bool:
    """Whether the sweeper had ended the attempt before somebody was told so, and had cause to."""
    ended_at = attempt.ended_at
    if ended_at is None or ended_at.timestamp() > before.at:
        return False
    if attempt.error == TIMED_OUT:
        took = ended_at - attempt.assigned_at
        return stored.job.timeout_s is not None and took > timedelta(seconds=stored.job.timeout_s)
    return attempt.error == WORKER_LOST and stored.was_lost(attempt)


def results(history: History) -> Iterator[Violation]:
    for job_id, stored in history.jobs.items():
        done = next((one for one in stored.attempts if one.event == Event.COMPLETE), None)
        sent = [
            record.said.get("result")
            for record in history.by_job.get(job_id, ())
            if record.kind is Kind.OUTCOME_SENT and done and record.token == done.token
        ]
        if sent and digest(stored.job.result) not in sent:
            text = "its result is not what the attempt sent that completed it"
            yield Violation(Rule.RESULT_KEPT, job_id, text, history.around(job_id))


def tokens(history: History) -> Iterator[Violation]:
    for record in history.of(Kind.ASSIGNED):
        stored = history.jobs.get(record.job_id)
        if stored is None or record.token not in stored.by_token:
            text = f"{record.process} was given it under a token that the store does not know"
            around = history.around(record.job_id)
            yield Violation(Rule.KNOWN_TOKEN, record.job_id, text, around)
