"""The one table from errors to HTTP, and what of each is told."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import msgspec
from pydantic import ValidationError

from queue_operator.api.schemas import ErrorDetail, ItemError, QuotaError
from queue_operator.api.views.refusals import not_possible, shown
from queue_operator.domain.errors import (
    DuplicateJob,
    Fault,
    Forbidden,
    InvalidArgument,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    MessageNotFound,
    PayloadTooLarge,
    PositionExpired,
    QueueError,
    QuotaExceeded,
    StaleLease,
    Unauthenticated,
    Unavailable,
)
from queue_operator.domain.states import Event
from queue_operator.domain.units import in_submission

INVALID_REQUEST: Final = "INVALID_REQUEST"
INTERNAL_ERROR: Final = "INTERNAL_ERROR"
NOT_FOUND: Final = "NOT_FOUND"
NO_SUCH_PATH: Final = "NO_SUCH_PATH"
"""Of a detail: what is not found is no job but the operation."""

STATUS: Final[Mapping[type[QueueError], tuple[int, str]]] = {
    PayloadTooLarge: (413, INVALID_REQUEST),
    DuplicateJob: (409, "DUPLICATE"),
    KeyConflict: (409, "DUPLICATE"),
    InvalidArgument: (400, INVALID_REQUEST),
    JobNotFound: (404, NOT_FOUND),
    PositionExpired: (410, "POSITION_EXPIRED"),
    MessageNotFound: (404, NOT_FOUND),
    InvalidTransition: (409, INVALID_REQUEST),
    StaleLease: (409, INVALID_REQUEST),
    Unauthenticated: (401, "UNAUTHORIZED"),
    Forbidden: (403, "FORBIDDEN"),
    QuotaExceeded: (429, "QUOTA_EXCEEDED"),
    Unavailable: (503, INTERNAL_ERROR),
    QueueError: (500, INTERNAL_ERROR),
}
"""Status and `external-api.md` code by error; a class not named here counts as its base."""

MAX_DETAILS: Final = 1000
"""Further faults of one body are not told: a small one can hold very many."""
_MOST_OF_ONE: Final = 100
"""Likewise those of one job of a batch."""

RETRY_AFTER_S: Final = 1
"""What a caller is told to wait when the store or the cluster does not answer."""

OURS: Final = {
    500: "an unexpected error; report it with the request_id",
    503: "the job store or the cluster does not answer now; try again in a while",
}
"""What a caller is told of errors that are ours; the log has the rest, by request id."""

_EVENTS: Final = {Event.RETRY_NOW.value: "RETRY"}
"""Names of the queue that this API has others for."""


class InvalidBody(InvalidArgument):
    """A body with one or more faults, each under the name the caller used."""

    def __init__(self, details: Sequence[ErrorDetail]) -> None:
        super().__init__(details[0].field, details[0].message)
        self.details = tuple(details[:MAX_DETAILS])


class DuplicateInBatch(DuplicateJob):
    """Ids of a batch that are taken; `indexes` say by which of its submissions."""


def status_of(error: QueueError) -> tuple[int, str]:
    """HTTP status and code for `error`."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def item_error(error: QueueError) -> ItemError:
    """`error` as the answer for one job of a batch."""
    code, message = status_of(error)[1], message_of(error)
    return ItemError(code=code, message=message, details=details_of(error), quota=quota_of(error))


def quota_of(error: QueueError) -> QuotaError | None:
    """Which quota is used up, if that is what is wrong."""
    if not isinstance(error, QuotaExceeded):
        return None
    after_s = error.retry_after_s
    return QuotaError(
        limit=error.limit,
        current=error.current,
        maximum=error.maximum,
        retry_after=None if after_s is None else timedelta(seconds=after_s),
    )


def details_of(error: QueueError) -> list[ErrorDetail]:
    """The faults behind `error`, by field."""
    if isinstance(error, InvalidBody):
        return list(error.details)
    if error.findings:
        return [_told(finding) for finding in error.findings[:MAX_DETAILS]]
    if isinstance(error, DuplicateInBatch):
        return [
            ErrorDetail(field=f"jobs[{index}].job_id", code=error.code, message="already exists")
            for index in error.indexes
        ]
    if isinstance(error, QuotaExceeded):
        return [ErrorDetail(field=error.limit, code=error.code, message=error.message)]
    if isinstance(error, InvalidArgument):
        field = in_submission(error.field)
        holder = error.job_id if isinstance(error, KeyConflict) else None
        return [ErrorDetail(field=field, code=error.code, message=error.reason, job_id=holder)]
    if isinstance(error, InvalidTransition):
        return [_not_allowed(error)]
    is_special = isinstance(error, JobNotFound) and error.code != NOT_FOUND
    if status_of(error)[0] == HTTPStatus.CONFLICT or is_special:
        return [ErrorDetail(field="job_id", code=error.code, message=message_of(error))]
    return []


def _told(finding: Fault) -> ErrorDetail:
    return ErrorDetail(
        field=in_submission(finding.field),
        code=finding.code,
        message=finding.message,
        job_id=finding.job_id or None,
    )


def _not_allowed(error: InvalidTransition) -> ErrorDetail:
    return ErrorDetail(
        field="job_id",
        code=error.code,
        message=message_of(error),
        job_id=error.job_id,
        state=shown(error.state),
        event=_EVENTS.get(error.event, error.event),
    )


def fault(field: str, code: str, message: str) -> "InvalidBody":
    """One fault that no error of the queue stands for."""
    return InvalidBody([ErrorDetail(field=field, code=code, message=message)])


class _Finding(msgspec.Struct):
    type: str
    loc: tuple[int | str, ...]
    msg: str


_FINDINGS: Final = msgspec.json.Decoder(list[_Finding])


def details_from(error: ValidationError) -> list[ErrorDetail]:
    """Pydantic's findings; the faulty values themselves are not repeated."""
    # Of a hundred thousand, `errors()` makes objects for a fifth of a second.
    text = error.json(include_url=False, include_input=False, include_context=False)
    return [_detail(finding) for finding in _FINDINGS.decode(text)[:_MOST_OF_ONE]]


_PLAIN: Final = {
    "extra_forbidden": ("UNKNOWN_FIELD", "is not a field of this request"),
    "missing": ("REQUIRED", "is required"),
}


_MEMBER: Final = re.compile(r"<\w+\.\w+: ('\w+')>")
"""How Python writes a member of an enumeration."""


def _detail(finding: _Finding) -> ErrorDetail:
    kind = finding.type
    code, message = _PLAIN.get(kind, (kind.upper(), _MEMBER.sub(r"\1", finding.msg)))
    field = ""
    for part in finding.loc:
        if isinstance(part, int):
            field += f"[{part}]"
        else:
            field += f".{part}" if field else part
    return ErrorDetail(field=field, code=code, message=message.removeprefix("Value error, "))


def message_of(error: QueueError) -> str:
    """What the caller is told."""
    if isinstance(error, InvalidBody):
        return _summary(error.details)
    if isinstance(error, InvalidArgument):
        others = f" (and {len(error.findings) - 1} more)" if error.findings else ""
        return f"{in_submission(error.field)}: {error.reason}{others}"
    if isinstance(error, InvalidTransition):
        return not_possible(error)
    return error.message


def _summary(details: Sequence[ErrorDetail]) -> str:
    first = details[0]
    told = f"{first.field}: {first.message}" if first.field else first.message
    return told if len(details) == 1 else f"{told} (and {len(details) - 1} more)"
