"""Every error the product raises on purpose.

QueueError
├── InvalidArgument     the caller's fault: a field is wrong; do not retry unchanged
│   ├── PayloadTooLarge     a field is over its size limit
│   ├── DuplicateJob        the id, or an id of the batch, is taken
│   └── KeyConflict         the idempotency key belongs to a job with other content
├── JobNotFound         no such job in this namespace
├── PositionExpired     what happened since a position is not known any more; begin anew
├── MessageNotFound     no such message of a webhook in this namespace
├── InvalidTransition   the job's state does not allow it
├── StaleLease          the token is not the current one: somebody claimed since
├── Unauthenticated     no credentials, or credentials nobody vouches for
├── Forbidden           known, but not allowed
├── QuotaExceeded       over a limit; retry after `retry_after_s`, not at all where that is None
└── Unavailable         the store or the cluster cannot be reached; retry with backoff
    ├── AccessRefused       the database turns this user away, or there is no such database
    ├── SchemaMismatch      the database's schema and this release do not fit each other
    └── MissingPrivilege    the database role may not do what the queue needs
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

PENDING_JOBS: Final = "pending_jobs"
"""The limit of a quota that is no rate."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of the things that are wrong, by field. `job_id` is the job that has what is taken."""

    field: str
    code: str
    message: str
    job_id: str = ""


class QueueError(Exception):
    """Base of all. `code` is stable and machine-readable, `retryable` says whether the
    same call may succeed later. Where more than one thing is wrong, `findings` are all of them.
    Where a server refused a request of the REST client, `request_id` finds it in the server's log,
    and `findings` are the details that it told.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    retryable: bool = False
    request_id: str = ""
    findings: tuple[Fault, ...] = ()

    @property
    def message(self) -> str:
        return str(self)


_NAMED: Final = 5
E = TypeVar("E", bound=QueueError)


def with_findings(error: E, findings: Sequence[Fault], count: int) -> E:
    """The error as the first of `count` things that are wrong, of which `findings` are told."""
    error.findings = tuple(findings)
    more = count - (len(error.indexes) if isinstance(error, DuplicateJob) else 1)
    if more > 0:
        error.args = (f"{error} (and {more} more)",)
    return error


class InvalidArgument(QueueError):
    """A field failed validation; `field` names it as the caller wrote it."""

    code = "INVALID_REQUEST"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class PayloadTooLarge(InvalidArgument):
    """A field holds more bytes than its limit."""

    code = "PAYLOAD_TOO_LARGE"

    def __init__(self, field: str, size: int, limit: int) -> None:
        super().__init__(
            field,
            f"{size} bytes is over the limit of {limit}; store it elsewhere and pass a reference",
        )
        self.size = size
        self.limit = limit


class DuplicateJob(InvalidArgument):
    """One or more ids exist already. `indexes` are positions in the batch; the text names a few."""

    code = "DUPLICATE"

    def __init__(self, job_ids: tuple[str, ...], indexes: tuple[int, ...] = (0,)) -> None:
        more = max(len(job_ids), len(indexes)) - _NAMED
        others = f" and {more} more" if more > 0 else ""
        super().__init__("id", f"already exists: {', '.join(job_ids[:_NAMED])}{others}")
        self.job_ids = job_ids
        self.indexes = indexes


class KeyConflict(InvalidArgument):
    """The idempotency key belongs to the stored job `job_id`, whose content differs. Of a batch in
    which several do, `indexes` are their positions and `job_ids` the jobs that have their keys.
    """

    code = "DUPLICATE"

    def __init__(
        self,
        key: str,
        job_id: str,
        field: str = "idempotency_key",
        indexes: tuple[int, ...] = (),
        job_ids: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            field,
            f"{key!r} belongs to job {job_id!r} with other content; use a new key for new content",
        )
        self.key = key
        self.job_id = job_id
        self.indexes = indexes
        self.job_ids = job_ids if indexes else (job_id,)


class JobNotFound(QueueError):
    code = "NOT_FOUND"

    def __init__(self, job_id: str, namespace: str) -> None:
        super().__init__(f"job {job_id!r} does not exist in namespace {namespace!r}")
        self.job_id = job_id
        self.namespace = namespace


class PositionExpired(QueueError):
    """What happened since a position in the stream of events cannot be told any more."""

    code = "POSITION_EXPIRED"

    def __init__(
        self,
        text: str = "what happened since is not kept any more, or happened in another database: "
        "begin anew, without Last-Event-ID, and look once at the jobs that matter",
    ) -> None:
        super().__init__(text)


class MessageNotFound(QueueError):
    """Perhaps no more: what was delivered is kept for a while only."""

    code = "NOT_FOUND"

    def __init__(self, message_id: str, namespace: str) -> None:
        super().__init__(f"message {message_id!r} does not exist in namespace {namespace!r}")
        self.message_id = message_id
        self.namespace = namespace


class InvalidTransition(QueueError):
    code = "INVALID_TRANSITION"

    def __init__(self, job_id: str, state: str, event: str) -> None:
        super().__init__(f"job {job_id!r} is {state}: {event} is not possible from there")
        self.job_id = job_id
        self.state = state
        self.event = event


class StaleLease(QueueError):
    code = "STALE_LEASE"

    def __init__(self, job_id: str, *, empty: bool = False) -> None:
        wrong = (
            "is empty, which is nobody's: give the token of the claim, or None to act without one"
            if empty
            else "is no longer current"
        )
        super().__init__(f"the lease token for job {job_id!r} {wrong}")
        self.job_id = job_id


class Unauthenticated(QueueError):
    code = "UNAUTHORIZED"


class Forbidden(QueueError):
    code = "FORBIDDEN"


class QuotaExceeded(QueueError):
    """`retry_after_s` is None for a batch of so many `jobs` that never fits as a whole."""

    code = "QUOTA_EXCEEDED"
    retryable = True

    def __init__(
        self, limit: str, current: int, maximum: int, retry_after_s: float | None, jobs: int = 0
    ) -> None:
        text = f"{current} of {maximum} used; retry in {retry_after_s or 0:g} s"
        if retry_after_s is None:
            text = (
                f"a batch of {jobs} jobs never fits into {maximum}; "
                "split it, or ask for a larger quota"
            )
        super().__init__(f"{limit}: {text}")
        self.retryable = retry_after_s is not None
        self.limit = limit
        self.current = current
        self.maximum = maximum
        self.retry_after_s = retry_after_s
        self.jobs = jobs

    def is_hopeless_for(self, jobs: int) -> bool:
        """More jobs at once than may ever wait are refused however often they are sent."""
        over = self.limit == PENDING_JOBS and jobs > self.maximum
        return over or self.retry_after_s is None


class Unavailable(QueueError):
    code = "UNAVAILABLE"
    retryable = True


class AccessRefused(Unavailable):
    """Heals when the address is set right, or when somebody makes what it names at the server: the
    user, the password, the database, or the rule that lets them in.
    """


class SchemaMismatch(Unavailable):
    """Heals when somebody migrates the database, or installs the release that it fits."""


class MissingPrivilege(Unavailable):
    """Heals when the owner of the schema grants what the message names."""
