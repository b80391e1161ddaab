"""What a worker, a caller or the sweeper says became of a job.

What is made once per job and batch is a named tuple: a frozen dataclass takes three times as
long to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from queue_operator.domain.errors import QueueError
from queue_operator.domain.ordering import Priority
from queue_operator.domain.states import Event, JobState

OCTETS = "application/octet-stream"
"""The content type of bytes of which nothing is said."""


class ErrorCategory(StrEnum):
    """`ErrorInfo.category` of `external-api.md` section 2."""

    TEMPORARY = "TEMPORARY"
    PERMANENT = "PERMANENT"
    TIMEOUT = "TIMEOUT"
    SYSTEM = "SYSTEM"


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """Why an attempt failed: `ErrorInfo` and the diagnostics of `FailureInfo`."""

    message: str
    category: ErrorCategory = ErrorCategory.TEMPORARY
    code: str = ""
    stack_trace: str = ""
    context: Mapping[str, str] = field(default_factory=dict)


class Outcome(NamedTuple):
    """One thing that happened to one job; batches of these are settled in one transaction.

    `token` None is allowed to administrators and to the library only. `retry_after_s`
    overrides the backoff of a FAIL and delays a RETRY_NOW and a RELEASE; `reset_attempts` and
    `priority` belong to RETRY_NOW. `assignee_id` says whose word it is: a token that was given to
    another assignee is stale then. `reason` is why a CANCEL was asked for. `worker_plane` outcomes
    are bent by WHILE_CANCELLING where the library's call would be an InvalidTransition.
    """

    job_id: str
    event: Event
    namespace: str = "default"
    token: str | None = None
    result: bytes | None = None
    result_content_type: str = OCTETS
    error: ErrorInfo | None = None
    retry_after_s: float | None = None
    worker_plane: bool = False
    reason: str = ""
    reset_attempts: bool = False
    priority: Priority | None = None
    assignee_id: str | None = None


class Settled(NamedTuple):
    """The answer to one Outcome: exactly one of `state` and `error` is set.

    `freed_assignee_id` is the assignee that got a slot back, if one did. `repeated` says
    that this very outcome had been stored before and nothing was written.
    """

    job_id: str
    namespace: str
    state: JobState | None = None
    error: QueueError | None = None
    freed_assignee_id: str | None = None
    repeated: bool = False
