"""What stores can be asked about jobs beside the core contract: search, history, failures, events.

Part of `backends.protocol`, which is where to import it from.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from queue_operator.domain.job import DEFAULT_NAMESPACE, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase


class SearchOrder(StrEnum):
    """`JobSearch.order` of `external-api.md`. Ties are in order of submission, and in the
    reverse of it where the order is descending.
    """

    CREATED_ASC = "CREATED_ASC"
    CREATED_DESC = "CREATED_DESC"
    UPDATED_DESC = "UPDATED_DESC"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearch:
    """Filters that must all hold; an empty one does not filter. `after` bounds are
    exclusive, `before` bounds too. `limit` is 1 to 1000; `cursor` is `next_cursor` of the
    page before, good for the same search only. `phases` are those of `external-api.md`, each
    as the job is seen now; a job must be in one of them, whatever `states` asks besides. Nothing
    is counted unless `count`.
    """

    namespace: str = DEFAULT_NAMESPACE
    types: frozenset[str] = frozenset()
    states: frozenset[JobState] = frozenset()
    priorities: frozenset[Priority] = frozenset()
    tags: frozenset[str] = frozenset()
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    phases: frozenset[Phase] = frozenset()
    order: SearchOrder = SearchOrder.CREATED_DESC
    limit: int = 100
    cursor: str = ""
    count: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """The jobs come without payload and result. `total_count` is exact up to `COUNT_BOUND`
    matches and a lower bound above it (`total_is_exact`), None if nothing was to be counted.
    `next_cursor` is "" on the last page.
    """

    jobs: tuple[Job, ...]
    total_count: int | None
    total_is_exact: bool = True
    next_cursor: str = ""


COUNT_BOUND = 10_000
"""How far a search counts matches one by one."""


@runtime_checkable
class Search(Protocol):
    """Finding jobs, page by page, without reading those before."""

    async def search_jobs(self, search: JobSearch) -> JobPage:
        """Raises InvalidArgument for a limit outside 1 to 1000 or a cursor of another search."""
        ...


@runtime_checkable
class Lookup(Protocol):
    """What became of many jobs."""

    async def look_up(
        self, job_ids: Collection[str], *, namespace: str = DEFAULT_NAMESPACE
    ) -> dict[str, Job]:
        """Records by id, without payload and result; those that do not exist are left out."""
        ...

    async def named_jobs(self, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """The same in any number of namespaces, by namespace and id."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a job. `version` is the lease version of its claim; `event` and `state` are
    None while it runs. `number` is the attempt as `max_attempts` counts it, `eligible_at` when the
    job was due; None where an older release ended it.
    """

    version: int
    number: int
    token: str
    assignee_id: str
    worker_name: str = ""
    host: str = ""
    assigned_at: datetime
    ended_at: datetime | None = None
    event: str | None = None
    state: JobState | None = None
    error: ErrorInfo | None = None
    eligible_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionRecord:
    """One change of a job's state. `event` is SUBMIT for the first, whose `before` is None."""

    event: str
    before: JobState | None
    after: JobState
    at: datetime
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """All attempts by version and all transitions in the order in which they happened."""

    attempts: tuple[Attempt, ...]
    transitions: tuple[TransitionRecord, ...]


@runtime_checkable
class History(Protocol):
    """What happened to one job."""

    async def get_history(self, job_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> JobHistory:
        """Raises JobNotFound."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSearch:
    """Jobs whose newest attempt failed: in DEAD_LETTER or FAILED_RETRY with an error, or those
    of `states` among the two; `phases` are FAILED, DEAD_LETTER and RETRYING, as in JobSearch.
    `failed_after` and `failed_before` bound the time of the failure, exclusive. Paging as in
    JobSearch, newest failure first.
    """

    namespace: str = DEFAULT_NAMESPACE
    states: frozenset[JobState] = frozenset()
    categories: frozenset[ErrorCategory] = frozenset()
    types: frozenset[str] = frozenset()
    error_code: str = ""
    phases: frozenset[Phase] = frozenset()
    failed_after: datetime | None = None
    failed_before: datetime | None = None
    limit: int = 100
    cursor: str = ""
    count: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePage:
    """Failed jobs, without payload and result, and how all that match spread over categories,
    codes and types; if nothing was to be counted, the total is None and the others are empty.
    """

    jobs: tuple[Job, ...]
    total_count: int | None
    next_cursor: str = ""
    by_category: Mapping[ErrorCategory, int] = field(default_factory=dict)
    by_code: Mapping[str, int] = field(default_factory=dict)
    by_type: Mapping[str, int] = field(default_factory=dict)


@runtime_checkable
class Failures(Protocol):
    """What failed, and why."""

    async def search_failures(self, search: FailureSearch) -> FailurePage:
        """Raises InvalidArgument as `search_jobs` does."""
        ...


DELETE: Final = "DELETE"
"""What stores call the removal of a job, in the event log and where its state forbids it; no event
of the state table.
"""
EVENT_SCHEMA_VERSION = 1
"""Version of the event rows written now; a reader refuses a higher one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """One row of the event log: what one statement did to many jobs alike.

    `event` is SUBMIT, DELETE or an event of the state table. The arrays are aligned by
    position; one that does not belong to the event is empty. A job is named by its number;
    its SUBMIT carries what never changes: `ids`, `correlations` ("" where there is none), and
    in `lane_of` the position in `lanes` of its namespace, type, priority and tags.
    `before` is None for SUBMIT and `after` for DELETE. Durations are in microseconds: `wait_us`
    of a CLAIM is eligible to assigned, `run_us` of an outcome assigned to outcome.
    """

    seq: int
    transaction: int
    at: datetime
    event: str
    before: JobState | None
    after: JobState | None
    job_nos: tuple[int, ...]
    attempts: tuple[int, ...] = ()
    wait_us: tuple[int, ...] = ()
    run_us: tuple[int | None, ...] = ()
    workers: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    correlations: tuple[str, ...] = ()
    lanes: tuple[Mapping[str, object], ...] = ()
    lane_of: tuple[int, ...] = ()
    failed: tuple[Mapping[str, str] | None, ...] = ()
    schema_version: int = EVENT_SCHEMA_VERSION


@runtime_checkable
class EventLog(Protocol):
    """The append-only log of what happened, as the lake reads it."""

    async def read_events(self, *, after: int = 0, limit: int = 1000) -> list[EventBatch]:
        """Rows with a `seq` above `after`, in order of it. For tests and tools: rows may commit
        out of order, so whoever must miss nothing reads by snapshot difference.
        """
        ...


@runtime_checkable
class PrunableLog(EventLog, Protocol):
    """A log of which old rows can be removed."""

    async def prune_events(self, older_than_s: float) -> int:
        """Deletes the oldest rows, as far as they are older than that and all who read them have
        them; gives how many.
        """
        ...
