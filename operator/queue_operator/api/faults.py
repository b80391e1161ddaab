"""Every fault of a submission, not only the first. Only looked for once there is one."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, Final, Protocol

from pydantic import ValidationError
from pydantic_core import from_json

from queue_operator.api.errors import InvalidBody, details_from, details_of
from queue_operator.api.schemas import ErrorDetail, JobSubmission
from queue_operator.domain.errors import InvalidArgument, PayloadTooLarge
from queue_operator.domain.job import Job
from queue_operator.domain.units import in_submission

_ROUNDS: Final = 20
"""More than there are fields."""
_STAND_INS: Final[dict[str, tuple[str, Any]]] = {
    "type": ("type", "t"),
    "payload_base64": ("payload", None),
}
"""What takes the place of a malformed field that a submission cannot do without."""
_DEFAULTS: Final = {f.name: f.default for f in fields(Job) if f.default is not MISSING}
_HARMLESS: Final[dict[str, Any]] = {**_DEFAULTS, "id": "j", "type": "t"}


class Reading(Protocol):
    """The steps from a submission to a job."""

    def parts(self, submission: JobSubmission) -> list[InvalidArgument]: ...

    def job(self, submission: JobSubmission) -> Job: ...

    def check(self, job: Job) -> None: ...


def every_fault(
    body: bytes, first: ValidationError | InvalidArgument, reading: Reading
) -> InvalidArgument:
    """All that is wrong as one error; PayloadTooLarge where there is nothing else."""
    details: list[ErrorDetail] = []
    submission = _submission(body, first, details)
    if submission is not None:
        details += _semantic(submission, reading, _roots(details))
    if isinstance(first, PayloadTooLarge) and len(details) <= 1:
        return first
    return InvalidBody(details)


def _submission(
    body: bytes, first: ValidationError | InvalidArgument, details: list[ErrorDetail]
) -> JobSubmission | None:
    """The submission without its malformed fields, which are added to `details`; None for what
    is no submission at all.
    """
    if not isinstance(first, ValidationError):
        return JobSubmission.model_validate_json(body)
    details += details_from(first)
    try:
        document = from_json(body)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    for name in _roots(details):
        document.pop(name, None)
        if name in _STAND_INS:
            other, value = _STAND_INS[name]
            document[other] = value
    try:
        return JobSubmission.model_validate_json(json.dumps(document))
    except (ValidationError, ValueError, RecursionError):
        return None


def _semantic(
    submission: JobSubmission, reading: Reading, known: frozenset[str]
) -> list[ErrorDetail]:
    errors = [error for error in reading.parts(submission) if _root(error.field) not in known]
    broken = {_root(error.field) for error in errors}
    cleared = dict.fromkeys(("backoff", "tags", "delay", "scheduled_at"))
    update: dict[str, Any] = {name: cleared[name] for name in broken & cleared.keys()}
    if broken & {"payload", "payload_base64"}:
        update |= {"payload": None, "payload_base64": None}
    right = submission.model_copy(update=update)
    job = reading.job(right)
    for _ in range(_ROUNDS):
        try:
            reading.check(job)
        except InvalidArgument as error:
            root = _root(error.field)
            if in_submission(root) not in known:
                errors.append(error)
            if root not in _HARMLESS:
                break
            job = replace(job, **{root: _HARMLESS[root]})
        else:
            break
    return [detail for error in errors for detail in details_of(error)]


def _roots(details: Sequence[ErrorDetail]) -> frozenset[str]:
    return frozenset(_root(detail.field) for detail in details)


def _root(field: str) -> str:
    return field.partition(".")[0].partition("[")[0]
