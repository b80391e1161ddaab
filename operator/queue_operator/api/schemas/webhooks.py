"""Messages to those who are told of the ends of jobs."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StrictBool

from queue_operator.api.schemas.base import Answer, Cursor, Name, NamespaceQuery, Request
from queue_operator.api.schemas.searches import DIGITS, MOST, PAGE
from queue_operator.backends.webhooks import MessageState
from queue_operator.domain.views import Phase

MOST_MESSAGES: Final = 10_000
"""Of one request by state."""


class WebhookListQuery(NamespaceQuery):
    """Which messages, which page."""

    state: MessageState | None = Field(None, description="Only those in this state.")
    job_id: Name | None = Field(None, description="Only those about this job.")
    cursor: Cursor | None = Field(
        None, description="`next_cursor` of the page before; good for the same search only."
    )
    limit: Annotated[int, DIGITS] = Field(
        PAGE, ge=1, le=MOST, description="Most messages of one page."
    )


class WebhookMessage(Answer):
    """What is to be told of one end of a job. It outlives the job."""

    id: str = Field(description="The receiver sees it at every try: `webhook-id`.")
    namespace: str
    job_id: str
    type: str = Field(description="That of the job.")
    url: str
    job_state: Phase = Field(description="How the job ended.")
    finalized_at: datetime
    attempt: int
    state: MessageState
    tries: int = Field(description="Made so far.")
    next_at: datetime | None = Field(description="When it is tried (again); null unless PENDING.")
    last_at: datetime | None = Field(description="Of the last try, as the next two.")
    last_status: int | None
    last_error: str
    created_at: datetime


class WebhookList(Answer):
    """One page, newest first."""

    messages: list[WebhookMessage]
    next_cursor: str | None = Field(description="Null on the last page.")
    has_more: bool


_EITHER: Final[dict[str, Any]] = {
    "oneOf": [
        {
            "required": ["ids"],
            "properties": {"ids": {"type": "array"}, "state": {"type": "null"}},
        },
        {
            "required": ["state"],
            "properties": {"state": {"type": "string"}, "ids": {"type": "null"}},
        },
    ]
}

MessageIds = Annotated[list[Name], Field(min_length=1, max_length=MOST)]


class _Messages(Request):
    model_config = ConfigDict(json_schema_extra=_EITHER)

    ids: MessageIds | None = Field(None, description="Either these messages, or a state.")
    dry_run: StrictBool = Field(False, description="Change nothing, tell what would change.")


class WebhookRedelivery(_Messages):
    """Which messages are told once more, of those that are told no more."""

    state: Literal["FAILED", "DELIVERED"] | None = Field(
        None, description=f"All that are in it, at most {MOST_MESSAGES} per request."
    )


class WebhookPurge(_Messages):
    """Which messages are deleted."""

    state: Literal["FAILED", "DELIVERED", "PENDING"] | None = Field(
        None,
        description=f"All that are in it, at most {MOST_MESSAGES} per request. One that is "
        "PENDING is never told then.",
    )


class _Changed(Answer):
    dry_run: bool
    has_more: bool = Field(description="There may be others in this state: send it again.")


class WebhookRedeliveryResult(_Changed):
    redelivered: int = Field(description="They are due now, under the same ids.")


class WebhookPurgeResult(_Changed):
    purged: int
