import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from queue_operator.testing.clauses import proves
from queue_operator.worker import InvalidHandler, PermanentError, RegistrationStatus, Worker
from queue_operator.worker.handlers import HandlerSpec, build_spec, encode_result
from queue_operator.worker.testing import job_context

if TYPE_CHECKING:
    from nowhere import OnlyForTheChecker  # type: ignore[import-not-found]


class Email(BaseModel):
    to: str
    copies: int = 1


class Defaults(BaseModel):
    seconds: float = 60.0


@dataclass
class Point:
    x: int
    y: int


def spec(function: Callable[..., Any], **options: Any) -> HandlerSpec:
    defaults: dict[str, Any] = {"timeout": None, "max_attempts": None, "concurrency": None}
    return build_spec("t", function, **(defaults | options))


def read(function: Callable[..., Any], payload: bytes) -> object:
    _, value = spec(function).arguments(job_context(payload=payload))
    return value


def takes_email(ctx: Any, payload: Email) -> None: ...
def takes_late_email(ctx: "OnlyForTheChecker", payload: "Email") -> None: ...
def takes_defaults(ctx: Any, payload: Defaults) -> None: ...
def takes_point(ctx: Any, payload: Point) -> None: ...
def takes_bytes(ctx: Any, payload: bytes) -> None: ...
def takes_dict(ctx: Any, payload: dict[str, int]) -> None: ...
def takes_numbers(ctx: Any, payload: list[int]) -> None: ...
def takes_any(ctx, payload): ...  # type: ignore[no-untyped-def]
def takes_context(ctx: Any) -> None: ...
def takes_optional(ctx: Any, payload: Email | None = None) -> None: ...


class Methods:
    def plain(self, ctx: Any, payload: Email) -> None: ...
    async def __call__(self, ctx: Any, payload: Email) -> None: ...


@pytest.mark.parametrize(
    "function",
    [takes_email, takes_late_email, Methods().plain, Methods(), functools.partial(takes_email)],
)
@proves("external-api.HandlerRegistration.expect.1")
def test_a_model_is_validated(function: Callable[..., Any]) -> None:
    assert read(function, b'{"to": "a@b"}') == Email(to="a@b")


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"to": 1}', b"not json", b"\xff"])
@proves("external-api.HandlerRegistration.expect.2")
def test_a_payload_that_does_not_fit_is_permanent(payload: bytes) -> None:
    with pytest.raises(PermanentError) as caught:
        read(takes_email, payload)
    assert caught.value.code == "INVALID_PAYLOAD"


@proves("external-api.HandlerRegistration.expect.2")
def test_the_fault_names_the_field_and_keeps_the_value_private() -> None:
    with pytest.raises(PermanentError, match="to: Input should be a valid string") as caught:
        read(takes_email, b'{"to": 123456}')
    assert "123456" not in str(caught.value)


def test_of_many_faults_the_first_are_told_and_the_rest_counted() -> None:
    with pytest.raises(PermanentError) as caught:
        read(takes_numbers, json.dumps(["x"] * 2000).encode())
    told = str(caught.value)
    assert told.startswith("the payload does not fit the handler: 0: Input should be")
    assert told.endswith("; and 1990 more")
    assert told.count(";") == 10


@proves("external-api.HandlerRegistration.expect.1")
def test_other_payloads() -> None:
    assert read(takes_bytes, b"\x00\xff") == b"\x00\xff"
    assert read(takes_any, b'[1, {"a": null}]') == [1, {"a": None}]
    assert read(takes_any, b"") is None
    assert read(takes_dict, b'{"a": 1}') == {"a": 1}
    assert read(takes_point, b'{"x": 1, "y": 2}') == Point(1, 2)
    assert read(takes_defaults, b"") == Defaults()


def test_without_a_payload_a_default_stands() -> None:
    optional = spec(takes_optional)
    empty, full = job_context(), job_context(payload=b'{"to": "a@b"}')
    assert optional.arguments(empty) == (empty,)
    assert optional.arguments(full) == (full, Email(to="a@b"))


def test_json_that_is_not_json_is_permanent() -> None:
    with pytest.raises(PermanentError, match="is not JSON") as caught:
        read(takes_any, b"{")
    assert caught.value.code == "INVALID_PAYLOAD"


def test_a_handler_may_take_the_context_alone() -> None:
    context = job_context(payload=b"ignored")
    assert spec(takes_context).arguments(context) == (context,)


def no_parameters() -> None: ...
def three(ctx: Any, payload: Any, more: Any) -> None: ...
def keyword(ctx: Any, *, needed: int) -> None: ...
def unresolvable(ctx: Any, payload: "NoSuchName") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def unvalidatable(ctx: Any, payload: Worker) -> None: ...
def yields(ctx: Any) -> Any:
    yield 1


async def yields_async(ctx: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (no_parameters, r"\(ctx\) or \(ctx, payload\)"),
        (three, r"\(ctx\) or \(ctx, payload\)"),
        (keyword, r"\(ctx\) or \(ctx, payload\)"),
        (unresolvable, "NoSuchName"),
        (unvalidatable, "pydantic cannot validate"),
        (yields, "not yield"),
        (yields_async, "not yield"),
        (None, "must be a function"),
    ],
)
@proves("external-api.HandlerRegistration.rule.2")
def test_what_is_not_a_handler(function: Any, reason: str) -> None:
    with pytest.raises(InvalidHandler, match=reason):
        spec(function)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": "30 minutes"}, "timeout"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 101}, "max_attempts"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": 10_001}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
    ],
)
@proves(
    "external-api.HandlerRegistration.rule.3",
    "external-api.HandlerRegistration.rule.4",
    "external-api.HandlerRegistration.rule.5",
)
def test_options_out_of_range(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidHandler) as caught:
        spec(takes_any, **options)
    assert caught.value.field == field


def test_a_timedelta_is_a_timeout() -> None:
    assert spec(takes_any, timeout=timedelta(minutes=1)).timeout_s == 60.0


def test_registering_answers_with_the_status() -> None:
    worker = Worker()
    first = worker.register("t", takes_any)
    assert (first.type, first.status, first.previous) == (
        "t",
        RegistrationStatus.REGISTERED,
        False,
    )
    again = worker.register("t", takes_bytes, concurrency=2)
    assert (again.status, again.previous) == (RegistrationStatus.REPLACED, True)
    wrong = worker.register("t", no_parameters)
    assert (wrong.status, wrong.previous) == (RegistrationStatus.INVALID, True)
    assert "ctx" in wrong.reason
    kept = worker.registry.get("t")
    assert kept is not None
    assert kept.function is takes_bytes


def test_the_decorator_registers_and_leaves_the_function_alone() -> None:
    worker = Worker()
    decorated = worker.handler("t", timeout=30, max_attempts=3, concurrency=5)(takes_email)
    assert decorated is takes_email
    registered = worker.registry.get("t")
    assert registered is not None
    assert (registered.timeout_s, registered.max_attempts, registered.concurrency) == (30, 3, 5)


def test_the_decorator_raises_for_nonsense() -> None:
    with pytest.raises(InvalidHandler, match="type: must not be empty"):
        Worker().handler("")(takes_any)


def test_a_decorator_without_parentheses_says_what_to_write() -> None:
    with pytest.raises(InvalidHandler, match=r"write @worker.handler\('takes-any'\)"):
        Worker().handler(takes_any)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "body", "content_type"),
    [
        (None, b"null", "application/json"),
        (b"\x00", b"\x00", "application/octet-stream"),
        (Email(to="a"), b'{"to":"a","copies":1}', "application/json"),
        ({"a": [1, "é", None]}, '{"a":[1,"é",null]}'.encode(), "application/json"),
        ({"sent": Email(to="a")}, b'{"sent":{"to":"a","copies":1}}', "application/json"),
        (datetime(2026, 1, 2, tzinfo=UTC), b'"2026-01-02T00:00:00Z"', "application/json"),
        (False, b"false", "application/json"),
        ("", b'""', "application/json"),
    ],
)
@proves("external-api.HandlerRegistration.expect.3")
def test_results(value: object, body: bytes, content_type: str) -> None:
    assert encode_result(value, 1000) == (body, content_type)


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1},
        {"a": [{1}]},
        frozenset("a"),
        float("nan"),
        [float("inf")],
        "\ud800",
        cycle(),
        b"x" * 11,
        "x" * 10,
    ],
)
@proves("external-api.HandlerRegistration.expect.4")
def test_results_that_cannot_be_stored_are_permanent(value: object) -> None:
    with pytest.raises(PermanentError) as caught:
        encode_result(value, 10)
    assert caught.value.code == "RESULT_NOT_STORABLE"


def test_a_result_may_nest_a_hundred_levels() -> None:
    nested: list[Any] = ['brackets in strings, [[[{{{ and \\"[', "do not count"]
    for _ in range(99):
        nested = [nested]
    encode_result(nested, 10_000)
    with pytest.raises(PermanentError, match="deeper than 100") as caught:
        encode_result({"a": nested}, 10_000)
    assert caught.value.code == "RESULT_NOT_STORABLE"
