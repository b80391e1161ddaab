"""From the bytes of a batch to jobs, one at a time, so that memory stays bounded."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from queue_operator.api.errors import (
    INVALID_REQUEST,
    DuplicateInBatch,
    InvalidBody,
    details_of,
    fault,
)
from queue_operator.api.schemas import ErrorDetail
from queue_operator.api.services import Services
from queue_operator.api.submissions import Reader
from queue_operator.domain.batch import may_repeat
from queue_operator.domain.errors import (
    DuplicateJob,
    InvalidArgument,
    PayloadTooLarge,
    QueueError,
)
from queue_operator.domain.job import Job
from queue_operator.domain.traces import NO_TRACE, Trace
from queue_operator.domain.validation import check_in_turn


@dataclass(frozen=True, slots=True)
class Batch:
    """Each submission as a job, or as the error it has instead."""

    items: tuple[Job | QueueError, ...]
    atomic: bool


def batch_from(body: bytes, namespace: str, services: Services, trace: Trace = NO_TRACE) -> Batch:
    """The jobs of a batch. Raises InvalidBody when the batch itself is malformed."""
    envelope = _envelope(body)
    atomic = _atomic(envelope.atomic)
    limits = services.settings.limits
    raws = _jobs(envelope.jobs, limits.batch_jobs)
    reader = Reader(namespace, services, check_in_turn(services.limits), trace)
    items: list[Job | QueueError] = []
    first_of: dict[str, Job] = {}
    for index, raw in enumerate(raws):
        item = _item(bytes(raw), reader)
        if isinstance(item, Job):
            first = first_of.setdefault(item.id, item)
            if first is not item and not may_repeat(item, first):
                item = DuplicateJob((item.id,), (index,))
        items.append(item)
    _check_edges(items, limits.batch_dependencies)
    return Batch(tuple(items), atomic)


def _check_edges(items: Sequence[Job | QueueError], most: int) -> None:
    edges = sum(len(item.depends_on) for item in items if isinstance(item, Job))
    if edges > most:
        text = f"the jobs wait for {edges} others, all together; the limit is {most}: send fewer"
        raise fault("jobs", INVALID_REQUEST, text)


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


def _item(raw: bytes, reader: Reader) -> Job | QueueError:
    try:
        return reader.read(raw)
    except InvalidArgument as error:
        return error


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
            raise fault(unknown[1], "UNKNOWN_FIELD", message) from None
        raise fault("", "JSON_INVALID", f"the body is not a JSON object: {error}") from None


def _atomic(raw: msgspec.Raw) -> bool:
    if raw is _ABSENT:
        return True
    try:
        return msgspec.json.decode(raw, type=bool)
    except msgspec.MsgspecError:
        raise fault("atomic", INVALID_REQUEST, "must be true or false") from None


def _jobs(raw: msgspec.Raw, most: int) -> list[msgspec.Raw]:
    if raw is _ABSENT:
        raise fault("jobs", "REQUIRED", "is required")
    try:
        jobs = msgspec.structs.astuple(msgspec.json.decode(raw, type=_array(most)))
    except (msgspec.MsgspecError, RecursionError):
        raise fault("jobs", INVALID_REQUEST, f"must be a list of 1 to {most} jobs") from None
    given = [job for job in jobs if job is not _ABSENT]
    if not given:
        raise fault("jobs", INVALID_REQUEST, f"must be a list of 1 to {most} jobs")
    return given


@functools.cache
def _array(most: int) -> type[msgspec.Struct]:
    """A list of at most `most` items, which the parser leaves at the first too many: a
    plain list would first hold as many as fit into the body.
    """
    fields = [(f"item_{index}", msgspec.Raw, _ABSENT) for index in range(most)]
    return msgspec.defstruct("Jobs", fields, array_like=True, forbid_unknown_fields=True)
