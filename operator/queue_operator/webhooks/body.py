"""What a receiver is sent: the job as REST shows it, in an envelope, and headers of CloudEvents."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from queue_operator import __version__
from queue_operator.backends.webhooks import Message
from queue_operator.domain.job import Job
from queue_operator.domain.views import PHASE

SCHEMA_VERSION: Final = 1
TYPE: Final = "job.finished"
EVENT_TYPE: Final = f"dev.queueoperator.{TYPE}"
SHOWN: Final = frozenset(chr(code) for code in range(0x21, 0x7F)) - set('"%')
"""What CloudEvents lets a header have as it is; the rest is escaped."""

Render = Callable[[Job, datetime], bytes]
"""A job as `GET /v1/jobs/{id}` answers it, as JSON."""


def text_of(time: datetime) -> str:
    """RFC 3339, as the rest of the API writes it."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def body(message: Message, job: Job | None, now: datetime, render: Render) -> bytes:
    """The same at every try, as long as the job is. Where it is gone, or has been retried since,
    only what the message knows is told.
    """
    data = _remembered(message)
    if job is not None and job.finalized_at == message.finalized_at:
        data = render(job, now)
    head = {
        "schema_version": SCHEMA_VERSION,
        "type": TYPE,
        "id": message.id,
        "timestamp": text_of(message.finalized_at),
    }
    return b'%s,"data":%s}' % (_compact(head)[:-1], data)


def headers(message: Message) -> dict[str, str]:
    """Beside those of the signature."""
    source = f"/namespaces/{quote(message.namespace, safe='')}/jobs"
    return {
        "content-type": "application/json",
        "user-agent": f"queue-operator/{__version__}",
        "ce-specversion": "1.0",
        "ce-id": message.id,
        "ce-source": source,
        "ce-type": EVENT_TYPE,
        "ce-subject": _escaped(message.job_id),
        "ce-time": text_of(message.finalized_at),
    }


def _remembered(message: Message) -> bytes:
    return _compact(
        {
            "job_id": message.job_id,
            "namespace": message.namespace,
            "type": message.type,
            "state": PHASE[message.job_state],
            "attempt": message.attempt,
            "completed_at": text_of(message.finalized_at),
            "truncated": True,
        }
    )


def _compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _escaped(text: str) -> str:
    return "".join(c if c in SHOWN else quote(c, safe="") for c in text)
