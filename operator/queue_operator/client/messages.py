"""What the client gets of webhooks."""

from datetime import datetime

from queue_operator.client.models import Received
from queue_operator.domain.views import Phase


class WebhookMessage(Received):
    """What is told of one end of a job, `job_state`. `state` is PENDING, DELIVERED or FAILED;
    `tries` were made so far, and `last_at`, `last_status` and `last_error` are of the last one.
    """

    id: str
    namespace: str
    job_id: str
    type: str
    url: str
    job_state: Phase
    finalized_at: datetime
    attempt: int
    state: str
    tries: int = 0
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_status: int | None = None
    last_error: str = ""
    created_at: datetime


class WebhookList(Received):
    """A page of messages, newest first."""

    messages: tuple[WebhookMessage, ...]
    next_cursor: str | None = None
    has_more: bool = False


class WebhookRedeliveryResult(Received):
    """How many are told once more; of a dry run: would be. `has_more`: call again."""

    redelivered: int
    dry_run: bool = False
    has_more: bool = False


class WebhookPurgeResult(Received):
    """How many were deleted; of a dry run: would be. `has_more`: call again."""

    purged: int
    dry_run: bool = False
    has_more: bool = False
