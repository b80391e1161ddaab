"""A QueueJob object as a job to submit."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from queue_operator.crd.names import TRACEPARENT, TRACESTATE
from queue_operator.crd.v1alpha1 import BackoffSpec, QueueJobSpec
from queue_operator.domain import tags as tag_map
from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.job import Job, ResourceRef
from queue_operator.domain.ordering import Priority
from queue_operator.domain.retry import DEFAULT_BACKOFF, Backoff, BackoffStrategy, backoff_of
from queue_operator.domain.traces import trace_of
from queue_operator.domain.units import respelled, without_unit
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits, check_job

JSON: Final = "application/json"
UNRESOLVED_ATTEMPTS: Final = 0
"""The first claim resolves what the submitter left out."""


def to_job(
    body: Mapping[str, Any],
    cluster_uid: str,
    limits: Limits = DEFAULT_LIMITS,
    json_depth: int = 100,
) -> Job:
    """The job of a QueueJob object; its id is the object's uid.

    Raises InvalidArgument naming the field as the manifest spells it.
    """
    job = read_job(body, cluster_uid, json_depth)
    check_manifest(job, limits)
    return job


def read_job(body: Mapping[str, Any], cluster_uid: str, json_depth: int) -> Job:
    """As `to_job`, without what settings may change: one that was taken in before may break it."""
    metadata = body["metadata"]
    spec = _parse(body.get("spec") or {})
    notes = metadata.get("annotations") or {}
    trace = trace_of(notes.get(TRACEPARENT), notes.get(TRACESTATE))
    return Job(
        id=metadata["uid"],
        namespace=metadata["namespace"],
        type=spec.type,
        payload=_payload(spec, json_depth),
        content_type=JSON,
        tags=_tags(spec),
        priority=spec.priority or Priority.NORMAL,
        delay_s=spec.delay,
        scheduled_at=spec.scheduled_at,
        max_attempts=spec.max_attempts or UNRESOLVED_ATTEMPTS,
        timeout_s=spec.timeout,
        backoff=_backoff(spec.backoff),
        correlation_id=spec.correlation_id or "",
        idempotency_key=spec.idempotency_key or "",
        callback_url=spec.callback_url or "",
        suspended=bool(spec.suspend),
        traceparent=trace.parent,
        tracestate=trace.state,
        resource=ResourceRef(
            cluster_uid, metadata["uid"], metadata["name"], metadata.get("generation", 1)
        ),
    )


def cancel_requested(body: Mapping[str, Any]) -> bool:
    return bool((body.get("spec") or {}).get("cancel"))


def _parse(spec: Mapping[str, Any]) -> QueueJobSpec:
    try:
        return QueueJobSpec.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in ("spec", *first["loc"]))
        raise InvalidArgument(field, first["msg"].removeprefix("Value error, ")) from None


def _payload(spec: QueueJobSpec, json_depth: int) -> bytes:
    has_value, has_text = spec.payload is not None, spec.payload_text is not None
    if has_value == has_text:
        raise InvalidArgument("spec.payload", "give exactly one of payload and payloadText")
    if spec.payload_text is not None:
        return _text_payload(spec.payload_text, json_depth)
    _check_depth("spec.payload", spec.payload, json_depth)
    text = json.dumps(spec.payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _text_payload(text: str, json_depth: int) -> bytes:
    field = "spec.payloadText"
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidArgument(field, f"is nested deeper than {json_depth} levels") from None
    except ValueError as error:
        raise InvalidArgument(field, f"is not a JSON document: {error}") from None
    _check_depth(field, value, json_depth)
    return text.encode()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _check_depth(field: str, value: Any, limit: int) -> None:
    level = [value]
    for _ in range(limit):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise InvalidArgument(field, f"is nested deeper than {limit} levels")


def _children(node: Any) -> list[Any]:
    if isinstance(node, Mapping):
        return list(node.values())
    return node if isinstance(node, list) else []


def _tags(spec: QueueJobSpec) -> frozenset[str]:
    try:
        return tag_map.from_map(spec.tags or {})
    except InvalidArgument as error:
        raise InvalidArgument(f"spec.{error.field}", error.reason) from None


def _backoff(spec: BackoffSpec | None) -> Backoff:
    if spec is None:
        return DEFAULT_BACKOFF
    strategy = spec.strategy or BackoffStrategy.EXPONENTIAL
    if (strategy is BackoffStrategy.CUSTOM) != (spec.delays is not None):
        raise InvalidArgument(
            "spec.backoff.delays", f"belongs to the strategy {BackoffStrategy.CUSTOM}, needs it"
        )
    return backoff_of(
        strategy,
        initial_delay_s=spec.initial_delay,
        max_delay_s=spec.max_delay,
        multiplier=spec.multiplier,
        delays_s=tuple(spec.delays or ()),
    )


def check_manifest(job: Job, limits: Limits) -> None:
    """The checks of every door, with the field as the manifest spells it."""
    try:
        check_job(job, limits)
    except InvalidArgument as error:
        raise respelled(error, in_manifest) from None


def in_manifest(field: str) -> str:
    """The name of a job's field in the spec of a QueueJob."""
    return f"spec.{to_camel(without_unit(field))}"
