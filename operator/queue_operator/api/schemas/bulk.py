"""Changes to many jobs, by their ids or by what they have in common."""

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, StrictBool

from queue_operator.api.scalars import Duration
from queue_operator.api.schemas.base import Answer, Name, Reason, Request
from queue_operator.api.schemas.failures import FailureFilter
from queue_operator.api.schemas.searches import JobFilter
from queue_operator.domain.limits import REASON_CHARACTERS
from queue_operator.domain.ordering import Priority
from queue_operator.queue.bulk import MOST_JOBS

JobIds = Annotated[list[Name], Field(min_length=1, max_length=MOST_JOBS)]


class CancellationRequest(Request):
    """Why a job is cancelled, and how hard."""

    reason: Reason = Field(
        "", description=f"At most {REASON_CHARACTERS} characters; the worker sees it too."
    )
    force: StrictBool = Field(False, description="Interrupt the handler of a running job.")


class NoOptions(Request):
    """Nothing can be asked for beside the change itself."""


class RetryRequest(Request):
    """How a job is tried again."""

    reset_attempts: StrictBool = Field(False, description="Count attempts from the start again.")
    priority: Priority | None = Field(None, description="Default: as before.")
    delay: Duration | None = Field(None, description="Not before this long; default: at once.")


_EITHER: Final[dict[str, Any]] = {
    "oneOf": [
        {
            "required": ["job_ids"],
            "properties": {"job_ids": {"type": "array"}, "filter": {"type": "null"}},
        },
        {
            "required": ["filter"],
            "properties": {"filter": {"type": "object"}, "job_ids": {"type": "null"}},
        },
    ]
}


class _Many(Request):
    model_config = ConfigDict(json_schema_extra=_EITHER)

    job_ids: JobIds | None = Field(None, description="Either these jobs, or a filter.")
    dry_run: StrictBool = Field(False, description="Change nothing, tell what would change.")


class BatchCancellation(_Many):
    """Which jobs to cancel. Of a filter's jobs only those that have not ended are meant."""

    filter: JobFilter | None = None
    reason: Reason = Field(
        "", description=f"At most {REASON_CHARACTERS} characters; the workers see it too."
    )
    force: StrictBool = Field(False, description="Interrupt the handlers of running jobs.")


class BatchRetry(_Many):
    """Which jobs to try again. A filter without states means FAILED and DEAD_LETTER."""

    filter: FailureFilter | None = None
    reset_attempts: StrictBool = Field(False, description="Count attempts from the start again.")
    priority: Priority | None = Field(None, description="Default: as before.")
    delay: Duration | None = Field(None, description="Not before this long; default: at once.")


class BatchDeletion(_Many):
    """Which jobs to delete. Of a filter's jobs only those that have ended are meant."""

    filter: JobFilter | None = None


class JobError(Answer):
    """What was wrong with one job."""

    job_id: str
    code: str
    message: str


class _Changed(Answer):
    requested: int = Field(description="Jobs that were meant, at most 10000 per request.")
    skipped: int = Field(description="Nothing to do, or not possible in their state.")
    failed: int
    errors: list[JobError] = Field(description="Of those that failed.")
    dry_run: bool
    has_more: bool = Field(
        description="The filter matches more jobs: send it again. It then finds those of this "
        "request again that match it meanwhile, such as jobs that were retried and failed again."
    )


class BatchCancellationResult(_Changed):
    cancelled: int = Field(description="Cancelled, or asked to stop.")


class BatchRetryResult(_Changed):
    queued: int
    not_retriable: list[JobError] = Field(
        [], description="Of those that were skipped: why, and what to do."
    )


class BatchDeletionResult(_Changed):
    deleted: int
