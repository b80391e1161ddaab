"""Where what workers say about the jobs they run is stored: checkpoints, children, log lines.

Part of `backends.protocol`, which is where to import it from.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from queue_operator.domain.job import DEFAULT_NAMESPACE, Submitted
from queue_operator.domain.log_cursor import FROM_THE_START, LogCursor
from queue_operator.domain.running import (
    AttemptLog,
    CheckpointAnswer,
    CheckpointReport,
    LogReport,
    SpawnRequest,
)


@runtime_checkable
class Checkpoints(Protocol):
    """The newest checkpoint of a job that has not ended: every claim brings it along, and it is
    dropped with the job's end.
    """

    async def store_checkpoints(
        self, reports: Sequence[CheckpointReport]
    ) -> list[CheckpointAnswer]:
        """Answers in the order of the reports. Several for one job may come in any order: the
        highest number stays.

        A token that is not current is a StaleLease, and too much data a PayloadTooLarge, in the
        answer. One whose lease was lost still counts until somebody claims the job.
        """
        ...


@runtime_checkable
class Spawner(Protocol):
    """Children of running jobs."""

    async def spawn(self, requests: Sequence[SpawnRequest]) -> list[Submitted]:
        """Stores the children whose parent runs under the given token, and answers in the order
        of the requests. One that its parent has spawned already is a `duplicate` under the same
        id, as long as it is stored; by its own id or by that made of the key.

        In an answer, a token that is not current is a StaleLease, a parent that is being
        cancelled an InvalidTransition, a child that would be too deep in a chain of such an
        InvalidArgument, and anything wrong with the child what `submit` says.
        """
        ...


@runtime_checkable
class JobLogs(Protocol):
    """What handlers logged, kept with the job and dropped with it."""

    async def append_logs(self, reports: Sequence[LogReport]) -> None:
        """Lines under a token that the job never had are ignored. Of the newest LOG_ATTEMPTS
        attempts the newest LOG_LINES lines of at most LOG_BYTES stay.
        """
        ...

    async def job_log(
        self,
        job_id: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        after: LogCursor = FROM_THE_START,
    ) -> list[AttemptLog]:
        """By attempt, the oldest first, what was not read `after` that; attempts without such lines
        are left out. Raises JobNotFound.
        """
        ...
