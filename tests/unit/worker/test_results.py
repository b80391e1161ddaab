"""What a handler returns, against what its annotation promises."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any, NoReturn

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from queue_operator.testing.clauses import proves
from queue_operator.worker import InvalidHandler, JobContext, PermanentError
from queue_operator.worker.handlers import HandlerSpec, build_spec
from queue_operator.worker.values import decode_result


class Greeting(BaseModel):
    text: str
    on: date | None = None


@dataclass
class Point:
    x: int
    y: int


class Row(TypedDict):
    name: str
    size: int


def gives(annotation: Any) -> HandlerSpec:
    def handler(ctx: JobContext) -> None: ...

    handler.__annotations__["return"] = annotation
    return build_spec("t", handler, timeout=None, max_attempts=None, concurrency=None)


@proves("external-api.HandlerRegistration.expect.3")
@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (Greeting, Greeting(text="hi", on=date(2026, 1, 2)), b'{"text":"hi","on":"2026-01-02"}'),
        (Greeting, {"text": "hi"}, b'{"text":"hi","on":null}'),
        (Greeting | None, None, b"null"),
        (list[Greeting], [Greeting(text="hi")], b'[{"text":"hi","on":null}]'),
        (Point, Point(1, 2), b'{"x":1,"y":2}'),
        (Row, {"name": "a", "size": 1}, b'{"name":"a","size":1}'),
        (dict[str, int], {"a": 1}, b'{"a":1}'),
        (int, 7, b"7"),
        (bytes, b"\x00", b"\x00"),
        (bytes | None, bytearray(b"\x01"), b"\x01"),
        (None, None, b"null"),
        (Any, [1], b"[1]"),
        (object, {"a": None}, b'{"a":null}'),
        (NoReturn, None, b"null"),
        ("Greeting", {"text": "hi"}, b'{"text":"hi","on":null}'),
    ],
)
def test_a_result_is_stored_as_annotated(annotation: Any, value: object, stored: bytes) -> None:
    assert gives(annotation).write_result(value)[0] == stored


@proves("external-api.HandlerRegistration.expect.3")
@pytest.mark.parametrize(
    ("annotation", "value", "fault"),
    [
        (Greeting, {"texts": "private"}, "text: Field required"),
        (Greeting, None, "not the .*Greeting that the handler's annotation promises"),
        (Point, {"x": "private"}, "x: Input should be a valid integer"),
        (Row, {"name": "a"}, "size: Field required"),
        (list[int], [1, "private"], "1: Input should be a valid integer"),
        (None, 7, "result: Input should be None"),
        (bytes, "private", "it is a str"),
        (str, 7, "valid string"),
    ],
)
def test_a_result_of_another_shape_is_a_permanent_error(
    annotation: Any, value: object, fault: str
) -> None:
    with pytest.raises(PermanentError, match=fault) as caught:
        gives(annotation).write_result(value)
    assert caught.value.code == "INVALID_RESULT"
    assert "private" not in str(caught.value)


class Unsized(BaseModel):
    value: Any


@proves("external-api.HandlerRegistration.expect.4")
def test_an_annotated_result_must_be_storable_all_the_same() -> None:
    with pytest.raises(PermanentError) as caught:
        gives(Unsized).write_result(Unsized(value=object()))
    assert caught.value.code == "RESULT_NOT_STORABLE"
    with pytest.raises(PermanentError) as caught:
        gives(Any).write_result(math.nan)
    assert caught.value.code == "RESULT_NOT_STORABLE"


@pytest.mark.parametrize("annotation", ["NoSuchName", type("Plain", (), {})])
def test_an_annotation_that_cannot_be_checked_is_refused(annotation: Any) -> None:
    with pytest.raises(InvalidHandler, match="return"):
        gives(annotation)


@pytest.mark.parametrize(
    ("annotation", "value"), [(Greeting, {"text": "a", "on": None}), (bytes, b"\x00"), (None, None)]
)
def test_what_is_stored_can_be_read_back(annotation: Callable[..., Any], value: object) -> None:
    assert decode_result(*gives(annotation).write_result(value)) == value
