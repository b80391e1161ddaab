"""The same submission, as each door reads it: the job that comes out, or the error."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration as WireDuration

from queue_operator.api.submissions import job_from
from queue_operator.client import Submission
from queue_operator.crd.submission import to_job
from queue_operator.domain.job import Job
from queue_operator.domain.retry import BackoffStrategy, backoff_of
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits, check_job
from queue_operator.wire import convert, queue_convert
from queue_operator.wire.v1 import queue_pb2, worker_pb2


@dataclass(frozen=True)
class _Rules:
    limits: Limits = DEFAULT_LIMITS
    json_depth: int = 100
    new_id: Callable[[], str] = lambda: "new"


Backoff = dict[str, Any]
"""In the words of REST: strategy, initial_delay, max_delay, multiplier, delays."""


def rest(**fields: Any) -> Job:
    body = json.dumps({"type": "t", "payload": 1, **fields}).encode()
    return job_from(body, "default", _Rules())


def client(**fields: Any) -> Job:
    """A line of a file of submissions, and what the Python client sends."""
    read = Submission.from_document({"type": "t", "payload": 1, **fields})
    return rest(**{k: v for k, v in read.document().items() if k not in ("type", "payload")})


def manifest(**fields: Any) -> Job:
    names = {"max_attempts": "maxAttempts"}
    spec = {names.get(name, name): value for name, value in fields.items()}
    if backoff := fields.get("backoff"):
        names = {"initial_delay": "initialDelay", "max_delay": "maxDelay"}
        spec["backoff"] = {names.get(name, name): value for name, value in backoff.items()}
    metadata = {"uid": "u", "name": "n", "namespace": "default"}
    return to_job({"metadata": metadata, "spec": {"type": "t", "payload": 1, **spec}}, "c")


def library(*, backoff: Backoff | None = None, **fields: Any) -> Job:
    names = {"delay": "delay_s", "timeout": "timeout_s"}
    if backoff is not None:
        fields["backoff"] = backoff_of(
            BackoffStrategy(backoff.get("strategy", "EXPONENTIAL")),
            initial_delay_s=backoff.get("initial_delay"),
            max_delay_s=backoff.get("max_delay"),
            multiplier=backoff.get("multiplier"),
            delays_s=tuple(backoff.get("delays", ())),
        )
    job = Job(id="j", type="t", **{names.get(name, name): one for name, one in fields.items()})
    check_job(job)
    return job


def grpc(*, backoff: Backoff | None = None, **fields: Any) -> Job:
    message = queue_pb2.Job(id="j", type="t", **_wire(fields))
    if backoff is not None:
        message.backoff.CopyFrom(queue_pb2.Backoff(**_wire_backoff(backoff)))
    job = queue_convert.job_from_wire(message, namespace="default")
    check_job(job)
    return job


def spawn(*, backoff: Backoff | None = None, **fields: Any) -> Job:
    message = worker_pb2.ChildJob(type="t", job_id="j", **_wire(fields))
    if backoff is not None:
        message.backoff.CopyFrom(worker_pb2.ChildBackoff(**_wire_backoff(backoff)))
    asked = worker_pb2.Spawn(parent_id="p", token="t", key="1", job=message)
    job = convert.spawn_from_wire(asked).job
    check_job(job)
    return job


def _wire(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _part(name, value) for name, value in fields.items()}


def _wire_backoff(backoff: Backoff) -> dict[str, Any]:
    parts = {name: _part(name, one) for name, one in backoff.items() if name != "delays"}
    return parts | {"delays": [_length(one) for one in backoff.get("delays", ())]}


def _part(name: str, value: Any) -> Any:
    lengths = {"delay", "timeout", "initial_delay", "max_delay"}
    return _length(value) if name in lengths else value


def _length(seconds: float) -> WireDuration:
    whole = int(seconds)
    return WireDuration(seconds=whole, nanos=round((seconds - whole) * 1e9))


Door = Callable[..., Job]

TEXTS: Final[tuple[Door, ...]] = (rest, client, manifest)
"""Doors that read what people write."""
ALL: Final[tuple[Door, ...]] = (rest, client, manifest, library, grpc, spawn)
