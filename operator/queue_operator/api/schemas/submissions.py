"""Jobs on their way in."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, StrictBool

from queue_operator.api.scalars import NUMBER, WHOLE, Duration, PositiveDuration, Timestamp
from queue_operator.api.schemas.base import Answer, Name, Request, Tags, Text
from queue_operator.api.schemas.errors import ItemError
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.limits import (
    BATCH_JOBS,
    DEFAULT_LIMITS,
    MAX_ATTEMPTS_BOUND,
    MAX_DELAYS,
    MAX_MULTIPLIER,
    MAX_URL_CHARACTERS,
)
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import DEFAULT_BACKOFF, BackoffStrategy
from queue_operator.domain.views import Phase


def _where(**properties: Any) -> dict[str, Any]:
    """A schema that holds where these properties are as said, or left out."""
    return {"properties": properties}


_NULL: Final = {"type": "null"}
_CUSTOM: Final = {"const": BackoffStrategy.CUSTOM.value}
_BACKOFF_RULES: Final[dict[str, Any]] = {
    "oneOf": [
        {"required": ["strategy", "delays"], **_where(strategy=_CUSTOM, delays={"type": "array"})},
        _where(strategy={"not": _CUSTOM}, delays=_NULL),
    ]
}
_SUBMISSION_RULES: Final[dict[str, Any]] = {
    "allOf": [
        {
            "oneOf": [
                {"required": ["payload"], **_where(payload_base64=_NULL)},
                {
                    "required": ["payload_base64"],
                    **_where(payload_base64={"type": "string"}),
                    "not": {"required": ["payload"]},
                },
            ]
        },
        {"anyOf": [_where(delay=_NULL), _where(scheduled_at=_NULL)]},
    ]
}
_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class BackoffConfig(Request):
    """How long to wait before a retry."""

    model_config = ConfigDict(json_schema_extra=_BACKOFF_RULES)

    strategy: BackoffStrategy = BackoffStrategy.EXPONENTIAL
    initial_delay: Duration | None = Field(
        None, description=f"Before the first retry; default {DEFAULT_BACKOFF.initial_delay_s:g} s."
    )
    max_delay: Duration | None = Field(
        None,
        description=f"Longest delay; default {DEFAULT_BACKOFF.max_delay_s:g} s for EXPONENTIAL, "
        "none for the others.",
    )
    multiplier: Annotated[float, Field(ge=1, le=MAX_MULTIPLIER), NUMBER] = Field(
        DEFAULT_BACKOFF.multiplier, description="Growth for EXPONENTIAL."
    )
    delays: list[Duration] | None = Field(
        None,
        min_length=1,
        max_length=MAX_DELAYS,
        description="For CUSTOM: the delay before each retry; the last repeats.",
    )


StoredJob = Annotated[str, Field(json_schema_extra={"format": "job-id"})]
"""The id of a job that exists, or is in the same batch."""

DependsOn = Annotated[list[StoredJob], Field(json_schema_extra={"uniqueItems": True})]

CallbackUrl = Annotated[
    str,
    Field(
        min_length=1, max_length=MAX_URL_CHARACTERS, json_schema_extra={"format": "callback-url"}
    ),
]
"""Which ones are taken is a matter of settings, and of no pattern."""


class JobSubmission(Request):
    """One job. Exactly one of `payload` and `payload_base64` must be given, and at most one of
    `delay` and `scheduled_at`.
    """

    model_config = ConfigDict(json_schema_extra=_SUBMISSION_RULES)

    job_id: Name | None = Field(None, description="The caller's own id; default: a new UUIDv7.")
    type: Name = Field(description="Job type: which handler runs it.")
    payload: Any = Field(None, description="Any JSON value; handlers get it as JSON.")
    payload_base64: Annotated[str, Field(json_schema_extra={"pattern": _BASE64})] | None = Field(
        None, description="Bytes, passed on as they are."
    )

    priority: Priority = Priority.NORMAL
    delay: Duration | None = Field(None, description="Not before this long after submission.")
    scheduled_at: Timestamp | None = Field(None, description="Not before this time.")

    timeout: PositiveDuration | None = Field(None, description="Limit of one execution.")
    max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS_BOUND), WHOLE] | None = Field(
        None, description="Default: the handler's registration, else 4."
    )
    backoff: BackoffConfig | None = None

    idempotency_key: Name | None = Field(
        None,
        description="The same submission again under the same key stores nothing: the answer is "
        "DUPLICATE and names the first job. Kept as long as that job is stored.",
    )
    correlation_id: Text | None = None
    tags: Tags | None = None

    depends_on: DependsOn | None = Field(
        None,
        description="Ids of jobs of the namespace, or of the same batch, that must end first; "
        f"at most {DEFAULT_LIMITS.dependencies}.",
    )
    dependency_type: DependencyMode = Field(
        DependencyMode.AFTER,
        description="AFTER: all have completed; AFTER_ANY: one has; CHAIN: as AFTER, and the "
        "handler gets the output of the last.",
    )
    suspended: StrictBool = Field(
        False, description="The job waits until it is resumed, whatever else it waits for."
    )
    callback_url: CallbackUrl | None = Field(
        None,
        description="Who is told whenever the job has ended: http or https, without credentials.",
    )


# What is wrong with one job is no fault of a batch that is not atomic.
_BATCH_RULES: Final[dict[str, Any]] = {
    "if": {"required": ["atomic"], **_where(atomic={"const": False})},
    "else": _where(jobs={"items": {"$ref": "#/components/schemas/JobSubmission"}}),
}


def _batch_schema(schema: dict[str, Any]) -> None:
    schema["properties"]["jobs"]["items"] = {}
    schema.update(_BATCH_RULES)


class BatchSubmission(Request):
    """Many jobs."""

    model_config = ConfigDict(json_schema_extra=_batch_schema)

    jobs: list[JobSubmission] = Field(
        min_length=1, max_length=BATCH_JOBS, description=f"1 to {BATCH_JOBS} of them."
    )
    atomic: StrictBool = Field(True, description="All or nothing.")


class SubmissionStatus(StrEnum):
    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    REJECTED = "REJECTED"


class SubmissionResult(Answer):
    """What became of one submission."""

    job_id: str | None = Field(description="Null for a rejected job without an own id.")
    status: SubmissionStatus
    state: Phase | None = None
    created_at: datetime | None = None
    scheduled_for: datetime | None = Field(
        None, description="When it may start; null while it waits for others."
    )
    existing_job_id: str | None = Field(
        None, description="With DUPLICATE: the job that was stored under the key before."
    )
    error: ItemError | None = Field(None, description="Set when rejected.")


class BatchResult(Answer):
    """What became of a batch; `results` in the order of the submissions. Duplicates count as
    accepted.
    """

    total: int
    accepted: int
    rejected: int
    results: list[SubmissionResult]
