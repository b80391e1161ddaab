"""What an attempt left behind is stored as well as it can be, and never as something else."""

from typing import Any

import pytest

from queue_operator.domain.errors import InvalidArgument
from queue_operator.domain.outcome import ErrorCategory, ErrorInfo, Outcome
from queue_operator.domain.states import Event
from queue_operator.domain.storable import clean_error, storable
from queue_operator.domain.transition import RESULT_NOT_STORABLE
from queue_operator.domain.validation import Limits

GOOD = Outcome("a", Event.FAIL, token="t", error=ErrorInfo("boom"))
MARK = "\N{REPLACEMENT CHARACTER}"


def test_a_good_outcome_stays_as_it_is() -> None:
    assert storable(GOOD) == GOOD


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_id", ""),
        ("job_id", "a\x00"),
        ("namespace", "x" * 256),
        ("token", 7),
        ("event", "FAIL"),
        ("result", "text"),
        ("result_content_type", "a\x00"),
        ("error", "boom"),
        ("priority", "HIGH"),
        ("reason", "\ud800"),
        ("reason", "x" * 1025),
        ("retry_after_s", float("nan")),
        ("retry_after_s", float("inf")),
        ("retry_after_s", -1.0),
        ("retry_after_s", "1"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        storable(GOOD._replace(**{field: value}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "error"),
    [
        ("error.message", ErrorInfo(None)),  # type: ignore[arg-type]
        ("error.category", ErrorInfo("x", "TIMEOUT")),  # type: ignore[arg-type]
        ("error.code", ErrorInfo("x", code=7)),  # type: ignore[arg-type]
        ("error.context", ErrorInfo("x", context={"a": 1})),  # type: ignore[dict-item]
        ("error.context", ErrorInfo("x", context=["a"])),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_field_of_an_error_is_named(field: str, error: ErrorInfo) -> None:
    with pytest.raises(InvalidArgument) as caught:
        storable(GOOD._replace(error=error))
    assert caught.value.field == field


def test_texts_of_an_error_are_cleaned_and_cut() -> None:
    error = ErrorInfo("a\x00b" + "x" * 9000, code="\ud800", context={"k\x00": "v" * 2000})
    cleaned = clean_error(error, Limits(error_characters=10))
    assert cleaned == ErrorInfo(f"a{MARK}b" + "x" * 7, code=MARK, context={f"k{MARK}": "v" * 1024})


def test_a_result_over_the_limit_becomes_a_failure_for_good() -> None:
    outcome = Outcome("a", Event.COMPLETE, result=b"x" * 11)
    failed = storable(outcome, Limits(result_bytes=10))
    assert (failed.event, failed.result) == (Event.FAIL, None)
    assert failed.error is not None
    assert (failed.error.category, failed.error.code) == (
        ErrorCategory.PERMANENT,
        RESULT_NOT_STORABLE,
    )
    assert storable(outcome, Limits(result_bytes=11)) == outcome
