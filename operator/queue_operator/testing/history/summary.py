"""What a run came to, in numbers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from queue_operator.domain.states import Event, JobState, is_terminal
from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.records import Kind
from queue_operator.testing.history.run_rules import late_starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`submitted` is what was acknowledged or found stored; of these each job is in one of
    `completed`, `cancelled`, `dead` (by reason), `unended` and `lost`. `doubled` counts jobs
    that more than one attempt completed, as far as the workers know; `stale_refused` the
    outcomes that came too late and were refused.
    """

    submitted: int
    in_doubt_stored: int
    completed: int
    cancelled: int
    children: int = 0
    late_starts: int = 0
    dead: Mapping[str, int] = field(default_factory=dict)
    unended: int = 0
    lost: int = 0
    doubled: int = 0
    attempts: int = 0
    attempts_lost: int = 0
    stale_refused: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def adds_up(self) -> bool:
        ended = self.completed + self.cancelled + sum(self.dead.values())
        return self.submitted == ended + self.unended + self.lost

    def lines(self) -> list[tuple[str, str]]:
        """Names and values, for a table."""
        rows: list[tuple[str, object]] = [
            ("submitted", self.submitted),
            ("  of these never acknowledged, but stored", self.in_doubt_stored),
            ("  of these children of other jobs", self.children),
            ("completed", self.completed),
            ("cancelled as asked", self.cancelled),
            *((f"dead letters: {reason}", count) for reason, count in sorted(self.dead.items())),
            ("not ended", self.unended),
            ("lost", self.lost),
            ("attempts", self.attempts),
            ("  lost with their worker", self.attempts_lost),
            ("jobs completed by more than one attempt", self.doubled),
            ("handlers that started too late to know that it was completed", self.late_starts),
            *((f"outcomes refused: {code}", n) for code, n in sorted(self.refused.items())),
        ]
        return [(name, str(value)) for name, value in rows]


def summarise(history: History) -> Summary:
    acknowledged = {record.job_id for record in history.of(Kind.SUBMIT_ACKNOWLEDGED)}
    acknowledged |= {str(one.said["child"]) for one in history.of(Kind.SPAWN_ACKNOWLEDGED)}
    stored = [one.job for one in history.jobs.values()]
    states = Counter(job.state for job in stored)
    dead = Counter(_reason(one) for one in stored_dead(history))
    ended = sum(count for state, count in states.items() if is_terminal(state))
    refused = Counter(str(r.said.get("error")) for r in history.of(Kind.OUTCOME_REFUSED))
    attempts = [one for job in history.jobs.values() for one in job.attempts]
    return Summary(
        submitted=len(acknowledged | history.jobs.keys()),
        in_doubt_stored=len(history.jobs.keys() - acknowledged),
        completed=states[JobState.COMPLETED],
        children=sum(job.spawned_by != "" for job in stored),
        late_starts=late_starts(history),
        cancelled=ended - states[JobState.COMPLETED] - sum(dead.values()),
        dead=dead,
        unended=len(stored) - ended,
        lost=len(acknowledged - history.jobs.keys()),
        doubled=_doubled(history),
        attempts=len(attempts),
        attempts_lost=sum(one.event == Event.LOSE for one in attempts),
        stale_refused=refused["STALE_LEASE"],
        refused=refused,
    )


def stored_dead(history: History) -> list[StoredJob]:
    return [one for one in history.jobs.values() if one.job.state is JobState.DEAD_LETTER]


def _reason(one: StoredJob) -> str:
    code = one.job.error.code if one.job.error else ""
    return f"{one.job.reason or 'no reason'} {code}".strip()


def _doubled(history: History) -> int:
    done: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for record in history.of(Kind.OUTCOME_SENT):
        key = record.job_id, record.token
        if record.said.get("outcome") == Event.COMPLETE and key not in seen:
            seen.add(key)
            done[record.job_id] += 1
    return sum(count > 1 for count in done.values())
