"""Makes what an attempt left behind fit to be stored. Refusing it would leave the job running."""

import re
from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Final

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.ordering import Priority
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.domain.transition import RESULT_NOT_STORABLE
from queue_operator.domain.validation import (
    DEFAULT_LIMITS,
    REASON_CHARACTERS,
    Limits,
    check_choice,
    check_duration,
    check_text,
)

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_CODE_CHARACTERS: Final = 255
_CONTEXT_ENTRIES: Final = 64
_CONTEXT_CHARACTERS: Final = 1024


def storable(outcome: Outcome, limits: Limits = DEFAULT_LIMITS) -> Outcome:
    """`outcome` with its texts cleaned and cut, or the failure that stands for a result over
    the limit. Raises InvalidArgument for ids that no job can have and for values of a wrong type.
    """
    _check(outcome, limits)
    if outcome.result is not None and len(outcome.result) > limits.result_bytes:
        return _not_storable(outcome, limits)
    if outcome.error is None:
        return outcome
    return outcome._replace(error=clean_error(outcome.error, limits))


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "event": (Event,),
    "token": (str, NoneType),
    "result": (bytes, NoneType),
    "error": (ErrorInfo, NoneType),
    "priority": (Priority, NoneType),
    # Any text would count as true.
    "worker_plane": (bool,),
    "reset_attempts": (bool,),
    "assignee_id": (str, NoneType),
}


def _check(outcome: Outcome, limits: Limits) -> None:
    check_text("job_id", outcome.job_id, limits.id_characters)
    check_text("namespace", outcome.namespace, limits.id_characters)
    for field, kinds in _KINDS.items():
        value = getattr(outcome, field)
        if isinstance(value, kinds):
            continue
        if issubclass(kinds[0], Enum):
            check_choice(field, value, kinds[0])
        raise InvalidArgument(field, f"must be {kinds[0].__name__}, not {type(value).__name__}")
    if outcome.reason != "":
        check_text("reason", outcome.reason, REASON_CHARACTERS)
    if outcome.result_content_type != "":
        check_text("result_content_type", outcome.result_content_type, limits.id_characters)
    if outcome.retry_after_s is not None:
        check_duration("retry_after_s", outcome.retry_after_s)
    if outcome.error is not None:
        _check_error(outcome.error)


def _check_error(error: ErrorInfo) -> None:
    check_choice("error.category", error.category, ErrorCategory)
    if not isinstance(error.context, Mapping):
        raise InvalidArgument("error.context", "must be a mapping of strings")
    texts = {field: getattr(error, field) for field in ("message", "code", "stack_trace")}
    entries = (text for entry in error.context.items() for text in entry)
    for field, text in [*texts.items(), *(("context", text) for text in entries)]:
        if not isinstance(text, str):
            raise InvalidArgument(f"error.{field}", f"must be str, not {type(text).__name__}")


def clean_error(error: ErrorInfo, limits: Limits = DEFAULT_LIMITS) -> ErrorInfo:
    """The same error without characters that no store holds, each text cut to its limit."""
    entries = list(error.context.items())[:_CONTEXT_ENTRIES]
    return ErrorInfo(
        message=_clean(error.message, limits.error_characters),
        category=error.category,
        code=_clean(error.code, _CODE_CHARACTERS),
        stack_trace=_clean(error.stack_trace, limits.stack_characters),
        context={
            _clean(key, _CODE_CHARACTERS): _clean(value, _CONTEXT_CHARACTERS)
            for key, value in entries
        },
    )


def without_unstorable(text: str) -> str:
    """The same without the characters that no store holds."""
    return _UNSTORABLE.sub("", text)


def _clean(text: str, limit: int) -> str:
    return _UNSTORABLE.sub(_REPLACEMENT, text[:limit])


def _not_storable(outcome: Outcome, limits: Limits) -> Outcome:
    size = len(outcome.result or b"")
    error = ErrorInfo(
        f"the result has {size} bytes, over the limit of {limits.result_bytes}; store it "
        "elsewhere and return a reference",
        ErrorCategory.PERMANENT,
        RESULT_NOT_STORABLE,
    )
    return outcome._replace(event=Event.FAIL, result=None, error=error)
