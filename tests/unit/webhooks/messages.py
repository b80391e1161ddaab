"""Messages as the outbox gives them."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from queue_operator.backends.webhooks import Message
from queue_operator.domain.states import JobState

AT: Final = datetime(2026, 3, 1, 12, 30, 0, 250_000, tzinfo=UTC)


def message(number: int = 0, host: str = "a.example", **fields: Any) -> Message:
    given: dict[str, Any] = {
        "id": f"msg-{number}",
        "namespace": "team-a",
        "job_id": f"job-{number}",
        "type": "send-email",
        "url": f"https://{host}/done",
        "job_state": JobState.COMPLETED,
        "finalized_at": AT,
        "attempt": 1,
        "created_at": AT + timedelta(milliseconds=1),
        "claim": 7,
    }
    return Message(**{**given, **fields})
