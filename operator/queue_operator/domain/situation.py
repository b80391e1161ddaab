"""What is known of a queue when it is judged, and what is then said of it. Pure.

Whoever looks writes a Situation; `domain.verdict` makes a Verdict of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

GRACE_S: Final = 15.0
"""A worker that starts again is away for so long; jobs that wait for less are told of by nobody. A
worker that has been silent for longer takes no job.
"""
LATE_S: Final = 300.0
"""A queue is late when a job that could run has waited for longer."""
IDLE_S: Final = 60.0
"""So long a job may wait although a worker that handles its type has a free slot."""
FEW_FAILURES: Final = 5
FAILING_SHARE: Final = 0.2
"""A type fails when so many attempts did within the window, and so great a part of all."""


class Level(StrEnum):
    """HEALTHY: all that could run does, or soon will. BUSY: it waits for slots. DEGRADED: a part
    of it fails, is late, or cannot start. STUCK: nothing of what waits can start.
    """

    HEALTHY = "HEALTHY"
    BUSY = "BUSY"
    DEGRADED = "DEGRADED"
    STUCK = "STUCK"


LEVELS: Final = tuple(Level)
"""The worst last."""


class Code(StrEnum):
    """What a cause is."""

    PAUSED = "PAUSED"
    NO_WORKER = "NO_WORKER"
    DRAINING = "DRAINING"
    NOT_TAKEN = "NOT_TAKEN"
    LATE = "LATE"
    FAILING = "FAILING"
    SILENT_WORKERS = "SILENT_WORKERS"
    LOST_WORKERS = "LOST_WORKERS"
    QUOTA = "QUOTA"
    ALL_BUSY = "ALL_BUSY"
    MESSAGES_FAIL = "MESSAGES_FAIL"
    MESSAGES_LATE = "MESSAGES_LATE"


RUNBOOK: Final[Mapping[Code, str]] = {
    Code.PAUSED: "QueueOperatorTypeNotStarted",
    Code.NO_WORKER: "QueueOperatorNoWorkers",
    Code.DRAINING: "QueueOperatorTypeNotStarted",
    Code.NOT_TAKEN: "QueueOperatorTypeNotStarted",
    Code.LATE: "QueueOperatorOldestJobTooOld",
    Code.FAILING: "QueueOperatorTypeFails",
    Code.SILENT_WORKERS: "QueueWorkerDisconnected",
    Code.LOST_WORKERS: "QueueWorkerDown",
    Code.QUOTA: "QueueOperatorBacklogGrows",
    Code.ALL_BUSY: "QueueOperatorBacklogGrows",
    Code.MESSAGES_FAIL: "QueueOperatorWebhooksFail",
    Code.MESSAGES_LATE: "QueueOperatorWebhooksLate",
}
"""The section of the runbook that tells more: that of the alert which speaks of the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeNow:
    """One type of jobs: `due` could run now, `oldest_s` is how long the oldest of them has waited.
    `completed` and `attempts_failed` are of the window; `code` is the most frequent of its errors.
    """

    type: str
    due: int = 0
    running: int = 0
    completed: int = 0
    attempts_failed: int = 0
    oldest_s: float = 0.0
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNow:
    """A connected worker. No `types`: it handles any. `silent_s`: nobody heard of it so long."""

    name: str
    types: frozenset[str] = frozenset()
    capacity: int = 1
    busy: int = 0
    draining: bool = False
    silent_s: float = 0.0

    @property
    def is_there(self) -> bool:
        return self.silent_s <= GRACE_S

    @property
    def free(self) -> int:
        return max(self.capacity - self.busy, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNow:
    """A worker that went `ago_s` before now without a goodbye, and the jobs it had then."""

    name: str
    ago_s: float
    jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A pause; of all types where `type` is empty."""

    type: str = ""
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesNow:
    """To callback URLs, of those that are kept. Of the `most` oldest that are PENDING: `pending`
    are there, `retrying` failed when they were tried last, and the one that is due for longest is
    for `oldest_due_s`. Of the `most` newest that are FAILED: `given_up` are there,
    `given_up_lately` of them within LATE_S. `receiver` has most of those that failed, and `error`
    is what came of one of them.
    """

    most: int = 1000
    pending: int = 0
    retrying: int = 0
    oldest_due_s: float = 0.0
    given_up: int = 0
    given_up_lately: int = 0
    receiver: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A namespace, or one type in it, as it is now and was for `window_s`. `later` jobs wait for a
    time, for other jobs, or to be resumed. `may_run`: the quota has room for one more.
    """

    namespace: str
    window_s: float = LATE_S
    types: tuple[TypeNow, ...] = ()
    workers: tuple[WorkerNow, ...] = ()
    lost: tuple[LostNow, ...] = ()
    holds: tuple[Hold, ...] = ()
    later: int = 0
    may_run: bool = True
    messages: MessagesNow = field(default_factory=MessagesNow)

    @property
    def due(self) -> int:
        return sum(one.due for one in self.types)

    @property
    def running(self) -> int:
        return sum(one.running for one in self.types)

    @property
    def slots(self) -> int:
        """Of workers that are there."""
        return sum(one.capacity for one in self.workers if one.is_there)

    @property
    def busy(self) -> int:
        """Of these slots, those that are taken."""
        return sum(min(one.busy, one.capacity) for one in self.workers if one.is_there)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that keeps jobs back. `types` are the first of those it is about, empty for all;
    `evidence` is what was counted, `command` what to type next, empty where no command helps.
    """

    code: Code
    level: Level
    message: str
    next_step: str
    command: str = ""
    types: tuple[str, ...] = ()
    evidence: Mapping[str, int | float | str] = field(default_factory=dict)

    @property
    def runbook(self) -> str:
        """The section of it."""
        return RUNBOOK[self.code]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`causes` are sorted, the worst first; the sentence tells the first."""

    level: Level
    sentence: str
    causes: tuple[Cause, ...] = ()
