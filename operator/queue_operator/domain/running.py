"""What workers say about the jobs they run, beside outcomes and leases: checkpoints, children,
log lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from queue_operator.domain.errors import InvalidArgument, QueueError
from queue_operator.domain.job import DEFAULT_NAMESPACE, Job
from queue_operator.domain.limits import SPAWN_DEPTH

LOG_LINES: Final = 1000
LOG_BYTES: Final = 256 * 1024
LOG_ATTEMPTS: Final = 10
"""What is kept of the log of one attempt, and of how many attempts of one job: the newest."""

USUAL_LOG_LINES: Final = 200
"""What is shown of an attempt to who does not say how much."""

_LINE_BYTES: Final = 64
"""What a line takes beside its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """State that the next attempt starts from. `number` rises with each checkpoint of a run.
    `assignee_id` as in Outcome.
    """

    job_id: str
    token: str
    namespace: str = DEFAULT_NAMESPACE
    assignee_id: str | None = None
    number: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAnswer:
    """The answer to one report: it is stored, or a newer one of the job is, unless there is an
    `error`. `cancel_requested` and `cancel_forced` tell of a cancel the worker may have missed.
    """

    job_id: str
    namespace: str
    error: QueueError | None = None
    cancel_requested: bool = False
    cancel_forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """A child that the handler of a running job submits. `key` tells it apart from the parent's
    other children; `token` is the parent's. Of `job` the namespace is the parent's whatever it
    says, an empty id is made of parent and key, an empty correlation id is the parent's.
    `most_depth` bounds the child's `spawn_depth`, so that no chain goes on for ever; None does not.
    `assignee_id` as in Outcome.
    """

    parent_id: str
    token: str
    namespace: str = DEFAULT_NAMESPACE
    assignee_id: str | None = None
    key: str
    job: Job
    most_depth: int | None = SPAWN_DEPTH

    def too_deep(self, parent_depth: int) -> InvalidArgument | None:
        """What is wrong with a child of a parent at this depth, if anything is."""
        if self.most_depth is None or parent_depth < self.most_depth:
            return None
        return InvalidArgument(
            "spawn_depth",
            f"job {self.parent_id!r} is already {parent_depth} spawns away from a job that came "
            f"from outside, and {self.most_depth} is the most; submit what goes on for ever from "
            "outside, or ask for a larger quota",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a handler. `number` counts the lines of its attempt from 1; `fields` is the
    text of a JSON object.
    """

    number: int
    at: datetime
    level: str
    message: str
    fields: str = "{}"

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _LINE_BYTES + len(self.message) + len(self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """Lines of the attempt that has, or had, the token; in order of their numbers.
    `assignee_id` as in Outcome.
    """

    job_id: str
    token: str
    namespace: str = DEFAULT_NAMESPACE
    assignee_id: str | None = None
    lines: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """The newest lines of one attempt. `version` is the lease version of its claim, as in the
    job's history; `dropped` says how many lines before them, or between them, are missing. Where
    the log was read before, it is about the lines since then.
    """

    version: int
    number: int
    lines: tuple[LogLine, ...]
    dropped: int = 0


def newest_lines(
    version: int, number: int, lines: Sequence[LogLine], *, read: int = 0
) -> AttemptLog:
    """What counts of an attempt's lines, which are in order of their numbers and come after the
    one with the number `read`.
    """
    kept: list[LogLine] = []
    size = 0
    for line in reversed(lines):
        size += line.size
        if len(kept) == LOG_LINES or size > LOG_BYTES:
            break
        kept.append(line)
    kept.reverse()
    dropped = (lines[-1].number - read if lines else 0) - len(kept)
    return AttemptLog(version=version, number=number, lines=tuple(kept), dropped=max(dropped, 0))
