"""The part of an address behind the question mark, as a model."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar, get_origin
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ValidationError

from queue_operator.api.errors import InvalidBody, details_from, fault
from queue_operator.api.schemas import ErrorDetail

M = TypeVar("M", bound=BaseModel)

_MOST_BYTES: Final = 64 * 1024
_MOST_VALUES: Final = 1000


def parse_query(raw: bytes, model: type[M]) -> M:
    """An instance of `model`. Raises InvalidBody naming every faulty parameter."""
    if not raw:
        return model()
    if len(raw) > _MOST_BYTES:
        raise fault("", "QUERY_TOO_LONG", f"the query is longer than {_MOST_BYTES} bytes")
    given, faults = _values(raw, _lists(model))
    try:
        query = model.model_validate(given)
    except ValidationError as error:
        known = {one.field for one in faults}
        faults += [one for one in details_from(error) if one.field not in known]
        raise InvalidBody(faults) from None
    if faults:
        raise InvalidBody(faults)
    return query


@cache
def _lists(model: type[BaseModel]) -> frozenset[str]:
    """Parameters that may be given more than once."""
    fields = model.model_fields.items()
    return frozenset(name for name, one in fields if get_origin(one.annotation) is list)


def _values(raw: bytes, lists: frozenset[str]) -> tuple[Mapping[str, Any], list[ErrorDetail]]:
    given: dict[str, Any] = {}
    faults: list[ErrorDetail] = []
    pairs = [pair for pair in raw.split(b"&") if pair]
    if len(pairs) > _MOST_VALUES:
        raise fault("", "QUERY_TOO_LONG", f"the query has more than {_MOST_VALUES} parameters")
    for pair in pairs:
        name_raw, _, value_raw = pair.partition(b"=")
        name = _text(name_raw) or ""
        value = _text(value_raw)
        if value is None:
            faults.append(ErrorDetail(field=name, code="INVALID_ENCODING", message="is not UTF-8"))
        elif name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            faults.append(ErrorDetail(field=name, code="REPEATED", message="is given twice"))
        else:
            given[name] = value
    return given, faults


def _text(raw: bytes) -> str | None:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        return None
