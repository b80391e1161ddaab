"""How the queue does."""

from datetime import datetime, timedelta

from pydantic import Field

from queue_operator.api.scalars import Elapsed, QueryDuration
from queue_operator.api.schemas.base import MANY_TAGS, Answer, NamespaceQuery, TagName
from queue_operator.backends.statistics import Breakdown
from queue_operator.domain.ordering import Priority
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase


class StatsQuery(NamespaceQuery):
    """What statistics take."""

    breakdown_by: list[Breakdown] = Field(default_factory=list, description="Any of these.")
    time_range: QueryDuration = Field(
        timedelta(hours=1),
        description="How far back; begun at a full minute.",
    )
    tag: list[TagName] = Field(
        default_factory=list,
        json_schema_extra=MANY_TAGS,
        description="`counts`, `total` and `total_retries` of jobs with all of these tags only "
        "(`key=value`).",
    )


class LatencyStats(Answer):
    """Percentiles; null where nothing was measured. `max` is exact, the others within 1.6 %."""

    p50: Elapsed | None
    p90: Elapsed | None
    p99: Elapsed | None
    max: Elapsed | None


class Counts(Answer):
    """`pending` and `running` are jobs now. The others, each a way to end, are what happened in the
    window; a job that was tried again may have ended more than once in it.
    """

    pending: int = Field(
        description="All that wait: for other jobs, for their time, for a worker, for a retry."
    )
    running: int = Field(description="Executing, asked to stop included.")
    completed: int
    failed: int = Field(description="Ended by a permanent failure; the state FAILED.")
    dead_letter: int = Field(description="Ended with no attempt left; the state DEAD_LETTER.")
    cancelled: int = Field(description="Ended without being tried to the end.")


class QueueStats(Answer):
    """One namespace: jobs now, and what happened in the window from `since` to `until`."""

    since: datetime
    until: datetime
    pending: int = Field(description="Waiting for other jobs.")
    scheduled: int = Field(description="Ready to run, retries included.")
    running: int = Field(description="Executing, asked to stop included.")
    delayed: int = Field(description="Waiting for their time, retries included.")
    completed: int = Field(description="In the window, as the next two.")
    failed: int = Field(description="Ended by a permanent failure; dead letters are not in it.")
    dead_letter: int = Field(description="Ended with no attempt left.")
    submission_rate: float = Field(description="Per second.")
    completion_rate: float = Field(description="Per second.")
    failure_rate: float = Field(description="`failed` and `dead_letter`, per second.")
    queue_latency: LatencyStats = Field(description="From the time a job was due to its start.")
    execution_time: LatencyStats = Field(description="From its start to its outcome.")
    by_type: dict[str, Counts] | None = None
    by_priority: dict[Priority, Counts] | None = None
    by_state: dict[Phase, Counts] | None = Field(
        None, description="Each state has what its name says, and 0 for all else."
    )
    total: int
    total_retries: int
    counts: dict[JobState, int] = Field(description="Jobs by internal state, zero included.")
