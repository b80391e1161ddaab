"""Messages, as the outside sees them."""

from queue_operator.api import schemas
from queue_operator.backends.webhooks import Message
from queue_operator.domain.views import PHASE


def message(one: Message) -> schemas.WebhookMessage:
    return schemas.WebhookMessage(
        id=one.id,
        namespace=one.namespace,
        job_id=one.job_id,
        type=one.type,
        url=one.url,
        job_state=PHASE[one.job_state],
        finalized_at=one.finalized_at,
        attempt=one.attempt,
        state=one.state,
        tries=one.tries,
        next_at=one.next_at,
        last_at=one.last_at,
        last_status=one.last_status,
        last_error=one.last_error,
        created_at=one.created_at,
    )
