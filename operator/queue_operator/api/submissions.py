"""From the bytes of a request to jobs, one job at a time, so that memory stays bounded."""

import base64
import binascii
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from pydantic import BaseModel, ValidationError

from queue_operator.api import documents
from queue_operator.api.errors import (
    INVALID_REQUEST,
    DuplicateInBatch,
    InvalidBody,
    details_from,
    details_of,
)
from queue_operator.api.schemas import BackoffConfig, ErrorDetail, JobSubmission
from queue_operator.api.services import Services
from queue_operator.domain import tags
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    PayloadTooLarge,
    QueueError,
)
from queue_operator.domain.job import Job
from queue_operator.domain.retry import DEFAULT_BACKOFF, Backoff, BackoffStrategy
from queue_operator.domain.validation import check_job

UNRESOLVED_ATTEMPTS: Final = 0
"""What a job carries that left its attempts to the handler's registration."""

_ESCAPE_GROWTH: Final = 6
_OPTIONS_BYTES: Final = 64 * 1024
_WHITESPACE: Final = (b" ", b"\n", b"\t", b"\r")


def submission_bytes(payload_bytes: int) -> int:
    """The most one submission can take on the wire: each byte of the payload written as
    a six character escape, and the options.
    """
    return payload_bytes * _ESCAPE_GROWTH + _OPTIONS_BYTES


def _too_large_to_parse(body: bytes, payload_bytes: int) -> bool:
    """Whether the payload must be over its limit, told without parsing: a few bytes of JSON
    can become a large object. Base64 takes four bytes for three.
    """
    shorter = sum(body.count(space) for space in _WHITESPACE)
    shorter += (_ESCAPE_GROWTH - 1) * body.count(b"\\")
    return len(body) - shorter > payload_bytes * 4 // 3 + _OPTIONS_BYTES


def parse(body: bytes, model: type[BaseModel]) -> Any:
    """An instance of `model`. Raises InvalidBody naming every faulty field."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidBody(details_from(error)) from None


def job_from(body: bytes, namespace: str, services: Services) -> Job:
    """The job of one submission.

    Raises InvalidBody, InvalidArgument or PayloadTooLarge.
    """
    limit = services.limits.payload_bytes
    if _too_large_to_parse(body, limit):
        raise PayloadTooLarge("payload", len(body), limit)
    job = _job(parse(body, JobSubmission), namespace, services)
    check_job(job, services.limits)
    return job


@dataclass(frozen=True, slots=True)
class Batch:
    """Each submission as a job, or as the error it has instead."""

    items: tuple[Job | QueueError, ...]
    atomic: bool


def batch_from(body: bytes, namespace: str, services: Services) -> Batch:
    """The jobs of a batch. Raises InvalidBody when the batch itself is malformed."""
    envelope = _envelope(body)
    atomic = _atomic(envelope.atomic)
    raws = _jobs(envelope.jobs, services.settings.limits.batch_jobs)
    items: list[Job | QueueError] = []
    first_at: dict[str, int] = {}
    for index, raw in enumerate(raws):
        item = _item(bytes(raw), namespace, services)
        if isinstance(item, Job) and first_at.setdefault(item.id, index) != index:
            item = DuplicateJob((item.id,), (index,))
        items.append(item)
    return Batch(tuple(items), atomic)


def refusal(items: Sequence[Job | QueueError]) -> QueueError | None:
    """One error for an atomic batch, with the faults of all its jobs; None when all are
    good. Only if all faults are of one kind is the answer of that kind.
    """
    faults = [(i, item) for i, item in enumerate(items) if isinstance(item, InvalidArgument)]
    if not faults:
        return None
    if all(isinstance(item, DuplicateJob) for _, item in faults):
        ids = tuple(dict.fromkeys(job_id for _, item in faults for job_id in _ids(item)))
        return DuplicateInBatch(ids, tuple(index for index, _ in faults))
    if all(isinstance(item, PayloadTooLarge) for _, item in faults):
        index, first = faults[0]
        assert isinstance(first, PayloadTooLarge)  # noqa: S101  (all are)
        return PayloadTooLarge(f"jobs[{index}].{first.field}", first.size, first.limit)
    return InvalidBody(
        [_at(index, detail) for index, item in faults for detail in details_of(item)]
    )


def _ids(error: QueueError) -> tuple[str, ...]:
    return error.job_ids if isinstance(error, DuplicateJob) else ()


def _at(index: int, detail: ErrorDetail) -> ErrorDetail:
    field = f"jobs[{index}].{detail.field}" if detail.field else f"jobs[{index}]"
    return detail.model_copy(update={"field": field})


def _item(raw: bytes, namespace: str, services: Services) -> Job | QueueError:
    try:
        return job_from(raw, namespace, services)
    except InvalidArgument as error:
        return error


def _fault(field: str, code: str, message: str) -> InvalidBody:
    return InvalidBody([ErrorDetail(field=field, code=code, message=message)])


_ABSENT: Final = msgspec.Raw(b"")
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)`", re.DOTALL)


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of BatchSubmission, unparsed: the jobs are parsed one by one."""

    jobs: msgspec.Raw = _ABSENT
    atomic: msgspec.Raw = _ABSENT


def _envelope(body: bytes) -> _Envelope:
    try:
        return msgspec.json.decode(body, type=_Envelope)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        unknown = _UNKNOWN_FIELD.search(str(error))
        if unknown:
            message = "is not a field of this request"
            raise _fault(unknown[1], "UNKNOWN_FIELD", message) from None
        raise _fault("", "JSON_INVALID", f"the body is not a JSON object: {error}") from None


def _atomic(raw: msgspec.Raw) -> bool:
    if raw is _ABSENT:
        return True
    try:
        return msgspec.json.decode(raw, type=bool)
    except msgspec.MsgspecError:
        raise _fault("atomic", INVALID_REQUEST, "must be true or false") from None


def _jobs(raw: msgspec.Raw, most: int) -> list[msgspec.Raw]:
    if raw is _ABSENT:
        raise _fault("jobs", "REQUIRED", "is required")
    try:
        jobs = msgspec.structs.astuple(msgspec.json.decode(raw, type=_array(most)))
    except (msgspec.MsgspecError, RecursionError):
        raise _fault("jobs", INVALID_REQUEST, f"must be a list of 1 to {most} jobs") from None
    given = [job for job in jobs if job is not _ABSENT]
    if not given:
        raise _fault("jobs", INVALID_REQUEST, f"must be a list of 1 to {most} jobs")
    return given


@functools.cache
def _array(most: int) -> type[msgspec.Struct]:
    """A list of at most `most` items, which the parser leaves at the first too many: a
    plain list would first hold as many as fit into the body.
    """
    fields = [(f"item_{index}", msgspec.Raw, _ABSENT) for index in range(most)]
    return msgspec.defstruct("Jobs", fields, array_like=True, forbid_unknown_fields=True)


def _job(given: JobSubmission, namespace: str, services: Services) -> Job:
    payload, content_type = _payload(given, services.settings.limits.json_depth)
    job = Job(
        id=services.new_id() if given.job_id is None else given.job_id,
        type=given.type,
        payload=payload,
        content_type=content_type,
        namespace=namespace,
        tags=tags.from_map(given.tags or {}),
        priority=given.priority,
        scheduled_at=given.scheduled_at,
        max_attempts=given.max_attempts or UNRESOLVED_ATTEMPTS,
        backoff=None if given.backoff is None else _backoff(given.backoff),
        correlation_id=given.correlation_id or "",
    )
    if given.delay is not None:
        job = replace(job, delay_s=given.delay.total_seconds())
    if given.timeout is not None:
        job = replace(job, timeout_s=given.timeout.total_seconds())
    return job


def _payload(given: JobSubmission, max_depth: int) -> tuple[bytes, str]:
    as_json = "payload" in given.model_fields_set
    if as_json == (given.payload_base64 is not None):
        raise InvalidArgument("payload", "give exactly one of payload and payload_base64")
    if as_json:
        return documents.encode("payload", given.payload, max_depth), documents.JSON_TYPE
    try:
        raw = base64.b64decode(given.payload_base64 or "", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument("payload_base64", "is not base64") from None
    return raw, documents.BYTES_TYPE


def _backoff(given: BackoffConfig) -> Backoff:
    custom = given.strategy is BackoffStrategy.CUSTOM
    if custom != (given.delays is not None):
        raise InvalidArgument(
            "backoff.delays", "must be given for the strategy CUSTOM, and for no other"
        )
    initial, longest = given.initial_delay, given.max_delay
    return Backoff(
        strategy=given.strategy,
        initial_delay_s=DEFAULT_BACKOFF.initial_delay_s
        if initial is None
        else initial.total_seconds(),
        max_delay_s=DEFAULT_BACKOFF.max_delay_s if longest is None else longest.total_seconds(),
        multiplier=given.multiplier,
        delays_s=tuple(delay.total_seconds() for delay in given.delays or ()),
    )
