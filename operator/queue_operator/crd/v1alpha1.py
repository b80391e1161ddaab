"""QueueJob and QueueWorker, version v1alpha1. The manifests in `crds/` are made from these."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from queue_operator.crd.duration import Duration
from queue_operator.domain.limits import (
    DEFAULT_LIMITS,
    MAX_ATTEMPTS_BOUND,
    MAX_CAPACITY,
    MAX_DELAYS,
    MAX_MULTIPLIER,
    MAX_URL_CHARACTERS,
)
from queue_operator.domain.numbers import number, whole
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import BackoffStrategy
from queue_operator.domain.shown import SHOWN_MESSAGE, SHOWN_RESULT_BYTES
from queue_operator.domain.states import JobState
from queue_operator.domain.views import Phase

MAX_NAME = DEFAULT_LIMITS.id_characters
MAX_TAGS = DEFAULT_LIMITS.tags
MAX_TAG = DEFAULT_LIMITS.tag_characters
MAX_PAYLOAD_TEXT = 256 * 1024
MAX_MESSAGE = SHOWN_MESSAGE
MAX_SUMMARY_BYTES = SHOWN_RESULT_BYTES
MAX_COLUMN = 64
"""Characters of a list that a table of workers shows."""

AnyJson = Annotated[Any, WithJsonSchema({"x-kubernetes-preserve-unknown-fields": True})]
Tag = Annotated[str, Field(min_length=1, max_length=MAX_TAG)]
TagValue = Annotated[str, Field(max_length=MAX_TAG)]


def _seen(text: object) -> object:
    """Names may be longer where the limits of the server are wider than the definition."""
    is_long = isinstance(text, str) and len(text) > MAX_NAME
    return f"{str(text)[: MAX_NAME - 1]}…" if is_long else text


Seen = Annotated[str, BeforeValidator(_seen), Field(max_length=MAX_NAME)]
_WHOLE = BeforeValidator(whole)
_NUMBER = BeforeValidator(number)
# The bounds are nearer to the type, where the schema looks for them.
Multiplier = Annotated[float, Field(ge=1, le=MAX_MULTIPLIER), _NUMBER]
Attempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS_BOUND), _WHOLE]
Capacity = Annotated[int, Field(ge=0, le=MAX_CAPACITY), _WHOLE]


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class BackoffSpec(_Model):
    """How long to wait before a retry."""

    strategy: BackoffStrategy | None = Field(
        None, description="EXPONENTIAL (the default, with full jitter) and the exact others."
    )
    initial_delay: Duration | None = Field(
        None, description="Before the first retry. Default PT0.5S."
    )
    max_delay: Duration | None = Field(
        None, description="No wait is longer. Default PT30S for EXPONENTIAL, else none."
    )
    multiplier: Multiplier | None = Field(
        None, description="Growth per retry, for EXPONENTIAL. Default 2."
    )
    delays: list[Duration] | None = Field(
        None,
        min_length=1,
        max_length=MAX_DELAYS,
        description="For CUSTOM: the wait before each retry; the last one repeats.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class QueueJobSpec(_Model):
    """What to run, and how. Only `cancel`, `priority` and `suspend` may change after creation."""

    type: str = Field(
        min_length=1,
        max_length=MAX_NAME,
        description="Job type: selects the handler in the worker.",
    )
    payload: AnyJson = Field(
        None,
        description="Any JSON value for the handler. Give this or payloadText. Integers beyond "
        "64 bits, the spelling of numbers and a bare null survive only in payloadText.",
    )
    payload_text: str | None = Field(
        None,
        max_length=MAX_PAYLOAD_TEXT,
        description="A JSON document as text; the handler gets exactly these bytes.",
    )
    priority: Priority | None = Field(
        None,
        description="Default NORMAL. Another one counts from when the job waits, as if it had been "
        "submitted with it.",
    )
    delay: Duration | None = Field(
        None,
        description='Wait before the first run: whole seconds, or text ("90s", "1h30m", "PT5M"). '
        "Not together with scheduledAt.",
    )
    scheduled_at: AwareDatetime | None = Field(
        None, description="Earliest time of the first run. Not together with delay."
    )
    timeout: Duration | None = Field(
        None, description="Longest run of one attempt. Default: the handler's, else none."
    )
    max_attempts: Attempts | None = Field(
        None,
        description="Runs before it counts as failed. Default: the handler's, else 4.",
    )
    backoff: BackoffSpec | None = Field(None, description="Waits between attempts.")
    correlation_id: str | None = Field(
        None, max_length=MAX_NAME, description="Passed through for tracing."
    )
    idempotency_key: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_NAME,
        description="Unique in the namespace while its job is stored. A QueueJob whose key belongs "
        "to a job of the same content shows that job and runs nothing; of other content, it is "
        "refused.",
    )
    tags: dict[str, TagValue] | None = Field(
        None,
        max_length=MAX_TAGS,
        description="Labels of the job. A worker with tags takes only jobs that carry them all "
        "as `key=value`; a key with an empty value is the bare key.",
    )
    callback_url: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_URL_CHARACTERS,
        description="Absolute http or https URL that is told whenever the job has ended.",
    )
    suspend: bool | None = Field(
        None,
        description="While true, no attempt begins; one that runs goes on. Set it to false to let "
        "the job run, in the place that it had.",
    )
    cancel: bool | None = Field(
        None,
        description="Set to true to cancel. A running handler sees it at its next checkpoint; "
        "deleting the object interrupts it.",
    )


class ConditionType(StrEnum):
    ACCEPTED = "Accepted"
    COMPLETE = "Complete"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    SUSPENDED = "Suspended"
    STALLED = "Stalled"
    READY = "Ready"
    SPEC_APPLIED = "SpecApplied"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(_Model):
    """A `metav1.Condition`."""

    type: str = Field(max_length=316, description="Kind of condition.")
    status: ConditionStatus = Field(description="Whether it holds.")
    reason: str = Field(
        min_length=1,
        max_length=MAX_TAG,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="One word for why.",
    )
    message: str = Field("", max_length=MAX_MESSAGE, description="The same for people.")
    last_transition_time: datetime = Field(description="Since when it has been so.")
    observed_generation: int | None = Field(
        None, ge=0, description="Generation of the spec it speaks of."
    )


ConditionList = Annotated[
    list[Condition],
    Field(
        max_length=8,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    ),
]


class ResourcePhase(StrEnum):
    """The phases of a job, and that of a QueueJob whose spec was refused: there is no job."""

    PENDING = Phase.PENDING.value
    DELAYED = Phase.DELAYED.value
    SCHEDULED = Phase.SCHEDULED.value
    RUNNING = Phase.RUNNING.value
    RETRYING = Phase.RETRYING.value
    COMPLETED = Phase.COMPLETED.value
    FAILED = Phase.FAILED.value
    DEAD_LETTER = Phase.DEAD_LETTER.value
    CANCELLED = Phase.CANCELLED.value
    REJECTED = "REJECTED"


class ShownProgress(_Model):
    """How far the attempt that runs has come."""

    percent: int | None = Field(None, ge=0, le=100, description="Of the work, as its handler says.")
    message: str | None = Field(None, max_length=MAX_MESSAGE, description="What it is at.")
    updated_at: datetime | None = Field(None, description="When the handler said so.")


class QueueJobStatus(_Model):
    """A mirror of the job in the database, written by the operator only."""

    state: JobState | None = Field(None, description="The job's state.")
    phase: ResourcePhase | None = Field(
        None,
        description="The state as the REST API and the command line show it. REJECTED: the spec "
        "was refused, and no job was made. PENDING without a state: no job is stored yet.",
    )
    finished: bool | None = Field(None, description="True when nothing more will happen.")
    observed_generation: int | None = Field(
        None, ge=0, description="Generation of the spec that was taken in."
    )
    transition: int | None = Field(
        None, ge=0, description="Number of the job's transition; never goes down."
    )
    attempt: int | None = Field(None, ge=0, description="Attempts so far.")
    max_attempts: int | None = Field(
        None, ge=0, description="Their bound; absent until known, or when there is none."
    )
    worker: Seen | None = Field(None, description="Worker of the newest attempt.")
    job_id: Seen | None = Field(None, description="The job's id at the other doors.")
    assigned_at: datetime | None = Field(None, description="When a worker last got it.")
    started_at: datetime | None = Field(None, description="When it first ran.")
    finalized_at: datetime | None = Field(None, description="When it ended.")
    progress: ShownProgress | None = Field(
        None, description="Of a job that runs and tells it; written every ten seconds at most."
    )
    reason: str | None = Field(None, max_length=MAX_TAG, description="One word for why.")
    message: str | None = Field(None, max_length=MAX_MESSAGE, description="The newest error.")
    result_summary: str | None = Field(
        None,
        max_length=MAX_SUMMARY_BYTES,
        description="Beginning of the result; the whole is at the REST API.",
    )
    gc_bucket: str | None = Field(
        None, max_length=32, description="Hour in which it ended (UTC), for collective deletion."
    )
    conditions: ConditionList | None = Field(None, description="What tools wait for.")


class QueueWorkerSpec(_Model):
    """What an administrator asks of a worker beyond what it declares. Usually empty."""

    capacity: Capacity | None = Field(None, description="Jobs at once.")
    tags: list[Tag] | None = Field(
        None,
        max_length=MAX_TAGS,
        description="Tags a job must carry.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    drain: bool | None = Field(None, description="Take no more jobs.")


class Declared(_Model):
    """What the worker said of itself when it connected."""

    capacity: int | None = Field(None, ge=0, description="Jobs at once.")
    tags: list[str] | None = Field(
        None,
        description="Tags a job must carry.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    types: list[str] | None = Field(
        None,
        description="Job types it has handlers for; none: any.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class Effective(Declared):
    """What the queue goes by."""


class QueueWorkerStatus(_Model):
    """A worker's session, written by the operator only."""

    declared: Declared | None = Field(None, description="What the worker said.")
    effective: Effective | None = Field(None, description="What the queue goes by.")
    types_text: str | None = Field(
        None, max_length=MAX_COLUMN, description="The types in effect, as a column; * for any."
    )
    tags_text: str | None = Field(
        None, max_length=MAX_COLUMN, description="The tags in effect, as a column; - for none."
    )
    slots: int | None = Field(None, ge=0, description="Jobs it may hold at once.")
    busy: int | None = Field(None, ge=0, description="Jobs it holds.")
    draining: bool | None = Field(None, description="Takes no more jobs.")
    session_id: Seen | None = Field(None, description="Assignee of its jobs.")
    host: Seen | None = Field(None, description="Where it runs.")
    pod_uid: Seen | None = Field(None, description="Uid of its pod.")
    heartbeat_time: datetime | None = Field(None, description="When it was last heard of.")
    version: Seen | None = Field(None, description="Version of its SDK.")
    observed_generation: int | None = Field(None, ge=0, description="Generation seen.")
    conditions: ConditionList | None = Field(None, description="Ready, and SpecApplied.")
