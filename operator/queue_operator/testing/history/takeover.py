"""How long the jobs of a killed worker waited until somebody else had them."""

from collections.abc import Iterator
from dataclasses import dataclass

from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.records import Kind


@dataclass(frozen=True, slots=True)
class Takeover:
    """`again_at` is None for a job that nobody ran again: it was cancelled, say."""

    job_id: str
    process: str
    killed_at: float
    again_at: float | None

    @property
    def waited_s(self) -> float:
        return (self.again_at or self.killed_at) - self.killed_at


def takeovers(history: History) -> list[Takeover]:
    """One for each job that a worker had when it was killed; by the store's own times."""
    sessions = {(one.process, one.assignee_id) for one in history.of(Kind.STREAM_OPENED)}
    return [
        found
        for record in history.of(Kind.KILLED)
        for process, assignee_id in sorted(sessions)
        if process == record.said["killed"]
        for job_id, stored in history.jobs.items()
        for found in _of(process, assignee_id, record.at, job_id, stored)
    ]


def _of(
    process: str, assignee_id: str, killed_at: float, job_id: str, stored: StoredJob
) -> Iterator[Takeover]:
    for attempt, since, until in stored.holdings():
        had_it = since.timestamp() <= killed_at and (until is None or until.timestamp() > killed_at)
        if attempt.assignee_id == assignee_id and had_it:
            following = stored.next_after(attempt)
            again_at = following.assigned_at.timestamp() if following else None
            yield Takeover(job_id, process, killed_at, again_at)
