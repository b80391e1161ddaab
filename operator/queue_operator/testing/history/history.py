"""The whole history of a run: what all processes saw, and what the store says in the end."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from queue_operator.backends.protocol import Attempt, AttemptLog, TransitionRecord
from queue_operator.backends.webhooks import Message
from queue_operator.domain.job import Job
from queue_operator.domain.states import SLOT_HOLDING, Event, JobState
from queue_operator.testing.history.records import Kind, Record


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A job's part of one row of the event log."""

    event: str
    before: JobState | None
    after: JobState | None
    at: datetime


@dataclass(frozen=True)
class StoredJob:
    """All that the store says of one job. `events` is None where it keeps no event log, and
    `logs` is empty where it keeps none of handlers. `messages` are None where it has no webhooks,
    and where nobody asked for any.
    """

    job: Job
    attempts: tuple[Attempt, ...]
    transitions: tuple[TransitionRecord, ...]
    events: tuple[LoggedEvent, ...] | None = None
    logs: tuple[AttemptLog, ...] = ()
    messages: tuple[Message, ...] | None = None

    @cached_property
    def by_token(self) -> Mapping[str, Attempt]:
        return {attempt.token: attempt for attempt in self.attempts}

    def next_after(self, attempt: Attempt) -> Attempt | None:
        """The attempt that took over from this one."""
        later = (one for one in self.attempts if one.version > attempt.version)
        return min(later, key=lambda one: one.version, default=None)

    def holdings(self) -> Iterator[tuple[Attempt, datetime, datetime | None]]:
        """When each attempt took a slot, and when the job left the states that take one.

        A late outcome moves the end of an attempt, but not that of its slot.
        """
        by_time = {one.assigned_at: one for one in self.attempts}
        for place, claim in self.claims():
            # That a claim has no attempt is for a rule to tell.
            if (attempt := by_time.get(claim.at)) is not None:
                after = self.transitions[place + 1 :]
                left = next((one.at for one in after if one.after not in SLOT_HOLDING), None)
                yield attempt, claim.at, left

    def was_lost(self, attempt: Attempt) -> bool:
        """Whether the job was lost before the end of that attempt, which held it."""
        ended_at = attempt.ended_at or attempt.assigned_at
        lost_at = (one.at for one in self.transitions if one.event == Event.LOSE)
        return any(attempt.assigned_at <= at <= ended_at for at in lost_at)

    def claims(self) -> Iterator[tuple[int, TransitionRecord]]:
        """The transitions that began an attempt, with their places."""
        for place, one in enumerate(self.transitions):
            if one.event == Event.CLAIM:
                yield place, one


@dataclass(frozen=True)
class History:
    """Everything about one run in one namespace. `quiet` says that at its end everything had
    been given the time to end, with nobody in the way.

    All clocks are those of one machine, so what they say differs by nothing. But a store tells
    the time at which a transaction began, and what it did took effect later. A claim is one
    statement, and sees what was committed before: `statement_s` is what the server may take
    between, on a busy machine. What ends an attempt may be several statements, of a process that
    stands on a slow line: that is `transaction_s`. A process that is frozen midway takes as long
    as it is frozen, so where it was told of the end, that is what counts.
    """

    records: Sequence[Record]
    jobs: Mapping[str, StoredJob]
    quiet: bool = True
    statement_s: float = 0.25
    transaction_s: float = 2.0

    @cached_property
    def by_job(self) -> Mapping[str, Sequence[Record]]:
        found: defaultdict[str, list[Record]] = defaultdict(list)
        for record in self.records:
            if record.job_id:
                found[record.job_id].append(record)
        return found

    def of(self, *kinds: Kind) -> Iterator[Record]:
        return (record for record in self.records if record.kind in kinds)

    @cached_property
    def by_process(self) -> Mapping[str, Sequence[Record]]:
        """In the order in which each process wrote them."""
        found: defaultdict[str, list[Record]] = defaultdict(list)
        for record in self.records:
            found[record.process].append(record)
        return found

    @cached_property
    def _outcomes(self) -> Mapping[str, Sequence[Record]]:
        """What was said of outcomes, by the token under which they were sent."""
        found: defaultdict[str, list[Record]] = defaultdict(list)
        for record in self.of(Kind.OUTCOME_SENT, Kind.OUTCOME_ACKNOWLEDGED):
            found[record.token].append(record)
        return found

    def ended_by(self, attempt: Attempt) -> float | None:
        """When the end of an attempt had taken effect, at the latest. An answer counts if it is
        to the call that ended the attempt: the last that began before.
        """
        if attempt.ended_at is None:
            return None
        ended_at = attempt.ended_at.timestamp()
        said = self._outcomes.get(attempt.token, ())
        calls = [one for one in said if one.kind is Kind.OUTCOME_SENT and one.at <= ended_at]
        caller = max(calls, key=lambda one: one.at).process if calls else ""
        told = [one for one in said if one.process == caller and one.at > ended_at]
        if told and told[0].kind is Kind.OUTCOME_ACKNOWLEDGED:
            return told[0].at
        return ended_at + self.transaction_s

    def around(self, job_id: str, extra: Iterable[Record] = ()) -> tuple[str, ...]:
        """What everybody saw of the job and what the store says of it, in order of time."""
        lines = [(record.at, str(record)) for record in (*self.by_job.get(job_id, ()), *extra)]
        if (stored := self.jobs.get(job_id)) is not None:
            lines += [(one.at.timestamp(), _told(one)) for one in stored.transitions]
        return tuple(text for _, text in sorted(lines))


def _told(one: TransitionRecord) -> str:
    at = one.at.strftime("%H:%M:%S.%f")
    return f"{at} {'the store':<14} {one.event}: {one.before} to {one.after} {one.reason}".rstrip()
