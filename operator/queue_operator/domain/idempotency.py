"""Whether two submissions under one idempotency key say the same."""

import hashlib
import json
from dataclasses import asdict
from typing import Any, Final

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job
from queue_operator.domain.validation import check_json_depth

_LARGE: Final = 64 * 1024
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def content_digest(job: Job) -> bytes:
    """32 bytes that are equal for submissions of equal content.

    Content is the type, the payload and every option as it was given, the correlation id
    left out. JSON payloads count by value: the order of keys, white space and 1 against 1.0
    make no difference. Other payloads count by bytes, and so do JSON documents nested deeper
    than the doors let in: how deep Python follows them depends on who calls.
    """
    options: dict[str, Any] = {
        "type": job.type,
        "content_type": job.content_type,
        "tags": sorted(job.tags),
        "priority": job.priority.value,
        "delay_s": job.delay_s,
        "scheduled_at": None if job.scheduled_at is None else job.scheduled_at.timestamp(),
        "max_attempts": job.max_attempts,
        "timeout_s": job.timeout_s,
        "backoff": None if job.backoff is None else asdict(job.backoff),
        "depends_on": list(job.depends_on),
        "dependency_mode": job.dependency_mode.value,
    }
    if job.callback_url:
        # Not named where there is none, as in the digests of older releases.
        options["callback_url"] = job.callback_url
    digest = hashlib.sha256(_canonical(options))
    digest.update(_payload(job))
    return digest.digest()


def _payload(job: Job) -> bytes:
    if not _is_json(job.content_type):
        return b"bytes:" + job.payload
    try:
        check_json_depth("payload", job.payload)
        written = _canonical_of_large if len(job.payload) > _LARGE else _canonical
        return b"json:" + written(json.loads(job.payload))
    except (InvalidArgument, ValueError, RecursionError):
        return b"bytes:" + job.payload


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _canonical(value: Any) -> bytes:
    return _ENCODER.encode(_normal(value)).encode()


def _canonical_of_large(value: Any) -> bytes:
    """The same piece by piece, so that other threads have their turns."""
    return "".join(_ENCODER.iterencode(_normal(value))).encode()


def _normal(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _normal(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(one) for one in value]
    return value
