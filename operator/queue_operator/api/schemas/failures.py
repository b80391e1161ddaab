"""What failed, and why."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field, StrictBool

from queue_operator.api.scalars import Timestamp
from queue_operator.api.schemas.base import Answer, Cursor, Name, NamespaceQuery, Request
from queue_operator.api.schemas.searches import PAGE, Limit, Most, any_of, something
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.views import Phase
from queue_operator.queue.bulk import MOST_JOBS

FailurePhase = Literal[Phase.FAILED, Phase.DEAD_LETTER, Phase.RETRYING]


class FailureQuery(NamespaceQuery):
    """What a look at a failure takes."""

    include_all_attempts: bool = Field(False, description="Include every attempt of the job.")


class TimeRange(Request):
    """Bounds of a time, both exclusive."""

    after: Timestamp | None = None
    before: Timestamp | None = None


class Pagination(Request):
    """Which page."""

    cursor: Cursor | None = Field(
        None, description="`next_cursor` of the page before; good for the same search only."
    )
    limit: Limit = Field(PAGE, description="Most failures of one page.")


class FailureCriteria(Request):
    """Filters that must all hold; one that is left out does not filter."""

    states: list[FailurePhase] = any_of()
    failure_category: list[ErrorCategory] = any_of()
    types: list[Name] = any_of()
    error_code: Name | None = None
    time_range: TimeRange | None = Field(None, description="Of the failure.")


class FailureSearch(FailureCriteria):
    """Jobs whose last attempt failed, the newest failure first."""

    pagination: Pagination = Pagination()


class First(Request):
    """How many of those that match."""

    limit: Most = Field(MOST_JOBS, description="Most jobs of this request.")


class FailureFilter(FailureCriteria):
    """Which failed jobs a change is for: those that failed last."""

    model_config = ConfigDict(json_schema_extra=something(FailureCriteria))

    all: StrictBool = Field(
        False, description="Must be said where nothing else is: every failed job of the namespace."
    )
    pagination: First = First()

    def says_nothing(self) -> bool:
        """Whether every failed job is meant, and that is not said."""
        return self.model_copy(update={"pagination": First()}) == FailureFilter()


class FailureInfo(Answer):
    """How one attempt failed."""

    attempt: int | None = Field(
        description="Null where a search does not know it: the job was assigned again since."
    )
    timestamp: datetime | None
    duration_ms: int | None = Field(
        description="Null where it never started, and as `worker_id` is."
    )
    category: ErrorCategory
    code: str
    message: str
    stack_trace: str | None = None
    context: dict[str, str]
    worker_id: str | None = Field(
        description="The worker that ran it. Null in a search for a job that was assigned again "
        "since it failed: ask for the failure of that job."
    )
    host: str | None = Field(None, description="Where that worker was; null where it is not known.")


class AttemptResult(StrEnum):
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"


class AttemptInfo(Answer):
    """One execution."""

    attempt: int
    started_at: datetime
    finished_at: datetime | None
    result: AttemptResult | None = Field(description="Null while it runs.")
    worker_id: str = Field(description="The worker that ran it.")
    host: str | None = Field(description="Where that worker was; null where it is not known.")
    failure: FailureInfo | None = Field(None, description="Unless it succeeded.")


class FailureDetails(Answer):
    """Why a job failed."""

    job_id: str
    type: str
    state: Phase = Field(description="As it is now.")
    final_state: FailurePhase | None = Field(
        description="RETRYING while the job goes on; null once it has ended in another way."
    )
    total_attempts: int = Field(description="All that were made, whatever a retry has reset.")
    failure: FailureInfo
    attempts: list[AttemptInfo] | None = Field(None, description="Only with include_all_attempts.")


class FailureSearchResult(Answer):
    """One page, and how all that match spread."""

    failures: list[FailureDetails]
    total_count: int
    next_cursor: str | None = Field(description="Null on the last page.")
    by_category: dict[ErrorCategory, int]
    by_code: dict[str, int]
    by_type: dict[str, int]
