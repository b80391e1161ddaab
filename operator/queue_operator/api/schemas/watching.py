"""How the queue does, for whoever watches it."""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field

from queue_operator.api.scalars import Elapsed, QueryDuration
from queue_operator.api.schemas.base import Answer, Name, NamespaceQuery
from queue_operator.api.schemas.jobs import JobExplanation, JobStatus
from queue_operator.api.schemas.searches import DIGITS
from queue_operator.api.schemas.statistics import LatencyStats
from queue_operator.domain.outcome import ErrorCategory
from queue_operator.domain.situation import Code, Level
from queue_operator.queue.watching import MOST_OLDEST


class VerdictQuery(NamespaceQuery):
    """What a verdict takes."""

    type: Name | None = Field(None, description="Only on jobs of this type; default: on all.")


class Cause(Answer):
    """One thing that keeps jobs back."""

    code: Code
    level: Level
    message: str
    types: list[str] = Field(description="The first of those it is about; empty: all.")
    evidence: dict[str, int | float | str] = Field(description="What was counted.")
    next_step: str
    command: str = Field(description="What to type next; empty where no command helps.")
    runbook: str = Field(
        description="Where the runbook tells more: a section of `rest.runbook_url`."
    )


class Verdict(Answer):
    """How a namespace does, or one type in it, in a sentence."""

    namespace: str
    type: str | None
    at: datetime
    level: Level = Field(
        description="HEALTHY: all that could run does, or soon will. BUSY: it waits for slots. "
        "DEGRADED: a part of it fails, is late, or cannot start. STUCK: nothing of what waits can."
    )
    sentence: str
    causes: list[Cause] = Field(description="The worst first, of which the sentence tells.")
    due: int = Field(description="Jobs that could run now.")
    running: int
    later: int = Field(description="Jobs that wait for a time, for other jobs, or to be resumed.")
    workers: int = Field(description="Connected, and heard of within 15 seconds.")
    slots: int = Field(description="Of these workers.")
    busy: int = Field(description="Slots that are taken.")


class Worker(Answer):
    """A connected worker."""

    name: str
    session_id: str
    host: str
    version: str
    replica: str = Field(description="The replica of the operator that it is connected to.")
    types: list[str] = Field(description="What it handles; empty: any type.")
    tags: list[str] = Field(description="What a job must carry.")
    capacity: int
    busy: int
    draining: bool
    connected_at: datetime | None
    heartbeat_at: datetime | None = Field(description="When it was heard of last.")


class LostWorker(Answer):
    """A worker that went without a goodbye: its process, its machine or its network failed."""

    state: Literal["LOST"]
    name: str
    session_id: str
    host: str
    version: str
    types: list[str] = Field(description="What it handled; empty: any type.")
    capacity: int
    jobs: int = Field(description="That it had, and that were taken from it to be run again.")
    lost_at: datetime


class WorkerList(Answer):
    workers: list[Worker]
    lost: list[LostWorker] = Field(
        description="Those that went without a goodbye within ten minutes, and of whose name none "
        "has come since; the newest first, at most 200."
    )


class OldestQuery(NamespaceQuery):
    """What a look at the oldest takes."""

    limit: Annotated[int, DIGITS] = Field(10, ge=1, le=MOST_OLDEST, description="At most.")


class WaitingJob(Answer):
    """A job that could run, and why it does not."""

    job: JobStatus
    why: JobExplanation


class WaitingList(Answer):
    waiting: list[WaitingJob] = Field(
        description="Of the jobs that were submitted first; the longest due first."
    )


class FailingQuery(NamespaceQuery):
    """What a look at the types that fail takes."""

    type: Name | None = Field(None, description="Only this type; default: all.")
    time_range: QueryDuration = Field(
        timedelta(hours=1), description="How far back; begun at a full minute."
    )


class FailureCluster(Answer):
    """Failures of one type and code whose messages differ only in times, ids, addresses, numbers
    and what is quoted.
    """

    code: str
    category: ErrorCategory
    shape: str = Field(description="The message without what differs.")
    count: int
    newest_at: datetime | None
    job_id: str = Field(description="Of the newest.")
    message: str = Field(description="Of the newest.")


class FailingType(Answer):
    """A type of which attempts failed."""

    type: str
    attempts_failed: int = Field(description="In the window, tried again or not.")
    completed: int = Field(description="In the window.")
    clusters: list[FailureCluster] = Field(description="The most frequent of those that were read.")


class FailingTypes(Answer):
    """The worst first."""

    since: datetime
    read: int = Field(description="How many jobs whose last attempt failed were read.")
    is_complete: bool = Field(description="False: there are more, and the newest were read.")
    types: list[FailingType]


class SeriesQuery(NamespaceQuery):
    """What a series takes."""

    time_range: QueryDuration = Field(timedelta(hours=1), description="How far back.")


class SeriesPoint(Answer):
    """What happened from `begins_at` until the next point."""

    begins_at: datetime
    submitted: int
    completed: int
    failed: int = Field(description="Ended by a permanent failure; the state FAILED.")
    dead_letter: int = Field(description="Ended with no attempt left; the state DEAD_LETTER.")
    cancelled: int
    attempts_failed: int = Field(description="Tried again or not.")
    queue_latency: LatencyStats = Field(description="From the time a job was due to its start.")
    execution_time: LatencyStats = Field(description="From its start to its outcome.")


class StatsSeries(Answer):
    """At most 121 points, none left out; the last one is not over."""

    until: datetime
    step: Elapsed = Field(description="From one point to the next.")
    points: list[SeriesPoint]


class JobRights(Answer):
    """By the verbs of `queuejobs`."""

    get: bool = Field(description="Look at a job.")
    list: bool = Field(description="Search, statistics, this verdict.")
    create: bool = Field(description="Submit.")
    update: bool = Field(description="Cancel, retry, suspend, pause.")
    delete: bool


class WorkerRights(Answer):
    """By the verbs of `queueworkers`."""

    patch: bool = Field(description="Drain a worker, by its QueueWorker.")


class Access(Answer):
    """What the caller may do in a namespace."""

    name: str = Field(description="Whom the server takes the caller for.")
    namespace: str
    namespaces: list[str] = Field(
        description="Those that the token names; a caller may have rights in others."
    )
    jobs: JobRights
    workers: WorkerRights
