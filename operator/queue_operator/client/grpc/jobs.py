"""A submission, in the words of REST, as the job that the queue itself takes."""

import secrets
import time
from typing import Any

from queue_operator.client.encoding import encode
from queue_operator.client.requests import Backoff, Submission
from queue_operator.domain import retry
from queue_operator.domain.dependencies import DependencyMode
from queue_operator.domain.ids import ENTROPY_BITS, uuid7
from queue_operator.domain.job import DEFAULT_NAMESPACE, Job
from queue_operator.domain.ordering import Priority
from queue_operator.domain.tags import from_map

_UNRESOLVED_ATTEMPTS = 0
"""The handler's registration decides."""


def job_of(submission: Submission, *, namespace: str = DEFAULT_NAMESPACE) -> Job:
    """What REST would make of it: what is left out means the same. Raises InvalidArgument."""
    body, content_type = _payload(submission)
    options: dict[str, Any] = {
        "priority": submission.priority or Priority.NORMAL,
        "scheduled_at": submission.scheduled_at,
        "max_attempts": submission.max_attempts or _UNRESOLVED_ATTEMPTS,
        "idempotency_key": submission.idempotency_key or "",
        "correlation_id": submission.correlation_id or "",
        "depends_on": submission.depends_on or (),
        "dependency_mode": submission.dependency_type or DependencyMode.AFTER,
        "callback_url": submission.callback_url or "",
        "suspended": submission.suspended or False,
    }
    for name in ("delay", "timeout"):
        if (length := getattr(submission, name)) is not None:
            options[f"{name}_s"] = length.total_seconds()
    return Job(
        id=submission.job_id or uuid7(time.time_ns(), secrets.randbits(ENTROPY_BITS)),
        type=submission.type,
        payload=body,
        content_type=content_type,
        namespace=namespace,
        tags=from_map(submission.tags or {}),
        backoff=_backoff(submission),
        **options,
    )


def _payload(submission: Submission) -> tuple[bytes, str]:
    if submission.payload_bytes is not None:
        return submission.payload_bytes, "application/octet-stream"
    return encode(submission.payload, "payload"), "application/json"


def _backoff(submission: Submission) -> retry.Backoff | None:
    """Who says how often says how fast, if only as usual."""
    if submission.backoff is not None:
        return _resolved(submission.backoff)
    return retry.DEFAULT_BACKOFF if submission.max_attempts is not None else None


def _resolved(given: Backoff) -> retry.Backoff:
    initial, longest = given.initial_delay, given.max_delay
    return retry.backoff_of(
        given.strategy,
        initial_delay_s=None if initial is None else initial.total_seconds(),
        max_delay_s=None if longest is None else longest.total_seconds(),
        multiplier=given.multiplier,
        delays_s=tuple(delay.total_seconds() for delay in given.delays or ()),
    )
