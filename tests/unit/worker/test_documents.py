"""What is written of a value is that value, or nothing is written."""

import math
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    SecretBytes,
    SecretStr,
    TypeAdapter,
    computed_field,
    field_serializer,
)

from queue_operator.domain.errors import InvalidArgument
from queue_operator.worker import JobContext, PermanentError, Worker
from queue_operator.worker.handlers import build_spec
from queue_operator.worker.link import Unconnected
from queue_operator.worker.testing import job_context, run_handler
from queue_operator.worker.values import encode_result


class Aliased(BaseModel):
    user_id: int = Field(alias="userId")


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=False)
    user_id: int = Field(alias="userId")


class OneWay(BaseModel):
    user_id: int = Field(validation_alias="userId")


class SilentOneWay(BaseModel):
    user_id: int = Field(default=0, validation_alias="userId")


class Choices(BaseModel):
    user_id: int = Field(validation_alias=AliasChoices("userId", "user_id"))


class Inner(BaseModel):
    token: SecretStr


class Outer(BaseModel):
    inner: list[Inner]


class Opened(BaseModel):
    token: SecretStr

    @field_serializer("token", when_used="json")
    def _open(self, token: SecretStr) -> str:
        return token.get_secret_value()


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int
    raw: Json[list[int]] = [1]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.width


@dataclass
class Point:
    x: float
    tags: set[str] = field(default_factory=set)


class Loose(BaseModel):
    data: Any


def spawned(payload: object) -> tuple[bytes, str]:
    link = Unconnected()
    job_context(_link=link).spawn("child", payload)
    [job] = link.spawned
    return job.payload, job.content_type


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        (Aliased(userId=7), b'{"userId":7}'),
        (ByName(user_id=7), b'{"user_id":7}'),
        (Choices(userId=7), b'{"user_id":7}'),
        (Opened(token=SecretStr("s3cret")), b'{"token":"s3cret"}'),
        (Computed(width=2, raw="[3]"), b'{"width":2,"raw":"[3]"}'),
        (Point(1.5), b'{"x":1.5,"tags":[]}'),
        (Loose(data=(1, datetime(2026, 1, 2, tzinfo=UTC))), b'{"data":[1,"2026-01-02T00:00:00Z"]}'),
    ],
)
def test_what_is_spawned_is_what_the_same_model_reads(payload: Any, written: bytes) -> None:
    assert spawned(payload) == (written, "application/json")
    kind = type(payload)

    def handler(ctx: JobContext, payload: Any) -> Any:
        return payload

    handler.__annotations__["payload"] = kind
    worker = Worker()
    worker.register("t", handler)
    read = run_handler(worker, "t", payload)
    assert TypeAdapter(kind).dump_json(read) == TypeAdapter(kind).dump_json(payload)
    assert spawned([payload])[0] == b"[" + written + b"]"


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (OneWay(userId=7), "userId: Field required.*alias="),
        (SilentOneWay(userId=7), "user_id: is not read from where it is written"),
        ({"child": SilentOneWay(userId=7)}, "user_id: is not read from where it is written"),
        (Inner(token=SecretStr("s3cret")), r"token: is a secret.*get_secret_value\(\)"),
        (Outer(inner=[Inner(token=SecretStr("s3cret"))]), "inner.0.token: is a secret"),
        ({"token": SecretStr("s3cret")}, "a SecretStr is a secret"),
        ([deque([SecretBytes(b"s3cret")])], "a SecretBytes is a secret"),
        (Point(math.nan), "x: NaN and Infinity are no JSON"),
        ({"x": math.inf}, "not JSON that can be stored"),
        ({"x": Point(math.inf)}, "x: NaN and Infinity are no JSON"),
        ({1: "int", "1": "text"}, "a key that is an int"),
        ({"a": [{None: 1}]}, "a.0: has a key that is a NoneType"),
        (MappingProxyType({1: 2}), "a key that is an int"),
        ("half \ud800", "not JSON that can be stored"),
        ({"half \ud800": 1}, "not JSON that can be stored"),
        ({1}, "a set has no order"),
    ],
)
def test_what_would_be_read_as_something_else_is_not_spawned(payload: object, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told) as refused:
        spawned(payload)
    assert refused.value.field == "payload"
    assert "s3cret" not in str(refused.value)
    assert "**" not in str(refused.value)


def result(annotation: Any, value: object) -> bytes:
    def handler(ctx: JobContext) -> None: ...

    if annotation is None:
        return encode_result(value, 10_000)[0]
    handler.__annotations__["return"] = annotation
    spec = build_spec("t", handler, timeout=None, max_attempts=None, concurrency=None)
    return spec.write_result(value)[0]


class Ratio(BaseModel):
    ratio: float
    note: str | None = None


class Strings(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")
    ratio: float


NAN = math.nan


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (float, NAN),
        (float, math.inf),
        (dict[str, float], {"a": -math.inf}),
        (list[float | None], [None, NAN]),
        (set[float], {NAN}),
        (Ratio, Ratio(ratio=NAN)),
        (list[Ratio], [{"ratio": 1}, {"ratio": NAN}]),
        (Any, {"a": Ratio(ratio=NAN)}),
        (None, [Ratio(ratio=NAN)]),
        (None, Ratio(ratio=NAN)),
    ],
)
def test_no_number_becomes_null(annotation: Any, value: object) -> None:
    with pytest.raises(PermanentError, match="NaN and Infinity are no JSON") as caught:
        result(annotation, value)
    assert caught.value.code == "RESULT_NOT_STORABLE"


@pytest.mark.parametrize(
    ("annotation", "value", "written"),
    [
        (Ratio, Ratio(ratio=1, note=None), b'{"ratio":1.0,"note":null}'),
        (Strings, Strings(ratio=NAN), b'{"ratio":"NaN"}'),
        (Aliased, Aliased(userId=7), b'{"userId":7}'),
        (None, Aliased(userId=7), b'{"userId":7}'),
        (Computed, Computed(width=2, raw="[3]"), b'{"width":2,"raw":[3],"double":4}'),
        (dict[int, str], {1: "a", 2: "b"}, b'{"1":"a","2":"b"}'),
        (str, "***", b'"***"'),
        (None, None, b"null"),
        (None, {"at": {"price": Decimal("0.10")}}, b'{"at":{"price":"0.10"}}'),
    ],
)
def test_other_results_are_written_as_they_are(
    annotation: Any, value: object, written: bytes
) -> None:
    assert result(annotation, value) == written


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        (None, {1: "int", "1": "text"}, "a key that is an int"),
        (None, {"a": {(1, 2): 3}}, "not JSON that can be stored"),
        (dict[int | str, str], {1: "int", "1": "text"}, "two keys that are the same as text: '1'"),
        (Loose, Loose(data={1: "int", "1": "text"}), "two keys that are the same as text"),
        (Inner, {"token": "s3cret"}, "token: is a secret"),
        (None, {"token": SecretStr("s3cret")}, "a SecretStr is a secret"),
        (set[SecretStr], {SecretStr("s3cret")}, "is a secret"),
    ],
)
def test_neither_keys_nor_secrets_are_lost(annotation: Any, value: object, told: str) -> None:
    with pytest.raises(PermanentError, match=told) as caught:
        result(annotation, value)
    assert caught.value.code == "RESULT_NOT_STORABLE"
    assert "s3cret" not in str(caught.value)
