"""How long the jobs of a killed worker waited until somebody else had them."""

from collections.abc import Iterator
from dataclasses import dataclass

from queue_operator.domain.states import is_terminal
from queue_operator.testing.history.history import History, StoredJob
from queue_operator.testing.history.records import Kind


@dataclass(frozen=True, slots=True)
class Takeover:
    """What became of a job that a worker had when it was killed.

    `left_at` is when the dead worker's attempt was over for the store, `again_at` when the next
    one began; None for what never happened. That a job `ended` is why nobody runs it again: it
    was cancelled, say, or had no attempt left.
    """

    job_id: str
    process: str
    killed_at: float
    again_at: float | None
    left_at: float | None = None
    ended: bool = False

    @property
    def waited_s(self) -> float | None:
        """Until somebody else ran it; None if nobody ever did."""
        return None if self.again_at is None else self.again_at - self.killed_at

    @property
    def is_missing(self) -> bool:
        """Somebody should have it, and nobody has."""
        return self.again_at is None and not self.ended


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
        left_at = until.timestamp() if until else None
        had_it = since.timestamp() <= killed_at and (left_at is None or left_at > killed_at)
        if attempt.assignee_id == assignee_id and had_it:
            following = stored.next_after(attempt)
            yield Takeover(
                job_id,
                process,
                killed_at,
                following.assigned_at.timestamp() if following else None,
                left_at,
                is_terminal(stored.job.state),
            )
