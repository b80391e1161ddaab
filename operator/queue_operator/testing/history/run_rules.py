"""Rules about the handlers that workers start: under which token, and after what."""

from collections.abc import Iterator
from typing import Final

from queue_operator.domain.lease import LeaseStatus
from queue_operator.domain.states import Event, JobState
from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.records import Kind, Record
from queue_operator.testing.history.violation import Rule, Violation

_OVER: Final = frozenset({LeaseStatus.TAKEN_OVER, LeaseStatus.ENDED})
_Lease = tuple[str, str]


def token_once(history: History) -> Iterator[Violation]:
    """A token is for one run, and what its worker has answered for it does not begin."""
    started: dict[_Lease, Record] = {}
    for record in history.of(Kind.HANDLER_STARTED):
        if not record.token:
            continue
        first = started.setdefault((record.job_id, record.token), record)
        if first is not record:
            text = f"{record.process} started it under the token under which {first.process} had"
            yield Violation(Rule.TOKEN_ONCE, record.job_id, text, history.around(record.job_id))
    for process, records in history.by_process.items():
        answered: set[_Lease] = set()
        for record in records:
            lease = record.job_id, record.token
            if record.kind is Kind.OUTCOME_SENT:
                answered.add(lease)
            elif record.kind is Kind.HANDLER_STARTED and record.token and lease in answered:
                text = f"{process} started it under a token of which it had told the outcome"
                yield Violation(Rule.TOKEN_ONCE, record.job_id, text, history.around(record.job_id))


def started_after_completion(history: History) -> Iterator[Violation]:
    """Of a job that is completed no handler starts, but for one whose lease had been lost: its
    assignment may have been on the way when somebody else completed the job, and whoever gets it
    then cannot know. Once they were told that it is over, they do.
    """
    for process, records in history.by_process.items():
        told: set[_Lease] = set()
        for record in records:
            if record.kind is Kind.LEASE_ANSWERED and record.said.get("status") in _OVER:
                told.add((record.job_id, record.token))
            elif record.kind is Kind.HANDLER_STARTED:
                knew = (record.job_id, record.token) in told
                if text := _too_late(history, record, knew=knew):
                    yield Violation(
                        Rule.COMPLETED_ONCE,
                        record.job_id,
                        f"{process} started it {text}",
                        history.around(record.job_id),
                    )


def _too_late(history: History, record: Record, *, knew: bool) -> str:
    stored = history.jobs.get(record.job_id)
    completed_at = _completed_at(stored) if stored else None
    if stored is None or completed_at is None:
        return ""
    if record.at <= completed_at + history.transaction_s:
        return ""
    attempt = stored.by_token.get(record.token)
    if attempt is None:
        return ""  # such a token is told of elsewhere
    if attempt.event == Event.COMPLETE:
        return "under the token under which it had been completed"
    if attempt.assigned_at.timestamp() > completed_at + history.statement_s:
        return "under a token that was given when it had been completed"
    return "after it was completed elsewhere, as it had been told" if knew else ""


def _completed_at(stored: StoredJob) -> float | None:
    found = (one.at for one in stored.transitions if one.after is JobState.COMPLETED)
    at = next(found, None)
    return None if at is None else at.timestamp()


def late_starts(history: History) -> int:
    """Handlers that started after their job had been completed elsewhere, and could not know."""
    count = 0
    for record in history.of(Kind.HANDLER_STARTED):
        stored = history.jobs.get(record.job_id)
        at = _completed_at(stored) if stored else None
        count += at is not None and record.at > at + history.transaction_s
    return count
